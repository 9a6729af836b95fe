"""Outputs of elements that share bytes: what they hold, and that both targets write whole bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.measure import Measurer
from ir import (
    Graph,
    Program,
    UsageError,
    contract,
    cumulative,
    evaluate,
    operator,
    parse,
    random_inputs,
    reduce,
)
from ir.dtypes import dtype_of, rounded, to_float, whole_range
from ir.packs import unpack
from tests.emulator.emulate import compiler
from tests.targets.test_unforeseen import CPU, CUDA, HOPPER, emulated

DTYPES = ("i4", "u4", "i2", "e2m1")
some_in_short = pytest.mark.parametrize(
    "dtype", ["i4", "e2m1", *(pytest.param(name, marks=pytest.mark.long) for name in ("u4", "i2"))]
)
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")


@operator
def narrowed(g: Graph, m: int, n: int, k: int, dtype: str) -> None:
    """Rows as they are, a product, running sums, the largest of each row everywhere, and a copy."""
    i, j, d = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (i, j), "f32"), g.input("W", (j, d), "f32")
    g.output("Q", x * 2.0, dtype)
    g.output("P", contract(x, w, over=j) * 0.5, dtype, (i, d))
    g.output("S", cumulative("sum", x, j), dtype)
    g.output("B", reduce("max", x, j), dtype, (i, d))
    g.output("C", g.input("N", (i, j), dtype), dtype)


def numbers(octets: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers that bytes hold."""
    found = unpack(octets, dtype)
    return to_float(found, dtype) if dtype == "e2m1" else found.astype(np.float64)


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers as a dtype has them."""
    if dtype == "e2m1":
        return rounded(values, dtype)
    whole: np.ndarray = np.clip(np.trunc(values), *whole_range(dtype))
    return whole


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(DTYPES), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_bytes_hold_the_numbers_in_their_order(dtype: str, m: int, n: int, k: int) -> None:
    each = dtype_of(dtype).per_byte
    program = narrowed.build(m=m, n=n * each, k=k * each, dtype=dtype)
    assert parse(str(program)) == program
    inputs = random_inputs(program, np.random.default_rng(m))
    x, w = (inputs[name].astype(np.float64) for name in "XW")
    wanted = {"Q": x * 2, "P": x @ w * 0.5, "S": x.cumsum(axis=1),
              "B": np.repeat(x.max(axis=1)[:, None], k * each, axis=1)}  # fmt: skip
    found = evaluate(program, inputs)
    for name, values in wanted.items():
        assert found[name].shape == (m, values.shape[1] // each)
        assert np.array_equal(numbers(found[name], dtype), stored(values, dtype)), name
    copied = numbers(found["C"], dtype)
    assert np.array_equal(copied, numbers(inputs["N"], dtype))


@some_in_short
def test_kernels_of_this_machine_are_right(dtype: str, code_cache: Path) -> None:
    program, hardware = narrowed.build(m=5, n=12, k=20, dtype=dtype), CPU.hardware(2)
    space = CPU.space(program, hardware)
    schedules = [space.schedule(row) for row in space.sample(np.random.default_rng(1), 1)]
    with Measurer(program, "cpu", hardware, cache_dir=code_cache) as measurer:
        assert [o.detail for o in measurer.measure(schedules) if not o.ok] == []


@needs_compiler
@some_in_short
def test_emulated_kernels_are_right(dtype: str) -> None:
    program = narrowed.build(m=5, n=12, k=20, dtype=dtype)
    space = CUDA.space(program, HOPPER)
    (row,) = space.sample(np.random.default_rng(2), 1)
    assert emulated(program, space.schedule(row), HOPPER) == []


def test_what_is_elementwise_goes_through_no_memory() -> None:
    g = Graph("rows")
    i, j = g.axes(m=3, n=8)
    x = g.input("X", (i, j), "f32")
    g.output("Q", x / reduce("max", abs(x), j) * 7.0, "i4")
    program: Program = g.program()
    assert [node.op.name for node in program.nodes if node.op.name == "read"] == []


def test_a_byte_is_filled() -> None:
    g = Graph("odd")
    i, j = g.axes(m=4, n=3)
    x = g.input("X", (i, j), "f32")
    with pytest.raises(UsageError) as caught:
        g.output("Q", x, "i4")
    assert str(caught.value) == (
        "odd: output Q: 2 elements of i4 share a byte along the last dimension, and its last "
        "extent is 3; make it a multiple of 2"
    )
    with pytest.raises(UsageError, match=r"output R: 2 elements of u4 .*, and it is a scalar"):
        g.output("R", reduce("sum", reduce("sum", x, i), j), "u4")
