"""Folds and scans by plain kernels: merges, orders of axes, directions, dtypes, epilogues."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Graph, Tile, absolute, cast, exp, maximum, reduce
from ir.axes import Axis
from ir.dtypes import is_float, to_float
from ir.errors import ProgramError
from ir.folding import Merging, argmax, argmin, fold, recurrence, scan, top
from ir.merges import merge_of
from ir.ops.base import Array
from ir.plain.build import plain_kernel
from ir.plain.code import Accumulate, Name
from ir.plain.meaning import meaning
from ir.plain.scalars import merged
from tests.plain.judge import judge

EXTENTS = st.sampled_from((1, 2, 3, 5, 8))
DTYPES = ("f32", "f64", "bf16", "i32", "i64", "i8", "bool")


def _log_sum(a: tuple[Tile, ...], b: tuple[Tile, ...]) -> tuple[Tile, ...]:
    """Maximum, and the sum of exponentials beside it."""
    top = maximum(a[0], b[0])
    return top, a[1] * exp(a[0] - top) + b[1] * exp(b[0] - top)


def _first(a: tuple[Tile, ...], b: tuple[Tile, ...]) -> tuple[Tile, ...]:
    """What stands first, and how many there are."""
    return a[0], a[1] + b[1]


MERGES: dict[str, Merging] = {
    name: name for name in ("sum", "prod", "max", "min", "affine", "argmax", "argmin")
} | {"log_sum": _log_sum, "first": _first}
OF_FLOATS = ("affine", "log_sum")


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str, str, dict[str, int]]:
    """A merge, a dtype that it is for, the order of the axes, and their extents."""
    merge = draw(st.sampled_from((*MERGES, "and", "or")))
    dtype = draw(st.sampled_from(DTYPES))
    if merge in ("and", "or"):
        dtype = "bool"
    elif (dtype == "bool" and merge != "first") or (merge in OF_FLOATS and not is_float(dtype)):
        dtype = "f32"
    order = "".join(draw(st.permutations(draw(st.sampled_from(("t", "it", "ijt"))))))
    return merge, dtype, order, {axis: draw(EXTENTS) for axis in order}


@settings(max_examples=35, deadline=None)
@given(cases(), st.booleans(), st.booleans(), st.integers(0, 9))
def test_every_merge(
    case: tuple[str, str, str, dict[str, int]], keep: bool, backward: bool, seed: int
) -> None:
    merge, dtype, order, extents = case
    g = Graph("folds")
    axes = dict(zip(order, g.axes(**extents), strict=True))
    x = g.input("x", tuple(axes.values()), dtype)
    values: tuple[Tile, ...] = (x,)
    if merge in ("argmax", "argmin"):
        values = (x, g.iota(axes["t"]))
    elif merge == "affine":
        values = (x * 0.5, g.input("y", (axes["t"],), dtype))
    elif merge == "log_sum":
        values = (x, exp(x * 0.0))
    elif merge == "first":
        values = (x, g.constant(1, "i32"))
    how = MERGES.get(merge, merge)
    found = (scan if keep else fold)(how, values, axes["t"], backward=backward)
    for number, tile in enumerate(found):
        g.output(f"o{number}", tile)
    judge(g.program(), seed=seed)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("find", [argmax, argmin])
def test_nan_counts_and_the_first_wins(find: Callable[[Tile, Axis], Tile], backward: bool) -> None:
    g = Graph("nan")
    i, t = g.axes(i=3, t=5)
    g.output("o", find(g.input("x", (i, t), "f32"), t))
    rows = [[1, 2, np.nan, 9, np.nan], [3, 4, 4, 4, 3], [5, 5, 2, 2, 5]]
    x = np.array(rows[::-1] if backward else rows, np.float32)
    found = judge(g.program(), {"x": x})["o"]
    assert list(found) == [int((np.argmax if find is argmax else np.argmin)(row)) for row in x]


def test_the_order_of_a_merge_that_does_not_commute() -> None:
    """Products of 2 by 2 matrices, row by row."""

    def times(a: tuple[Tile, ...], b: tuple[Tile, ...]) -> tuple[Tile, ...]:
        return tuple(a[2 * i] * b[j] + a[2 * i + 1] * b[2 + j] for i in range(2) for j in range(2))

    for backward in (False, True):
        g = Graph("matrices")
        (t,) = g.axes(t=5)
        x = g.tensor("x", (5, 4), "f64")
        entries = tuple(x[t, place] for place in range(4))
        for number, tile in enumerate(scan(times, entries, t, backward=backward)):
            g.output(f"o{number}", tile)
        x_now = np.random.default_rng(1).normal(size=(5, 4))
        found = meaning(plain_kernel(g.program()), {"x": x_now})
        wanted = _products(x_now.reshape(5, 2, 2), backward).reshape(5, 4)
        for number in range(4):
            np.testing.assert_allclose(found[f"o{number}"], wanted[:, number], rtol=1e-12)


def _products(matrices: Array, backward: bool) -> Array:
    order = range(len(matrices))[:: -1 if backward else 1]
    found, running = np.empty_like(matrices), np.eye(2)
    for place in order:
        running = running @ matrices[place]
        found[place] = running
    return found


def test_what_is_elementwise_before_and_behind() -> None:
    g = Graph("around")
    i, t = g.axes(i=3, t=5)
    x = g.tensor("x", (7, 3), "bf16", fill=0.5)
    w = g.input("w", (i,), "i32")
    shifted = absolute(x[t - 1, i] - cast(w, "f32"))
    (total,) = fold("sum", shifted * g.iota(t), t)
    g.output("total", total * 2.0, "bf16")
    g.output("shares", shifted / total, "f32", dims=(t, i))
    inputs: dict[str, Array] = {
        "x": np.arange(0x3F80, 0x3F80 + 21, dtype=np.uint16).reshape(7, 3),
        "w": np.array([0, 1, -2], np.int32),
    }
    found = meaning(plain_kernel(g.program()), inputs)
    rows = np.concatenate([np.full((1, 3), 0.5), to_float(inputs["x"], "bf16")[:4]])
    terms = np.abs(rows - inputs["w"])
    total = (terms * np.arange(5)[:, None]).sum(axis=0)
    np.testing.assert_allclose(to_float(found["total"], "bf16"), total * 2, rtol=2**-8)
    np.testing.assert_allclose(found["shares"], terms / total, rtol=1e-6)


def test_a_scan_is_written_as_it_goes() -> None:
    """One loop, and no array but the tensors."""
    g = Graph("once")
    b, t = g.axes(b=3, t=8)
    h = recurrence(g.input("a", (b, t), "f32"), g.input("x", (b, t), "f32"), t)
    g.output("o", h * g.input("z", (b, t), "f32"), "bf16")
    kernel = plain_kernel(g.program())
    assert [type(statement) for statement in kernel.body] == [Accumulate]
    assert {array.place for array in kernel.arrays} == {"tensor"}
    assert [extent for _, extent in kernel.points] == [3]


def test_gathered_rows_and_fills_read_nothing_outside() -> None:
    g = Graph("gathered")
    i, t = g.axes(i=4, t=5)
    rows = g.input("rows", (i,), "i32")
    x = g.tensor("x", (3, 5), "f32", fill=-1.0)
    g.output("o", fold("sum", x[rows, t - 2], t)[0])
    inputs: dict[str, Array] = {
        "rows": np.array([0, 7, -1, 2], np.int32),
        "x": np.arange(15, dtype=np.float32).reshape(3, 5),
    }
    found = meaning(plain_kernel(g.program()), inputs)["o"]
    assert list(found) == [1 - 2 + 2, -5, -5, 10 + 11 + 12 - 2]


@pytest.mark.parametrize("kind", ["two folds", "a sum behind", "scan and top"])
def test_what_one_kernel_does_not_compute(kind: str) -> None:
    g = Graph("refused")
    i, t = g.axes(i=3, t=5)
    x = g.input("x", (i, t), "f32")
    (first,) = fold("sum", x, t)
    if kind == "two folds":
        g.output("o", first + fold("max", x, t)[0])
        wanted = "2 different folds, over t"
    elif kind == "a sum behind":
        g.output("o", reduce("sum", first, i))
        wanted = "reduce over no axis behind fold"
    else:
        (r,) = g.axes(r=2)
        g.output("o", first)
        g.output("p", top(x, t, r)[0])
        wanted = "here are fold and top"
    with pytest.raises(ProgramError, match=wanted):
        plain_kernel(g.program())


# --- one exponential for two ----------------------------------------------------------------------


def test_two_exponentials_of_which_one_is_of_zero_are_one() -> None:
    """Of every pair, infinities and NaN among them, to the bit."""
    apart = [f"exp(sub({state}, max(a0, b0)))" for state in ("a0", "b0")]
    merge = f"(max(a0, b0), add(mul(a1, {apart[0]}), mul(b1, {apart[1]})))"
    left, right = ([Name(f"{side}{n}", "f32") for n in range(2)] for side in "ab")
    text = repr(merged(merge_of(merge), left, right)[1])
    assert set(re.findall(r"'exp', args=\(Call\(function='(\w+)'", text)) == {"where"}
    special = np.array([0.0, -0.0, 1.5, -3.0, 88.0, -110.0, np.inf, -np.inf, np.nan], np.float32)
    g = Graph("pairs")
    i, j = g.axes(i=len(special) ** 2, j=2)
    x, s = (g.input(name, (i, j), "f32") for name in "xs")
    for n, state in enumerate(fold(merge, (x, s), j)):
        g.output(f"y{n}", state, "f32", (i,))
    first, second = (axis.reshape(-1) for axis in np.meshgrid(special, special))
    pairs = np.stack([first, second], axis=1)
    weights = np.stack([np.full(81, 3, np.float32), np.full(81, 5, np.float32)], axis=1)
    found = meaning(plain_kernel(g.program()), {"x": pairs, "s": weights})["y1"]
    with np.errstate(all="ignore"):
        most = np.maximum(first, second)
        wanted = weights[:, 0] * np.exp(first - most) + weights[:, 1] * np.exp(second - most)
    assert np.array_equal(found, wanted, equal_nan=True)
