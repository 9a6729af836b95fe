"""Indices made of coordinates that leave their tensor are refused where programs are built."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ir import Graph, indices, maximum, minimum, operator
from ir.axes import Axis
from ir.errors import ProgramError
from ir.outside import refuse_outside
from ir.tiles import Tile

Making = Callable[[Graph, Axis, int], Tile]


def read(make: Making, n: int, extent: int, fill: float | None = None) -> None:
    @operator
    def reading(g: Graph) -> None:
        x = g.axis("x", n)
        g.output("Y", g.tensor("T", (extent,), "f32", fill=fill)[make(g, x, n)], "f32")

    reading.build()


INSIDE: dict[str, tuple[Making, int, int]] = {
    "halves": (lambda g, x, n: g.iota(x) // 2, 8, 4),
    "kept": (lambda g, x, n: minimum(g.iota(x) + 1, n - 1), 9, 9),
    "wrapped": (lambda g, x, n: (g.iota(x) - 3) % n, 9, 9),
    "long": (lambda g, x, n: maximum(g.iota(x) - 5, 0), 1 << 22, 1 << 22),
    "data": (lambda g, x, n: g.input("at", (x,), "i32", values=indices(4)) + g.iota(x), 9, 4),
}
OUTSIDE: dict[str, tuple[Making, int, int, str]] = {
    "shifted": (lambda g, x, n: g.iota(x) + 1, 9, 9, r"spans 1\.\.9, the extent is 9"),
    "halves": (lambda g, x, n: g.iota(x) // 2, 9, 4, r"spans 0\.\.4, the extent is 4"),
    "before": (lambda g, x, n: g.iota(x) * g.iota(x) - 1, 3, 9, r"spans -1\.\.3"),
    "long": (lambda g, x, n: g.iota(x) + 1, 1 << 22, 1 << 22, r"the extent is 4194304"),
}


@pytest.mark.parametrize("name", INSIDE)
def test_what_is_inside_is_read(name: str) -> None:
    read(*INSIDE[name])


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_outside_is_refused_in_one_line(name: str) -> None:
    make, n, extent, said = OUTSIDE[name]
    with pytest.raises(ProgramError, match=said) as refused:
        read(make, n, extent)
    assert "\n" not in str(refused.value)
    read(make, n, extent, fill=0)


def read_tile(make: Making, n: int, extent: int, fill: float | None = None) -> None:
    g = Graph("reading")
    x, t = g.axes(x=n, t=extent)
    tile = g.input("T", (t,), "f32") * 2.0
    g.output("Y", tile.at(t=make(g, x, n), fill=fill), "f32")
    refuse_outside(g.program())


@pytest.mark.parametrize("name", INSIDE)
def test_computed_tiles_are_read_inside_as_well(name: str) -> None:
    read_tile(*INSIDE[name])


@pytest.mark.parametrize("name", OUTSIDE)
def test_computed_tiles_are_not_read_outside(name: str) -> None:
    make, n, extent, said = OUTSIDE[name]
    with pytest.raises(ProgramError, match=said):
        read_tile(make, n, extent)
    read_tile(make, n, extent, fill=0)
