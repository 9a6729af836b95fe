"""Runtimes of this process: the host's, and CUDA kernels emulated on the host.

What an emulated kernel left is kept: to launch it again on the same operands copies that.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from explorer.check import Bounds, Verdict, poison
from explorer.runtime.base import Binary, Launch
from explorer.runtime.cpu import CpuRuntime, pool, request_tile_permission
from ir.dtypes import numpy_dtype
from ir.kernel import Kernel
from tests.emulator.emulate import emulate

_RUN = 1e-5  # seconds that an emulated run is said to take: many of them make a sample


class HereRuntime(CpuRuntime):
    """The host's runtime, in a process that does not belong to it."""

    def prepare(self, device: int = 0) -> None:
        request_tile_permission()
        pool()

    def clock_ghz(self) -> float | None:
        return None


class EmulatedRuntime:
    """See `explorer.runtime.base.Runtime`; of CUDA kernels, in g++'s hands."""

    name = "emulated"
    settle = 0.0
    apart = False
    exclusive = True

    def __init__(self) -> None:
        self._kernels: dict[str, Kernel] = {}
        self.replays = True
        self._left: dict[tuple[str, tuple[int, ...]], list[Any]] = {}

    def prepare(self, device: int = 0) -> None:
        pass

    def compile(self, kernel: Kernel, cache_dir: Path) -> Binary:
        self._kernels[kernel.key] = kernel
        return Binary(kernel.key, "", kernel.entry, kernel.threads, kernel.arguments)

    def load(self, binary: Binary) -> _Emulated:
        return _Emulated(self._kernels[binary.key], binary, self._left if self.replays else None)

    def place(self, array: Any) -> Any:
        copy = np.array(array, order="C")
        copy.flags.writeable = False
        return copy

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return np.empty(shape, numpy_dtype(dtype))

    def put(self, array: Any, values: Any) -> None:
        array[...] = values

    def arrays(self) -> Any:
        return np

    def fetch(self, array: Any) -> Any:
        return array

    def poison(self, array: Any, dtype: str, turn: int = 0) -> None:
        poison(array, dtype, turn)

    def judge(self, bounds: Bounds, array: Any) -> Verdict:
        return bounds.judge(array)

    def clock_ghz(self) -> float | None:
        return None


class _Emulated:
    """A kernel as text, with a workspace that stays from launch to launch."""

    def __init__(self, kernel: Kernel, binary: Binary, left: dict[Any, Any] | None) -> None:
        self._kernel, self._binary, self._left = kernel, binary, left
        self._memory: dict[str, Any] = {}

    def bind(self, operands: Sequence[Any]) -> Launch:
        arrays = {a.name: o for a, o in zip(self._binary.operands, operands, strict=True)}

        def launch(times: int = 1) -> float:
            self._run(arrays)
            return _RUN * times

        return launch

    def _run(self, arrays: dict[str, Any]) -> None:
        outputs = [arrays[a.name] for a in self._binary.operands if a.role == "output"]
        key = self._binary.key, tuple(id(array) for array in arrays.values())
        if self._left is not None and key in self._left:
            for output, found in zip(outputs, self._left[key], strict=True):
                output[...] = found
            return
        texts = self._kernel.text("cuda"), self._kernel.text("launch")
        run = emulate(*texts, {**self._memory, **arrays}, limit=30)
        if run.faults:
            raise RuntimeError("; ".join(run.faults))
        if "workspace" in run.outputs:
            self._memory["workspace"] = run.outputs["workspace"]
        if self._left is not None:
            self._left[key] = [output.copy() for output in outputs]

    def close(self) -> None:
        pass
