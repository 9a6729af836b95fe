"""Exported CUDA modules and the stand-ins for CuPy and torch that they find."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.exporter import export, export_table
from explorer.exporters.base import TableFacts
from ir.kernel import Kernel, KernelTable
from tests.runtime.fake_cupy import Body, Device, Tensor, make_cupy, make_torch, placed, values_at

FACTS = {"operator": "add", "schedule": {"tile": 4}, "hardware": "cuda:H200", "note": 'a */ """ b'}
ADD_SIZES = {"add": [8, 8, 8]}
COPY_SIZES = {"copy_tiles": [128, 128, 8], "tell": [8, 8]}


def load(folder: Path, name: str) -> Any:
    """A fresh module object of an exported file."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def add_body(values: list[bytes]) -> None:
    add_of(1000)(values)


def add_of(count: int) -> Body:
    """The addition of so many elements."""

    def body(values: list[bytes]) -> None:
        a = values_at(values[0], "<u2", count).astype(np.uint32) << 16
        total = a.view(np.float32) + values_at(values[1], "<f4", count)
        values_at(values[2], "<f4", count)[...] = total

    return body


class World:
    """An exported module, with the libraries that it finds."""

    def __init__(
        self,
        kernel: Kernel | KernelTable,
        folder: Path,
        device: Device,
        patch: pytest.MonkeyPatch,
    ) -> None:
        if isinstance(kernel, Kernel):
            export(kernel, FACTS, folder)
        else:
            export_table(kernel, TableFacts(FACTS, tuple({} for _ in kernel.rows)), folder)
        self.device = device
        self.cupy, self.torch = make_cupy(device), make_torch(device)
        patch.setitem(sys.modules, "cupy", self.cupy)
        patch.setitem(sys.modules, "torch", self.torch)
        self.module = load(folder, kernel.name)

    def array(self, values: Any, device: int = 0) -> Any:
        return self.cupy.ndarray(values, device)

    def tensor(self, values: Any, index: int = 0) -> Tensor:
        name = {"uint16": "bfloat16"}.get(values.dtype.name, values.dtype.name)
        return Tensor(values, getattr(self.torch, name), index)


def operands(count: int = 1000) -> tuple[Any, Any, Any]:
    """A as bit patterns of bf16, B, and A + B."""
    a = np.arange(count, dtype=np.float32)
    b = np.linspace(0, 1, count, dtype=np.float32)
    bits = (a.view(np.uint32) >> 16).astype(np.uint16)
    return placed(bits), placed(b), (bits.astype(np.uint32) << 16).view(np.float32) + b
