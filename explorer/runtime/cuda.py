"""The CUDA runtime: cubins cached on disk, loaded and launched through CuPy, timed by events.

The only module that imports cupy, and only inside functions: it runs in worker processes that are
forked before CUDA starts, because a faulting kernel takes its whole context along.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from explorer.check import Bounds, Verdict, poison
from explorer.runtime import nvdisasm, nvrtc
from explorer.runtime.base import Array, Binary, LibraryLaunch
from explorer.runtime.cache import cached_file, read_cached
from explorer.runtime.launching import Configuration, attribute_of, configuration
from explorer.runtime.tensor_map import encode
from ir.dtypes import numpy_dtype
from ir.errors import MissingTarget
from ir.kernel import Argument, Kernel
from ir.program import Program

if TYPE_CHECKING:
    from explorer.runtime.cuda_launch import KernelLaunch

_SHARED_ATTRIBUTE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PLAIN_SHARED = 48 << 10
_L2_TIMES = 3  # operand sets together exceed the L2 by this factor
_MOST_SETS = 24
_MOST_BYTES = 2 << 30


@cache
def cupy() -> Any:
    """CuPy with a device; MissingTarget with what is missing."""
    try:
        import cupy
    except ImportError as error:
        raise MissingTarget(f"no CuPy ({error}); {nvrtc.INSTALL}") from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise MissingTarget(_driver_words(str(error))) from None
    if not count:
        raise MissingTarget("no CUDA device is visible; see nvidia-smi and CUDA_VISIBLE_DEVICES")
    return cupy


def _driver_words(error: str) -> str:
    if "insufficient" in error.lower():
        return (
            f"the NVIDIA driver is too old for this CuPy ({error}); update it, or {nvrtc.INSTALL}"
        )
    return f"CUDA does not start: {error}; see nvidia-smi"


def reduce_by(*accelerators: str) -> None:
    """Have sums and maxima that CuPy compiles in this process made by these: "cub", or CuPy's own
    kernels. What a library brings compiled is not concerned."""
    cupy()._core.set_reduction_accelerators(list(accelerators))


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


class CudaRuntime:
    """See `explorer.runtime.base.Runtime`."""

    name = "cuda"
    apart = True
    exclusive = False
    settle = 0.1  # its power is capped: short bursts run at clocks that it cannot keep

    def preload(self, cache_dir: Path, task: str = "run") -> None:
        """NVRTC's binding and the lowering, or CuPy; what is missing is said where it is needed.

        CuPy's own kernels are cached beside ours: its default is a folder below a home that may
        not be there.
        """
        os.environ.setdefault("CUPY_CACHE_DIR", str(cache_dir / "cupy"))
        with contextlib.suppress(MissingTarget, ImportError):
            if task == "compile":
                import_module("ir.targets.cuda.space.engines")
                nvrtc.bindings()
            else:
                import_module("cupy")  # starts no driver

    def prepare(self, device: int = 0) -> None:
        """Start CUDA on one of the visible devices in this process.

        CuPy's sums are those that compile soonest: of a first operator, the oracle's take half of
        the seconds that CUB's took. The library that a kernel is measured beside has CUB's.
        """
        count = cupy().cuda.runtime.getDeviceCount()
        if device >= count:
            raise MissingTarget(
                f"no CUDA device {device}: {count} visible, numbered from 0; see nvidia-smi -L"
            )
        cupy().cuda.Device(device).use()
        cupy().cuda.runtime.free(0)
        reduce_by()

    def compile(self, kernel: Kernel, cache_dir: Path) -> Binary:
        """The cubin, from the cache if it is there; its resources become notes."""
        plan = json.loads(kernel.text("launch"))
        source = kernel.text("cuda")
        arch, options = plan["arch"], tuple(plan["options"])
        key = json.dumps([source, arch, options, nvrtc.OPTIONS, nvrtc.version()])
        found: list[nvrtc.Resources] = []

        def make() -> bytes:
            code, resources = nvrtc.compile_text(source, arch, options)
            found.append(resources)
            return code

        path = cached_file(cache_dir, key, ".cubin", make)
        side = cached_file(
            cache_dir, key, ".json", lambda: self._resources(found, key, plan, source)
        )
        resources = nvrtc.Resources.from_json(read_cached(side).decode())
        notes = (
            *kernel.notes,
            ("registers", resources.registers),
            ("spills", resources.spill_stores + resources.spill_loads),
            ("serialised", " / ".join(resources.serialised)),
        )
        return Binary(
            kernel.key, str(path), kernel.entry, kernel.threads, kernel.arguments, notes,
            kernel.text("launch"),
        )  # fmt: skip

    def _resources(
        self, found: list[nvrtc.Resources], key: str, plan: dict[str, Any], source: str
    ) -> bytes:
        """Of the compilation just done; compiled once more if only the cubin was kept."""
        if not found:
            found.append(nvrtc.compile_text(source, plan["arch"], tuple(plan["options"]))[1])
        return found[0].to_json().encode()

    def spills(self, kernel: Kernel) -> int:
        """Bytes of register spills, stores and loads."""
        plan = json.loads(kernel.text("launch"))
        _, resources = nvrtc.compile_text(kernel.text("cuda"), plan["arch"], plan["options"])
        return resources.spill_stores + resources.spill_loads

    def disassembly(self, kernel: Kernel) -> str:
        plan = json.loads(kernel.text("launch"))
        code, _ = nvrtc.compile_text(kernel.text("cuda"), plan["arch"], plan["options"])
        return nvdisasm.text_of(code)

    def assemble(self, texts: Sequence[str]) -> bytes:
        """The cubin of a source, `texts[0]`, for its launch plan, `texts[1]`."""
        plan = json.loads(texts[1])
        return nvrtc.compile_text(texts[0], plan["arch"], plan["options"])[0]

    def prepare_library(self) -> None:
        self.prepare()

    def library(
        self, program: Program, inputs: Mapping[str, Array], outputs: Mapping[str, Array]
    ) -> LibraryLaunch:
        from explorer.runtime.cupy_library import CupyLaunch

        return CupyLaunch(program, inputs, outputs)

    def load(self, binary: Binary) -> CudaKernel:
        return CudaKernel(binary)

    def place(self, array: Array) -> Array:
        """A copy on the device."""
        return _guarded(lambda: cupy().asarray(np.ascontiguousarray(array)))

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        return _guarded(lambda: cupy().empty(shape, numpy_dtype(dtype)))

    def put(self, array: Array, values: Array) -> None:
        array[...] = cupy().asarray(values)

    def arrays(self) -> Any:
        return cupy()

    def room(self) -> int:
        cupy().get_default_memory_pool().free_all_blocks()
        free: int = cupy().cuda.runtime.memGetInfo()[0]
        return free

    def compiled_arrays(self, cache_dir: Path) -> Path:
        return Path(os.environ.get("CUPY_CACHE_DIR") or cache_dir / "cupy")

    def fetch(self, array: Array) -> Array:
        """The array as numpy's."""
        host: Array = cupy().asnumpy(array)
        return host

    def poison(self, array: Array, dtype: str, turn: int = 0) -> None:
        poison(array, dtype, turn)

    def judge(self, bounds: Bounds, array: Array) -> Verdict:
        return bounds.judge(array)

    def clock_ghz(self) -> float | None:
        """The clock of the processors now."""
        handle = _nvml()
        if handle is None:
            return None
        import pynvml

        clock: float = round(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM) / 1e3, 3)
        return clock


@cache
def _nvml() -> Any:
    """The device as NVML knows it; None where the clock cannot be told."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        place = cupy().cuda.Device().pci_bus_id  # NVML counts devices that are not visible, too
        return pynvml.nvmlDeviceGetHandleByPciBusId(place.encode())
    except pynvml.NVMLError:
        return None


def _guarded(make: Any) -> Array:
    """What allocates; MemoryError when the device has no room."""
    try:
        array: Array = make()
    except cupy().cuda.memory.OutOfMemoryError as error:
        raise MemoryError(f"the GPU has too little memory: {error}") from None
    return array


# --- loaded kernels -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Call:
    """One kernel with its packed parameters; `keep` holds what they point to."""

    function: int
    configuration: Configuration
    parameters: Any
    clears: tuple[tuple[int, int], ...]
    keep: tuple[Any, ...]

    def run(self, stream: int) -> None:
        for pointer, size in self.clears:
            _check(_driver().cuMemsetD8Async(ctypes.c_uint64(pointer), 0, ctypes.c_size_t(size),
                                             ctypes.c_void_p(stream)), "memset")  # fmt: skip
        self.configuration.stream = stream
        result = _driver().cuLaunchKernelEx(
            ctypes.byref(self.configuration), ctypes.c_void_p(self.function), self.parameters, None
        )
        _check(result, "launch")


def _check(result: int, call: str) -> None:
    if result:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(result, ctypes.byref(text))
        words = (text.value or b"unknown error").decode()
        raise RuntimeError(f"{call}: {words} (CUDA error {result})")


class CudaKernel:
    """A cubin in this process; see `explorer.runtime.base.LoadedKernel`."""

    def __init__(self, binary: Binary) -> None:
        self.binary = binary
        self.plan = json.loads(binary.plan)
        self._module = cupy().cuda.function.Module()
        self._module.load(read_cached(Path(binary.path)))
        self._functions = [self._function(kernel) for kernel in self.plan["kernels"]]
        self._own: Any = None

    def _function(self, kernel: dict[str, Any]) -> int:
        function = self._module.get_function(kernel["name"])
        if kernel["shared"] > _PLAIN_SHARED:
            result = _driver().cuFuncSetAttribute(
                ctypes.c_void_p(function.ptr), _SHARED_ATTRIBUTE, kernel["shared"]
            )
            _check(result, f"{kernel['shared']} bytes of shared memory")
        return int(function.ptr)

    def bind(self, operands: Sequence[Array]) -> KernelLaunch:
        """Attach arrays with a device pointer (CuPy's, or torch's by its array interface)."""
        from explorer.runtime.cuda_launch import KernelLaunch

        arrays = [_as_cupy(operand) for operand in operands]
        return KernelLaunch(tuple(map(self.calls, operand_sets(arrays))), self)

    def calls(self, operands: Sequence[Any]) -> tuple[_Call, ...]:
        """The launches of one run on CuPy arrays, in order: each has `run(stream)`."""
        given = iter(operands)
        arrays = {
            a.name: self._workspace(a) if a.role == "workspace" else next(given)
            for a in self.binary.arguments
        }
        return tuple(
            self._call(kernel, function, arrays)
            for kernel, function in zip(self.plan["kernels"], self._functions, strict=True)
        )

    def _workspace(self, argument: Argument) -> Any:
        """Scratch memory: what all kernels share, or this one's own if some of it stays clean."""
        if not self.plan.get("clean"):
            return _workspace(argument)
        if self._own is None:
            self._own = _guarded(lambda: cupy().zeros(argument.bytes, np.uint8))
        return self._own

    def _call(self, kernel: dict[str, Any], function: int, arrays: dict[str, Any]) -> _Call:
        values: list[Any] = []
        for parameter in kernel["parameters"]:
            pointer = arrays[parameter["argument"]].data.ptr + parameter["offset"]
            if parameter["kind"] == "pointer":
                values.append(ctypes.c_uint64(pointer))
            else:
                values.append(encode(_driver(), pointer, parameter))
        addresses = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        clears = tuple(
            (arrays["workspace"].data.ptr + start, size) for start, size in kernel["zero"]
        )
        grid, attribute = tuple(kernel["grid"]), attribute_of(kernel)
        sizes = configuration(grid, kernel["block"], kernel["shared"], attribute)
        return _Call(function, sizes, addresses, clears, (values, arrays, self._module))

    def __call__(self, *operands: Array) -> float:
        return self.bind(operands)()

    def close(self) -> None:
        """The module goes with its last reference."""
        self._functions = []
        self._module = self._own = None


def _as_cupy(operand: Any) -> Any:
    xp = cupy()
    if isinstance(operand, xp.ndarray):
        return operand
    if hasattr(operand, "__cuda_array_interface__"):
        return xp.asarray(operand)
    return xp.from_dlpack(operand)


_twins: dict[tuple[int, int], tuple[Any, Any]] = {}


def _twin(array: Any, number: int) -> Any:
    """Copy `number` of an operand, made once for all kernels of this process."""
    key = (array.data.ptr, number)
    if key not in _twins or _twins[key][0] is not array:
        _twins[key] = (array, array.copy())
    return _twins[key][1]


def operand_sets(arrays: list[Any]) -> list[list[Any]]:
    """The operands, and as many copies of them as together exceed the L2 cache."""
    others = range(1, _sets(arrays))
    return [arrays, *([_twin(array, number) for array in arrays] for number in others)]


def _sets(arrays: list[Any]) -> int:
    """Operand sets that together exceed the L2 cache."""
    total = sum(array.nbytes for array in arrays)
    l2 = cupy().cuda.Device().attributes["L2CacheSize"]
    wanted = min(_MOST_SETS, -(-_L2_TIMES * l2 // max(1, total)))
    return int(max(1, min(wanted, _MOST_BYTES // max(1, total))))


_arena: dict[str, Any] = {}


def _workspace(argument: Argument) -> Any:
    """Scratch memory kept from kernel to kernel, full of 0xFF at first."""
    have = _arena.get("workspace")
    if have is None or have.nbytes < argument.bytes:
        have = _guarded(lambda: cupy().full(argument.bytes, 0xFF, np.uint8))
        _arena["workspace"] = have
    return have
