"""Steps of a loop over tiles that overlap: what they leave is what steps one by one leave."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Graph, Tile, absolute, maximum, minimum, recur, reduce, where
from ir.errors import ProgramError
from ir.inputs import drawn_inputs
from ir.phases import phases_of
from ir.plain.build import choices_of, plain_kernel, plain_kernels
from ir.plain.code import TENSOR, Array, Element, Name, PlainKernel, Write
from ir.plain.meaning import meaning
from ir.plain.pieces import Overlap, Ways
from ir.plain.windows import Windows
from ir.program import Program
from ir.registry import load_operator


def loop_of(program: Program) -> Program:
    """The phase that has the states."""
    (found,) = (phase.program for phase in phases_of(program) if phase.plain)
    return found


def windows(program: Program) -> Windows | None:
    return choices_of(loop_of(program)).windows


def alike(program: Program, overlap: Overlap, seed: int = 0) -> None:
    """By tiles and step by step, to the last bit."""
    program = loop_of(program)
    inputs = drawn_inputs(program, seed)
    wanted = meaning(plain_kernel(program), inputs, seed)
    (kernel,) = plain_kernels(program, Ways(overlap=overlap))
    found = meaning(kernel, inputs, seed)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


def grid(
    steps: int, extents: tuple[int, int], reads: tuple[tuple[int, int], ...],
    fills: tuple[float, ...],
    twice: bool = False, history: bool = False, loads: bool = False,
) -> Program:  # fmt: skip
    """A state that each step makes of itself at `reads`, and of that again (`twice`)."""
    g = Graph("grid")
    t, i, j = g.axes(t=steps, i=extents[0], j=extents[1])
    x = g.state(t, (i, j), g.input("X", (i, j), "f32"))

    def around(value: Tile) -> Tile:
        found = value * 0.5
        for number, (down, right) in enumerate(reads):
            fill = fills[number % len(fills)]
            found = found + value.at(i=i + down, j=j + right, fill=fill) * (0.25 / (number + 1))
        return found

    new = around(around(x)) if twice else around(x)
    new = where(g.coordinate(i) + 2 * g.coordinate(j) > 5, new, x)
    if loads:
        new = new * g.input("C", (i, j), "f32")
    if history:
        g.output("H", new, "f32", (t, i, j))
    g.output("Y", recur(x, new), "f32", (i, j))
    return g.program()


SHIFTS = st.tuples(st.integers(-2, 2), st.integers(-2, 2))


@settings(max_examples=6, deadline=None)
@given(
    steps=st.integers(2, 6),
    extents=st.tuples(st.integers(1, 19), st.integers(1, 19)),
    reads=st.lists(SHIFTS, min_size=1, max_size=3),
    fills=st.sampled_from([(0.0,), (1.0,), (0.0, 2.0)]),
    ways=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    overlap=st.tuples(st.integers(2, 4), st.sampled_from([(16, 16), (20, 16), (16, 24)]),
                      st.sampled_from([1, 4]), st.sampled_from([1, 2])),
)  # fmt: skip
def test_drawn_stencils(
    steps: int, extents: tuple[int, int], reads: list[tuple[int, int]], fills: tuple[float, ...],
    ways: tuple[bool, bool, bool], overlap: tuple[int, tuple[int, int], int, int],
) -> None:  # fmt: skip
    program = grid(steps, extents, tuple(reads), fills, *ways)
    found = windows(program)
    if found is None:
        assert not {*reads} - {(0, 0)}
        return
    count, tile, rows, columns = overlap
    sizes = dict(zip(("i", "j"), tile, strict=True))
    own = tuple(sizes[axis] for axis in found.axes)
    while count > 1 and min(found.own(own, count)) < 1:
        count -= 1
    if count > 1:
        alike(program, Overlap(count, own, rows, columns))


@pytest.mark.parametrize(
    ("name", "extents", "overlap"),
    [
        ("diffusion", {"m": 29, "n": 33, "steps": 5}, Overlap(3, (8, 16), 4, 4)),
        ("diffusion", {"m": 29, "n": 33, "steps": 4}, Overlap(4, (16, 8))),
        (
            "life",
            {"m": 29, "n": 33, "steps": 5},
            Overlap(2, (16, 8), 4),
        ),  # what it keeps has a margin
        ("life", {"m": 19, "n": 23, "steps": 6}, Overlap(3, (16, 16), 1, 2)),
        ("waves", {"n": 67, "steps": 9}, Overlap(4, (16,), 1, 4)),
    ],
)
def test_operators_by_tiles(name: str, extents: dict[str, int], overlap: Overlap) -> None:
    alike(load_operator(name).build(**extents), overlap)


def test_filters_of_drawn_taps_and_channels_that_mix() -> None:
    g = Graph("taps")
    t, i, j, a, k, m = g.axes(t=5, i=17, j=11, a=5, k=2, m=2)
    u = g.state(t, (k, i, j), g.input("U", (k, i, j), "f32"))
    taps, mix = g.input("W", (a,), "f32"), g.input("M", (k, m), "f32")
    along = reduce("sum", u.at(i=i + a - 2, fill=0) * taps, over=(a,))
    mixed = reduce("sum", u.at(k=m, j=j - 1, fill=0) * mix, over=(m,))
    g.output("V", recur(u, along * 0.1 + mixed * 0.2), "f32", (k, i, j))
    program = g.program()
    found = windows(program)
    assert found is not None
    assert found.axes == ("i", "j")
    assert found.margins == ((2, 2), (1, 0))
    alike(program, Overlap(2, (16, 8), 4, 2))


def test_points_that_have_nothing_to_do_with_each_other_stay_points() -> None:
    g = Graph("strings")
    t, b, i = g.axes(t=6, b=3, i=50)
    u = g.state(t, (b, i), g.input("U", (b, i), "f32"))
    g.output("V", recur(u, u.at(i=i - 2, fill=1) * 0.5 + u.at(i=i + 1, fill=0)), "f32", (b, i))
    program = g.program()
    found = windows(program)
    assert found is not None
    assert (found.axes, found.margins) == (("i",), ((2, 1),))
    (kernel,) = plain_kernels(loop_of(program), Ways(overlap=Overlap(2, (16,))))
    own = found.own((16,), 2)
    assert own == (13,)
    assert sorted(extent for _, extent in kernel.points) == [3, 4]
    alike(program, Overlap(2, (16,)))


def _ends(kind: str, m: int, n: int, steps: int) -> Program:
    """A grid whose ends are beside each other, or repeated, or mirrored with what lies there."""
    g = Graph("ends")
    t, i, j = g.axes(t=steps, i=m, j=n)
    x = g.state(t, (i, j), g.input("X", (i, j), "f32"))
    new = x * 0.25
    for axis, extent in ((i, m), (j, n)):
        here = g.coordinate(axis)
        for step in (-1, 1):
            if kind == "ring":
                place = (here + (extent + step)) % extent
            elif kind == "repeated":
                place = minimum(maximum(here + step, 0), extent - 1)
            else:
                place = (extent - 1) - absolute((extent - 1) - absolute(here + 2 * step))
            new = new + x.at({axis: place}) * (0.1 * step + 0.3)
    g.output("Y", recur(x, new * g.input("C", (i, j), "f32")), "f32", (i, j))
    return g.program()


@pytest.mark.parametrize("kind", ["ring", "repeated", "mirrored"])
@pytest.mark.parametrize(
    ("extents", "overlap"),
    [
        ((21, 19), Overlap(2, (8, 8), 4, 2)),
        ((5, 7), Overlap(2, (16, 16))),
        ((33, 9), Overlap(3, (16, 16))),
    ],
)
def test_ends_of_a_grid(kind: str, extents: tuple[int, int], overlap: Overlap) -> None:
    program = _ends(kind, *extents, 5)
    found = windows(program)
    assert found is not None
    assert found.axes == ("i", "j")
    assert found.rings == ({"i", "j"} if kind == "ring" else set())
    if kind == "mirrored":
        overlap = Overlap(2, (24, 24), overlap.rows, overlap.columns)
    alike(program, overlap)


def _refused(step: str) -> Program:
    """A loop whose steps need more than near points, or may do harm at points that are wrong."""
    g = Graph("refused")
    t, i, j, d = g.axes(t=4, i=9, j=9, d=9)
    kind = "i32" if step == "divided" else "f32"
    x = g.state(t, (i, j), g.input("X", (i, j), kind))
    new = x * 2
    if step == "turned":
        new = x.at(i=i - 1, fill=0) + x.at(i=j, j=i)
    elif step == "summed":
        new = x.at(i=i - 1, fill=0) + reduce("sum", x.at(i=d), over=(d,))
    elif step == "divided":
        new = x % (x.at(i=i - 1, fill=1) + 1)
    g.output("Y", recur(x, new), kind, (i, j))
    return g.program()


@pytest.mark.parametrize("step", ["turned", "summed", "divided", "alone"])
def test_loops_that_have_no_tiles(step: str) -> None:
    found = windows(_refused(step))
    assert found is None or "i" not in found.axes


def test_tiles_of_a_loop_that_has_none_are_refused() -> None:
    program = loop_of(_refused("alone"))
    with pytest.raises(ProgramError, match="near points"):
        plain_kernels(program, Ways(overlap=Overlap(2, (8, 8))))


def test_what_is_right_of_a_tile_and_the_room_it_takes() -> None:
    found = windows(load_operator("life").build(m=64, n=64, steps=8))
    assert found is not None
    assert (found.margins, found.kept) == (((1, 1), (1, 1)), ((0, 0), (1, 1)))
    assert found.own((32, 32), 4) == (32 - 6, 32 - 6 - 2)
    sides = found.sides((32, 32), 4)
    assert [(side.low, side.wide, side.first) for side in sides.values()] == [
        (1, 34, 4),
        (4, 40, 8),
    ]
    assert found.room((32, 32)) == found.bytes * 34 * 40


def _passing(rounds: int, reads: int) -> PlainKernel:
    """Each round, a point writes what another one left in the round before."""
    i, number = Name("i"), Name("round")
    here = Array("A", "f32", 4, TENSOR, True)
    program = load_operator("waves").build(n=4, steps=2)
    spec = next(s for s in program.tensors if s.role == "output")
    value = Element("A", Name("i") if reads else i, "f32")
    body = (Write("A", i, value),)
    return PlainKernel("passing", (spec,), (here,), ((i, 4),), body, False, (number, rounds))


def test_a_round_reads_what_rounds_before_it_wrote_and_nothing_else() -> None:
    with pytest.raises(ProgramError, match="read and was not written"):
        meaning(_passing(2, 1), {})
