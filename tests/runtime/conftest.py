"""What tests of exported CUDA kernels share: who compiles, and a module to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ir.kernel import Kernel
from tests.runtime import cuda_kernels
from tests.runtime.exported import ADD_SIZES, World, add_body
from tests.runtime.fake_cupy import Device

_CUDA = ("explorer.exporters.cuda", "explorer.exporters.cuda_table")


@pytest.fixture
def stub_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code is beside the point."""
    for module in _CUDA:
        monkeypatch.setattr(f"{module}.ask_once", lambda *_, **__: b"machine code")


@pytest.fixture
def real_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC in this process."""

    def ask(kernel: Kernel, method: str, texts: list[str], **_: object) -> bytes:
        return cuda_kernels.compiled(kernel.text("cuda"), texts[0])

    for module in _CUDA:
        monkeypatch.setattr(f"{module}.ask_once", ask)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub_compiler: None) -> World:
    device = Device(ADD_SIZES, {"add": add_body})
    return World(cuda_kernels.added(), tmp_path, device, monkeypatch)
