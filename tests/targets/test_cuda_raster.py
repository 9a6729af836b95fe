"""Orders of tiles: the very text of a kernel, read as Python."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir.targets.cuda.grid.raster import BANDS, PATCHES, declare_place, patches_fit, run_of
from ir.targets.cuda.text.writer import Writer

SIDES = st.integers(2, 36)


def order(raster: str, rows: int, columns: int) -> list[tuple[int, int]]:
    """Places of all tiles in turn. Numbers are never negative, so `//` divides as C does."""
    w = Writer()
    names = declare_place(w, raster, "tile", rows, columns)
    text = w.text.replace("/", "//")
    parts = [part for line in text.split(";") for part in split_declarations(line)]
    code = compile("\n".join(parts), raster, "exec")
    found = []
    for tile in range(rows * columns):
        scope: dict[str, int] = {"tile": tile}
        exec(code, {"min": min}, scope)
        found.append((scope[names[0]], scope[names[1]]))
    return found


def split_declarations(line: str) -> list[str]:
    """`const i32 a = x, b = y` as `a = x` and `b = y`."""
    body = line.strip().removeprefix("const i32 ")
    return [part.strip() for part in re.split(r",(?![^(]*\))", body) if part.strip()]


@given(st.sampled_from([*BANDS, *PATCHES]), SIDES, SIDES)
def test_every_tile_comes_once(raster: str, rows: int, columns: int) -> None:
    found = order(raster, rows, columns)
    assert sorted(found) == [(row, column) for row in range(rows) for column in range(columns)]


@pytest.mark.parametrize("raster", PATCHES)
def test_patches_that_follow_each_other_share_a_side(raster: str) -> None:
    height, width = PATCHES[raster]
    found = order(raster, 2 * height, 3 * width)
    size = height * width
    patches = [found[start : start + size] for start in range(0, len(found), size)]
    for patch in patches:
        rows, columns = zip(*patch, strict=True)
        assert (len(set(rows)), len(set(columns))) == (height, width)
    for one, other in pairwise(patches):
        assert any({p[side] for p in one} == {p[side] for p in other} for side in (0, 1))


def test_a_patch_is_taken_line_by_line_and_the_next_one_upwards() -> None:
    found = order("patch8x8", 16, 24)
    assert found[:9] == [*((0, column) for column in range(8)), (1, 0)]
    assert found[64] == (7, 8)
    assert found[192] == (8, 23)


def test_patches_are_offered_where_they_are_orders_of_their_own() -> None:
    """No two of them, and none of the bands, number the tiles of a grid alike."""
    for rows in (2, 4, 5, 8, 9, 16, 17, 40):
        for columns in (2, 4, 5, 8, 9, 16, 17, 40):
            sides = np.array([rows]), np.array([columns])
            offered = [
                name for name in PATCHES
                if patches_fit(lambda other, name=name: np.array([other == name]), *sides)[0]
            ]  # fmt: skip
            orders = [tuple(order(name, rows, columns)) for name in (*offered, *BANDS[:2])]
            assert len(set(orders)) == len(orders), (rows, columns)


@given(st.sampled_from([*BANDS, *PATCHES]), SIDES, SIDES)
def test_the_first_run_lies_along_one_line(raster: str, rows: int, columns: int) -> None:
    places = order(raster, rows, columns)[: run_of(raster, rows, columns) + 1]
    first, last = places[:-1], places[-1]
    shared = [n for n in (0, 1) if len({place[n] for place in first}) == 1]
    assert shared
    assert len(first) == 1 or last[shared[0]] != first[0][shared[0]]
