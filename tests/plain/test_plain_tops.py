"""The top of an axis and scatters by plain kernels: ties, NaN, duplicates, indices outside."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Graph, cast, exp
from ir.axes import Axis
from ir.dtypes import from_float, is_float, numpy_dtype, to_float
from ir.errors import ProgramError
from ir.folding import scatter, top
from ir.plain.build import plain_kernel, plain_kernels
from ir.plain.meaning import meaning, meanings
from ir.plain.pieces import Ways
from ir.plain.sorting import is_worth_merging
from ir.program import Program
from ir.tiles import Operand
from tests.judging import bounds_of
from tests.plain.judge import judge

# --- top ------------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from((1, 2, 3, 5, 8)),
    st.integers(1, 8),
    st.sampled_from(("f32", "f64", "bf16", "i32", "i64", "bool")),
    st.booleans(),
    st.sampled_from(("ti", "it", "t")),
    st.integers(0, 2**32 - 1),
)
def test_ties_and_nan(
    extent: int, ranks: int, dtype: str, least: bool, order: str, seed: int
) -> None:
    check_ties_and_nan(extent, ranks, dtype, least, order, seed)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from((1, 2, 3, 5, 8, 13)),
    st.integers(1, 13),
    st.sampled_from(("f32", "f64", "bf16", "i32", "i64", "bool")),
    st.booleans(),
    st.sampled_from(("ti", "it", "t")),
    st.integers(0, 2**32 - 1),
)
def test_ties_and_nan_by_merging(
    extent: int, ranks: int, dtype: str, least: bool, order: str, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ir.plain.tops.is_worth_merging", lambda *_: True)
        check_ties_and_nan(extent, ranks, dtype, least, order, seed)


def test_long_rows_are_sorted_by_merging() -> None:
    """What inserting would move a million times."""
    g = Graph("sorted")
    t, i, r = g.axes(t=300, i=2, r=300)
    values, places = top(g.input("x", (i, t), "i32"), t, r, least=True)
    g.output("values", values)
    g.output("places", places)
    assert is_worth_merging(300, 300)
    assert not is_worth_merging(128256, 50)
    drawn = np.random.default_rng(0).integers(0, 40, size=(2, 300))
    found = judge(g.program(), {"x": drawn.astype(np.int32)}, 1)
    assert (found["places"] == np.argsort(drawn, axis=1, kind="stable")).all()


def check_ties_and_nan(
    extent: int, ranks: int, dtype: str, least: bool, order: str, seed: int
) -> None:
    g = Graph("tops")
    t, i, r = g.axes(t=extent, i=3, r=min(ranks, extent))
    x = g.input("x", tuple({"t": t, "i": i}[name] for name in order), dtype)
    values, places = top(x, t, r, least=least)
    g.output("values", values)
    g.output("places", places)
    shape = tuple({"t": extent, "i": 3}[name] for name in order)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, 2 if dtype == "bool" else 4, size=shape).astype(np.float64)
    if is_float(dtype):
        drawn[drawn == 3] = rng.choice([np.nan, np.inf, -0.0])
    found = judge(g.program(), {"x": from_float(drawn, dtype)}, seed % 7)
    rows = np.moveaxis(drawn, order.index("t"), -1).reshape(-1, extent)
    where = np.moveaxis(found["places"], order.index("t"), -1).reshape(len(rows), -1)
    for row, got in zip(rows, where, strict=True):
        assert list(got) == _ordered(row, least)[: len(got)]


def _ordered(row: np.ndarray, least: bool) -> list[int]:
    """NaN first, then by size, then by place."""
    sign = 1 if least else -1
    return sorted(
        range(len(row)),
        key=lambda place: (0, 0, place) if np.isnan(row[place]) else (1, sign * row[place], place),
    )


def test_the_top_with_what_is_elementwise_around_it() -> None:
    g = Graph("around")
    i, t, r = g.axes(i=2, t=6, r=3)
    x = g.input("x", (i, t), "bf16")
    values, places = top(exp(x * 0.25), t, r)
    g.output("values", values * 2.0, "bf16")
    g.output("o", cast(g.tensor("names", (6,), "i8")[places], "i32") + g.iota(r))
    judge(g.program(), seed=3)


def test_only_values_or_only_places() -> None:
    for number in range(2):
        g = Graph("one")
        t, r = g.axes(t=7, r=2)
        g.output("o", top(g.input("x", (t,), "f32"), t, r)[number])
        kernel = plain_kernel(g.program())
        assert len([a for a in kernel.arrays if a.place == "thread"]) == number + 1
        judge(g.program())


# --- scatter --------------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(("sum", "max", "min", "or")),
    st.sampled_from(("f32", "f64", "bf16", "i32", "i64", "bool")),
    st.sampled_from(((1, 1, 1), (3, 5, 4), (2, 8, 1), (5, 3, 8))),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_duplicates_and_places_outside(
    kind: str, dtype: str, extents: tuple[int, int, int], owned: bool, seed: int
) -> None:
    dtype = "bool" if kind == "or" else "i32" if dtype == "bool" else dtype
    g = Graph("scatters")
    i, t, k = g.axes(**dict(zip("itk", extents, strict=True)))
    x = g.input("x", (i, t), dtype)
    where = g.input("where", (t,), "i32")
    into: dict[Axis, Operand] = {i: i, k: where} if owned else {k: where}
    g.output("o", scatter(kind, x, into))
    rng = np.random.default_rng(seed)
    shape = extents[:2]
    high = 2 if dtype == "bool" else 5
    inputs = {
        "x": from_float(rng.integers(0 if high == 2 else -5, high, size=shape), dtype),
        "where": rng.integers(-2, extents[2] + 2, size=extents[1]).astype(np.int32),
    }
    found = judge(g.program(), inputs, seed % 5)["o"]
    assert (found == _scattered(kind, inputs, dtype, extents, owned)).all()


def _scattered(
    kind: str, inputs: dict[str, np.ndarray], dtype: str, extents: tuple[int, int, int], owned: bool
) -> np.ndarray:
    x, where = to_float(inputs["x"], dtype), inputs["where"]
    low, high = -np.inf, np.inf
    if x.dtype.kind == "i":
        ends = np.iinfo("int64" if dtype == "i64" else "int32")
        low, high = ends.min, ends.max
    start = {"sum": 0, "max": low, "min": high, "or": False}[kind]
    rows = extents[0] if owned else 1
    found = np.full((rows, extents[2]), start, dtype=x.dtype)
    combine = {"sum": np.add, "max": np.maximum, "min": np.minimum, "or": np.logical_or}[kind]
    for row in range(extents[0]):
        for place, target in enumerate(where):
            if 0 <= target < extents[2]:
                into = row if owned else 0
                found[into, target] = combine(found[into, target], x[row, place])
    return found if owned else found[0]


def test_an_affine_place_and_a_transposed_output() -> None:
    """Overlap and add: segments of 3, each 2 further."""
    g = Graph("overlap")
    s, w, b, o = g.axes(s=4, w=3, b=2, o=9)
    x = g.input("x", (b, s, w), "f32")
    g.output("y", scatter("sum", x, {b: b, o: 2 * s + w}), dims=(o, b))
    kernel = plain_kernel(g.program())
    x_now = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    wanted = np.zeros((9, 2))
    for place in range(4):
        wanted[2 * place : 2 * place + 3] += x_now[:, place].T
    np.testing.assert_allclose(meaning(kernel, {"x": x_now})["y"], wanted, rtol=1e-5, atol=1e-6)
    assert [extent for _, extent in kernel.points] == [2]


@pytest.mark.parametrize("owners", [1, 2, 4, 6, 100])
def test_an_output_that_is_shared_out(owners: int) -> None:
    """Each share combines what is sent there, in the same order."""
    g = Graph("shares")
    i, t, k, m = g.axes(i=2, t=9, k=5, m=2)
    x, places = g.input("x", (i, t), "f32"), g.input("places", (t,), "i32")
    g.output("o", scatter("sum", x, {m: g.iota(t) - 3, i: i, k: places}))
    rng = np.random.default_rng(5)
    inputs = {
        "x": rng.normal(size=(2, 9)).astype(np.float32),
        "places": rng.integers(-1, 6, size=9).astype(np.int32),
    }
    program = g.program()
    kernel = plain_kernel(program, Ways(owners=owners))
    shares = {1: 1, 2: 1, 4: 2, 6: 3, 100: 5}[owners]
    assert math.prod(extent for _, extent in kernel.points) == 2 * shares
    for name, bounds in bounds_of(program, inputs).items():
        found = meaning(kernel, inputs)[name]
        assert bounds.judge(found).right
        assert (found == meaning(plain_kernel(program), inputs)[name]).all()


def _rounded_each_time() -> Program:
    g = Graph("narrow")
    t, k = g.axes(t=4, k=3)
    g.output(
        "o", scatter("sum", g.input("x", (t,), "bf16"), {k: g.input("w", (t,), "i32")}), "bf16"
    )
    return g.program()


@pytest.mark.parametrize("ways", [Ways(), Ways(owners=3), Ways(pieces=2), Ways(ordered=True)])
def test_a_narrow_scatter_is_rounded_once(ways: Ways) -> None:
    """It has a wide tensor of its own, or is stored by who has all of an element."""
    inputs = {
        "x": from_float(np.array([256.0, 1.0, 1.0, 1.0]), "bf16"),
        "w": np.array([1, 1, 1, 1], dtype=numpy_dtype("i32")),
    }
    found = meanings(plain_kernels(_rounded_each_time(), ways), inputs)["o"]
    assert list(to_float(found, "bf16")) == [0.0, 260.0, 0.0]


def test_only_what_is_made_of_a_scatter_is_stored_beside_it() -> None:
    g = Graph("apart")
    t, k = g.axes(t=4, k=3)
    x, w = g.input("x", (t,), "f32"), g.input("w", (t,), "i32")
    g.output("o", scatter("sum", x, {k: w}))
    g.output("p", g.iota(k) * 2, "i32", (k,))
    with pytest.raises(ProgramError, match="what is made of it, and nothing else"):
        plain_kernels(g.program())


def test_by_phases_a_narrow_scatter_is_rounded_once() -> None:
    inputs = {
        "x": from_float(np.array([256.0, 1.0, 1.0, 1.0]), "bf16"),
        "w": np.array([1, 1, 1, 1], dtype=numpy_dtype("i32")),
    }
    found = judge(_rounded_each_time(), inputs)["o"]
    assert list(to_float(found, "bf16")) == [0.0, 260.0, 0.0]


def test_two_scatters_are_refused() -> None:
    g = Graph("two")
    t, k = g.axes(t=4, k=3)
    x, w = g.input("x", (t,), "f32"), g.input("w", (t,), "i32")
    g.output("o", scatter("sum", x, {k: w}))
    g.output("p", scatter("max", x, {k: w}))
    with pytest.raises(ProgramError, match="one scatter, here are 2"):
        plain_kernel(g.program())
