"""CuPy as a baseline on a GPU: right for every operator and type, and captured into graphs."""

from __future__ import annotations

from typing import Any

import pytest

from explorer.runtime.cuda import CudaRuntime
from ir.errors import MissingTarget
from ir.registry import load_operator
from tests.runtime.library_contract import LibraryContract, launched

try:
    CudaRuntime().prepare()
    MISSING = ""
except MissingTarget as missing:
    MISSING = str(missing)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")]


class TestCupy(LibraryContract):
    @pytest.fixture
    def runtime(self) -> CudaRuntime:
        return CudaRuntime()


@pytest.mark.parametrize(
    ("operator", "arguments", "name"),
    [
        ("matmul", {"m": 256, "n": 256, "k": 256, "dtype": "bf16", "tb": True}, "cuBLAS (CuPy "),
        ("matmul_bias_act", {"m": 256, "n": 256, "k": 256}, "CuPy "),
        ("attention", {"b": 2, "heads": 4, "sq": 64, "d": 32, "dtype": "bf16"}, "CuPy "),
    ],
)
def test_short_runs_are_captured(operator: str, arguments: dict[str, Any], name: str) -> None:
    """What is launched from the host takes longer than the device does."""
    launch, _, _ = launched(CudaRuntime(), load_operator(operator).build(**arguments))
    launch()
    assert 0 < launch(48) / 48 < 2e-4
    assert launch.captured  # type: ignore[attr-defined]
    assert launch.name.startswith(name)
