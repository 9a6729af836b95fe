"""numpy as a baseline: right for every operator, without copies where it needs none."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from explorer.runtime.cpu import CpuRuntime
from explorer.runtime.eager import Evaluation, Inexpressible
from explorer.runtime.numpy_library import NumpyLibrary
from ir.dtypes import numpy_dtype
from ir.oracle import random_inputs
from ir.program import Program
from ir.registry import load_operator
from tests.runtime.library_contract import LibraryContract, launched

EXTENTS: dict[str, Any] = {"m": 24, "n": 20, "k": 28}


class TestNumpy(LibraryContract):
    @pytest.fixture
    def runtime(self) -> CpuRuntime:
        return CpuRuntime()


class _Spy(NumpyLibrary):
    """Keeps the operands of products."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[Any, ...]] = []

    def multiply(self, left: Any, right: Any, dtypes: Any, out: Any) -> Any:
        self.products.append((left, right, out))
        return super().multiply(left, right, dtypes, out)


def spied(program: Program) -> tuple[_Spy, dict[str, Any]]:
    spy, inputs = _Spy(), random_inputs(program, np.random.default_rng(0))
    outputs = {s.name: np.empty(s.shape, numpy_dtype(s.dtype)) for s in program.outputs}
    Evaluation(program, spy, inputs, outputs)()
    return spy, inputs | outputs


@pytest.mark.parametrize(
    ("ta", "tb", "batch"), [(False, False, 0), (True, True, 0), (True, False, 3)]
)
def test_a_product_is_one_call_without_copies(ta: bool, tb: bool, batch: int) -> None:
    options = {"ta": ta, "tb": tb, "batch": batch}
    spy, arrays = spied(load_operator("matmul").build(**EXTENTS, **options))
    ((left, right, out),) = spy.products
    assert np.shares_memory(left, arrays["A"])
    assert np.shares_memory(right, arrays["B"])
    assert np.shares_memory(out, arrays["C"])


def test_heads_are_batches_of_products() -> None:
    extents = {"b": 2, "heads": 4, "sq": 5, "d": 3}
    spy, arrays = spied(load_operator("attention").build(**extents))
    (q, k, _), (_, v, _) = spy.products
    assert len(q) == len(k) == len(v) == 8
    assert all(np.shares_memory(x, arrays[n]) for x, n in ((q, "Q"), (k, "K"), (v, "V")))


@pytest.mark.parametrize(
    ("operator", "arguments", "name"),
    [
        ("matmul", EXTENTS, r"\w+ \(numpy \d+\.\d+\)"),
        ("matmul", EXTENTS | {"dtype": "bf16"}, r"numpy \d+\.\d+ with \w+"),
        ("matmul_bias_act", EXTENTS, r"numpy \d+\.\d+ with \w+"),
        ("matmul", EXTENTS | {"dtype": "i8"}, r"numpy \d+\.\d+"),
        ("softmax", {"m": 4, "n": 9}, r"numpy \d+\.\d+"),
    ],
)
def test_it_is_called_by_what_does_the_work(
    operator: str, arguments: dict[str, Any], name: str
) -> None:
    launch, _, _ = launched(CpuRuntime(), load_operator(operator).build(**arguments))
    assert re.fullmatch(name, launch.name)


def test_large_products_of_integers_are_left_out() -> None:
    program = load_operator("matmul").build(m=1024, n=1024, k=1024, dtype="i8")
    arrays = {s.name: np.zeros(s.shape, numpy_dtype(s.dtype)) for s in program.tensors}
    with pytest.raises(Inexpressible, match="plain loops"):
        Evaluation(program, NumpyLibrary(), arrays, arrays)
