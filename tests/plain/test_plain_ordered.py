"""Scatters in the order of where elements go: what comes of it, and in which order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Graph
from ir.folding import scatter
from ir.ops.base import Array
from ir.plain.block import Block, Names
from ir.plain.build import choices_of, plain_kernel, plain_kernels
from ir.plain.code import Call, Number
from ir.plain.meaning import meaning, meanings
from ir.plain.ordered import plan_of
from ir.plain.ordering import first_not
from ir.plain.pieces import Ways
from ir.plain.tile_order import tiling_of
from ir.program import Program
from tests.plain.test_plain_pieces import TYPES, drawn, same, sent

ORDERED = Ways(ordered=True)


def rows(m: int, d: int, places: int, kind: str = "sum", dtype: str = "f32") -> Program:
    return sent(kind, dtype, (1, m, d, places), "d")


def found(program: Program, x: Array, where: Array, seed: int = 0) -> Array:
    inputs = {"x": x, "where": where.astype(np.int32)}
    return meanings(plain_kernels(program, ORDERED), inputs, seed)["o"]


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(("sum", "max", "min", "or")),
    st.sampled_from(TYPES),
    st.sampled_from(((1, 1, 1, 1), (2, 7, 3, 4), (1, 10, 4, 2), (3, 4, 1, 5), (2, 41, 1, 70))),
    st.sampled_from(("", "i", "d", "id")),
    st.integers(0, 2**32 - 1),
)
def test_a_scatter_in_order(
    kind: str, dtype: str, extents: tuple[int, int, int, int], owned: str, seed: int
) -> None:
    dtype = "bool" if kind == "or" else dtype
    program = sent(kind, dtype, extents, owned)
    same(program, ORDERED, drawn(program, dtype, seed), seed % 5)


@settings(max_examples=6, deadline=None)
@given(st.sampled_from((1, 63, 64, 131, 257)), st.sampled_from((1, 2, 300)), st.integers(0, 999))
def test_sums_are_those_of_one_after_the_other(m: int, places: int, seed: int) -> None:
    """To the bit, as long as no place gets a whole run; and whatever runs first."""
    program, rng = rows(m, 1, places), np.random.default_rng(seed)
    x = rng.normal(size=(1, m, 1)).astype(np.float32)
    where = rng.integers(-1, places + 1, size=m)
    one, two = (found(program, x, where, turn) for turn in (0, 1))
    assert np.array_equal(one, two)
    if places > 100:
        inputs = {"x": x, "where": where.astype(np.int32)}
        assert np.array_equal(one, meaning(plain_kernel(program), inputs)["o"])


@pytest.mark.parametrize("d", [1, 64, 67])
@pytest.mark.alike(3)
def test_a_place_that_gets_nearly_all(d: int) -> None:
    """Whole runs are combined by themselves, and what is beside them one by one."""
    rng = np.random.default_rng(0)
    program = rows(300, d, 5)
    x = rng.integers(0, 9, size=(1, 300, d)).astype(np.float32)
    for falling in (False, True):
        where = np.full(300, 3)
        where[[0, 7, 299]] = (1, 2, 4) if falling else 3
        where = where if falling else np.sort(where)
        wanted = np.zeros((5, d))
        np.add.at(wanted, where, x[0])
        assert np.array_equal(found(program, x, where), wanted)


def test_what_is_no_number_and_places_that_get_nothing() -> None:
    x = np.array([np.nan, -np.inf, 3, np.inf, 1, -0.0], np.float32).reshape(1, 6, 1)
    where = np.array([4, 0, 2, 2, 4, 6])
    sums = found(rows(6, 1, 6), x, where).ravel()
    assert np.array_equal(sums, np.array([-np.inf, 0, np.inf, 0, np.nan, 0]), equal_nan=True)
    most = found(rows(6, 1, 6, "max"), x, where).ravel()
    lows = [-np.inf, -np.inf, np.inf, -np.inf, np.nan, -np.inf]
    assert np.array_equal(most, np.array(lows), equal_nan=True)


def test_work_grows_with_what_is_sent() -> None:
    """No point goes through all that is sent: a group has a tile of it, a few steps a number."""
    from ir.plain.strides import steps_of

    program = rows(1 << 20, 64, 1 << 16)
    kernels = plain_kernels(program, ORDERED)
    assert (
        max(steps_of(kernel.body) for kernel in kernels) < 20 * tiling_of(1 << 20, 1 << 20).length
    )
    assert choices_of(program).ordered


def test_rows_of_two_axes_and_places_told_by_owned_ones() -> None:
    """Overlap and add is told by affine places; a batch by its own."""
    g = Graph("overlap")
    s, w, b, o = g.axes(s=4, w=3, b=2, o=9)
    x = g.input("x", (b, s, w), "f32")
    g.output("y", scatter("sum", x, {b: b, o: 2 * s + w}), dims=(o, b))
    program = g.program()
    plan = plan_of(program, next(p for p, n in enumerate(program.nodes) if n.op.name == "scatter"))
    assert plan is not None
    assert (plan.places, plan.columns, plan.rows) == (("o",), ("b",), ("s", "w"))
    values = np.random.default_rng(0).integers(0, 9, size=(2, 4, 3)).astype(np.float32)
    got = meanings(plain_kernels(program, ORDERED), {"x": values})["y"]
    assert np.array_equal(got, meaning(plain_kernel(program), {"x": values})["y"])


@settings(max_examples=35, deadline=None)
@given(st.integers(1, 40), st.data())
def test_how_many_precede(most: int, data: st.DataObject) -> None:
    """Evaluated as statements are: no place outside is looked at."""
    from ir.ops.base import TensorSpec
    from ir.plain.code import Array as Room
    from ir.plain.code import Element, PlainKernel, Write

    limit = data.draw(st.integers(0, most))
    before = data.draw(st.integers(0, limit))
    block = Block(Names(()))
    count = first_not(block, most, lambda at: Element("x", at, "bool"), Number(limit, "i64"))
    block.add(Write("o", Number(0, "i64"), Call("add", (count, Number(0, "i64")), "i64")))
    tensors = (TensorSpec("x", (max(1, limit),), "bool", "input"),
               TensorSpec("o", (1,), "i64", "output"))  # fmt: skip
    arrays = tuple(Room(spec.name, spec.dtype, spec.shape[0]) for spec in tensors)
    kernel = PlainKernel("counted", tensors, arrays, (), block.body)
    x = np.arange(max(1, limit)) < before
    assert meaning(kernel, {"x": x})["o"] == [before]
