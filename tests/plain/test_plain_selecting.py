"""The top of an axis by a group: keys, runs that are merged, chunks of which little is kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Graph
from ir.dtypes import from_float
from ir.folding import top
from ir.ops.base import Array
from ir.plain.build import choices_of, plain_kernel, plain_kernels
from ir.plain.meaning import meaning, meanings
from ir.plain.pieces import Ways
from ir.plain.selecting import Selecting
from ir.plain.values import Values
from ir.program import Program
from tests.few import by_turns

DTYPES = ("f32", "bf16", "i32", "i8", "bool")
ODD = {
    "f32": (np.nan, np.inf, -0.0, -np.inf, 1e-40),
    "bf16": (np.nan, np.inf, -0.0, -np.inf),
    "i32": (-(2.0**31), 2.0**31 - 1, -1),
}


def tops(shape: tuple[int, int], ranks: int, dtype: str, least: bool) -> Program:
    g = Graph("tops")
    i, t, r = g.axes(i=shape[0], t=shape[1], r=ranks)
    values, places = top(g.input("x", (i, t), dtype), t, r, least=least)
    g.output("values", values)
    g.output("places", places)
    return g.program()


def drawn(shape: tuple[int, int], dtype: str, seed: int) -> Array:
    """Few numbers, so that many are alike, and some that are odd."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, 2 if dtype == "bool" else 5, size=shape).astype(np.float64)
    odd = found == 3
    if dtype in ODD:
        found[odd] = rng.choice(ODD[dtype], size=odd.sum())
    return from_float(found, dtype)


def same(program: Program, x: Array, pieces: int, seed: int) -> None:
    wanted = meaning(plain_kernel(program), {"x": x})
    kernels = plain_kernels(program, Ways(shared=True, pieces=pieces))
    found = meanings(kernels, {"x": x}, seed)
    assert all(kernel.cooperative for kernel in kernels)
    for name in ("places", "values"):
        assert np.array_equal(found[name], wanted[name], equal_nan=found[name].dtype.kind == "f")


@settings(max_examples=35, deadline=None)
@given(
    st.sampled_from((1, 2, 7, 8, 9, 13, 16, 31, 67)),
    st.integers(1, 67),
    st.sampled_from(DTYPES),
    st.booleans(),
    st.sampled_from((1, 1, 2, 5)),
    st.integers(0, 2**32 - 1),
)
def test_short_axes_are_sorted(
    extent: int, ranks: int, dtype: str, least: bool, pieces: int, seed: int
) -> None:
    program = tops((2, extent), min(ranks, extent), dtype, least)
    same(program, drawn((2, extent), dtype, seed), pieces, seed % 5)


@pytest.fixture
def short_chunks() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ir.plain.selecting._CHUNK", 16)
        patch.setattr("ir.plain.selecting._BEGUN", 8)
        patch.setattr("ir.plain.selecting._WHOLE", 0)
        yield


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("order", ["drawn", "rising", "falling", "alike"])
@pytest.mark.parametrize(
    ("extent", "ranks", "pieces"),
    [(17, 1, 1), (40, 3, 1), (64, 5, 1), (67, 5, 3), (131, 20, 1), (131, 20, 3)],
)
@pytest.mark.alike(2)
def test_long_axes_go_by_in_chunks(extent: int, ranks: int, pieces: int, order: str) -> None:
    """However they come: all of them good enough, or none."""
    for dtype, least in (("f32", False), ("i32", True)):
        x = drawn((1, extent), dtype, extent)
        if order == "alike":
            x[:] = 1
        elif order != "drawn":
            x = np.sort(x, axis=1)[:, :: 1 if order == "rising" else -1]
        same(tops((1, extent), ranks, dtype, least), np.ascontiguousarray(x), pieces, 1)


def test_what_is_chunked() -> None:
    def made(extent: int, held: int) -> Selecting:
        program = tops((1, 4), 1, "f32", False)
        return Selecting(Values(program), "t", extent, held, lambda block, at: at)

    assert made(4096, 4096).whole
    assert made(4096, 4096).room == 4096
    assert made(128, 6).whole
    assert made(1500, 600).whole
    few, many = made(128256, 50), made(65536, 1024)
    assert (few.whole, many.whole) == (False, False)
    assert (few.begun, few.room) == (256, 50 + 1024 + 256)
    assert (many.begun, many.room) == (2048, 1024 + 1024 + 1024)
    for held in (1, 127, 128, 513, 1024, 1025, 3000):
        assert held <= made(1 << 20, held).begun <= made(1 << 20, held).room


def test_only_small_types_have_keys() -> None:
    """Of 64 bits and a place there is no room in a number of 64."""
    assert choices_of(tops((2, 9), 3, "i32", True)).shared
    assert not choices_of(tops((2, 9), 3, "f64", True)).shared
    assert not choices_of(tops((2, 9), 3, "i64", True)).shared
    program = tops((2, 9), 3, "f64", False)
    assert plain_kernels(program, Ways(shared=True)) == plain_kernels(program)


# --- rows that are put in order -------------------------------------------------------------------


@pytest.fixture
def all_rows() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ir.plain.grouped_tops._SHORT", 0)
        patch.setattr("ir.plain.grouped_tops._FEW", 0)
        patch.setattr("ir.plain.ordering._SCANNED", 64)
        yield


@pytest.mark.usefixtures("all_rows")
@pytest.mark.parametrize(
    ("dtype", "order"), by_turns(["f32", "bf16", "i32", "bool"], ["drawn", "rising"])
)
@pytest.mark.parametrize(("shape", "ranks"), [((1, 1), 1), ((1, 35), 35), ((3, 50), 7)])
@pytest.mark.alike(2)
def test_rows_are_put_in_order(shape: tuple[int, int], ranks: int, dtype: str, order: str) -> None:
    for least in (False, True):
        x = drawn(shape, dtype, ranks)
        x = np.sort(x, axis=1) if order == "rising" else x
        program = tops(shape, ranks, dtype, least)
        assert choices_of(program).ordered
        wanted = meaning(plain_kernel(program), {"x": x})
        kernels = plain_kernels(program, Ways(ordered=True))
        found = meanings(kernels, {"x": x}, 3)
        assert np.array_equal(found["places"], wanted["places"])
        equal_nan = found["values"].dtype.kind == "f"
        assert np.array_equal(found["values"], wanted["values"], equal_nan=equal_nan)


def test_only_long_rows_of_which_much_is_wanted_are_ordered() -> None:
    assert choices_of(tops((2, 5000), 600, "f32", True)).ordered
    assert not choices_of(tops((2, 4096), 600, "f32", True)).ordered
    assert not choices_of(tops((2, 5000), 50, "f32", True)).ordered
    assert not choices_of(tops((2, 5000), 600, "f64", True)).ordered
