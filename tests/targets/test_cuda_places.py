"""Places of one row that a tile tells: several loads look them up by one access."""

from __future__ import annotations

import pytest

from ir import Graph, cast, exp, indices, maximum, reduce
from ir.program import Program
from ir.targets.cuda.layouts.access import Access, Dimension
from ir.targets.cuda.layouts.windows import alike, places_of
from tests.cuda.run import needs_compiler
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.formed import kernel_problems
from tests.targets.test_cuda_windows import pinned


def neighbours(
    row: int, places: tuple[int, ...], dtype: str = "f32", fill: float | None = None
) -> Program:
    """Sums over listed points of how near they are, and what they carry at some places of a row."""
    g = Graph("neighbours")
    i, k = g.axes(i=37, k=6)
    p = g.tensor("P", (40, row), dtype, fill=fill)
    listed = g.input("at", (i, k), "i32", values=indices(40))
    at = listed if fill is None else listed * 2 - 9  # some of them outside
    own = g.input("X", (i,), "f32")
    far = sum((cast(p[at, place], "f32") - own) * (place + 1) for place in places)
    g.output("Y", reduce("sum", exp(-maximum(far * far, 0.1)), over=k), "f32", (i,))
    return g.program()


def accesses(dtype: str, extent: int, constants: tuple[int, ...]) -> tuple[Access, ...]:
    row = Dimension((), 0, 0, extent, 64)
    return tuple(
        Access("P", dtype, (row, Dimension((), constant, None, 1, extent)))
        for constant in constants
    )


@pytest.mark.parametrize(
    ("dtype", "extent", "constants", "found"),
    [
        ("f32", 4, (0, 1, 2), [(0, 4)]),
        ("f32", 4, (2, 3), [(2, 2)]),
        ("f32", 8, (0, 1, 2, 3, 4, 6), [(0, 4), (4, 1), (6, 1)]),
        ("f32", 3, (0, 1, 2), [(0, 1), (1, 1), (2, 1)]),  # rows begin anywhere
        ("bf16", 8, (0, 1, 2, 3, 4), [(0, 8)]),
        ("bf16", 8, (0, 5), [(0, 1), (5, 1)]),
        ("f64", 4, (0, 1), [(0, 1), (1, 1)]),
        ("u8", 4, (0, 1, 2), [(0, 4)]),
        ("u8", 2, (0, 1), [(0, 1), (1, 1)]),  # fewer bytes than a word
    ],
)
def test_neighbours_of_which_most_are_wanted_are_one_access(
    dtype: str, extent: int, constants: tuple[int, ...], found: list[tuple[int, int]]
) -> None:
    assert places_of(accesses(dtype, extent, constants)) == found


def test_places_of_a_row_are_read_by_one_access() -> None:
    program = neighbours(4, (0, 1, 2, 3))
    assert [len(group) for group in alike(program)].count(4) == 1
    text = BACKEND.lower(program, pinned(program, {"ahead": 0}), HARDWARE).text("cuda")
    assert text.split("//@ kernel")[1].count("tw_load_16(") == 1


@needs_compiler
@pytest.mark.parametrize(
    "program",
    [
        neighbours(4, (0, 1, 2, 3)),
        neighbours(4, (3, 1)),
        neighbours(3, (0, 1, 2)),
        neighbours(8, (0, 2, 1, 5), "bf16"),
        neighbours(4, (0, 1, 2), "f32", 0.5),
        neighbours(8, (1, 2, 3, 7), "u8", 3),
    ],
)
def test_kernels_of_it_are_right(program: Program) -> None:
    assert not kernel_problems(program)
