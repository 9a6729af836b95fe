"""Tiles read at other points of their own rows, stage after stage, by groups of threads."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Graph, Tile, cumulative, reduce
from ir.dtypes import from_float
from ir.inputs import drawn_inputs
from ir.oracle import evaluate
from ir.phases import phases_of
from ir.plain.build import plain_kernel
from ir.plain.chains import chain_of
from ir.plain.meaning import meaning
from ir.program import Program
from ir.registry import load_operator
from tests.judging import bounds_of

ROOM = 1 << 14


def judge(program: Program, room: int = ROOM, seed: int = 0) -> list[bool]:
    """Whether each phase is plain; the outputs lie where a right kernel's do."""
    given = drawn_inputs(program, seed)
    known, phases = dict(given), phases_of(program, room)
    for phase in phases:
        if phase.plain:
            known |= meaning(plain_kernel(phase.program), known, seed)
            continue
        dtypes = {spec.name: spec.dtype for spec in phase.program.outputs}
        exact = evaluate(phase.program, known)
        known |= {name: from_float(array, dtypes[name]) for name, array in exact.items()}
    for name, bounds in bounds_of(program, given).items():
        verdict = bounds.judge(known[name])
        assert verdict.right, f"{name}: {verdict.detail}"
    return [phase.plain for phase in phases]


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize(("name", "m", "n"), [
    ("fft", 3, 16), ("fft", 1, 8), ("hadamard_steps", 5, 32), ("hadamard_steps", 2, 4),
])  # fmt: skip
def test_butterflies_are_one_kernel(name: str, m: int, n: int, seed: int) -> None:
    program = load_operator(name).build(m=m, n=n)
    assert judge(program, seed=seed) == [True]
    assert len(phases_of(program)) == int(math.log2(n))


def test_rows_that_have_no_room_stay_apart() -> None:
    """Two arrays take turns, in both of which a step's values are."""
    program = load_operator("hadamard_steps").build(m=5, n=32)
    (phase,) = phases_of(program, ROOM)
    chain = chain_of(phase.program)
    assert chain.points == ("m",)
    assert chain.bytes == 2 * 32 * 4
    assert len(phases_of(program, chain.bytes)) == 1
    assert len(phases_of(program, chain.bytes - 1)) == 3  # two steps need one array
    assert len(phases_of(program)) == 5


def smoothed(i: int, j: int, steps: int, other: str = "", dtype: str = "f32") -> Program:
    """Neighbours added up again and again; `other`: what else there is."""
    g = Graph("smoothed")
    a, b = g.axes(i=i, j=j)
    x: Tile = g.input("x", (a, b), dtype) * 0.5
    first = x
    for _ in range(steps):
        x = x + x.at(j=b - 1, fill=0) * 0.25 + x.at(j=j - 1 - b) * 0.125
    if other == "rows":
        x = x + x.at(i=i - 1 - a)
    if other == "sum":
        x = x - reduce("sum", x, over=b) + x.at(j=b + 1, fill=1)
    if other == "early":
        x = x + first
    if other == "scan":
        x = cumulative("sum", x, b) + x
    g.output("y", x, dtype, (a, b))
    if other == "turned":
        g.output("z", x.at(j=j - 1 - b), "f32", (b, a))
    return g.program()


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from((1, 2, 3, 7)), st.sampled_from((1, 2, 5, 13)), st.integers(2, 4),
    st.sampled_from(("", "early", "turned", "rows", "sum", "scan")),
    st.sampled_from(("f32", "bf16", "f64")), st.integers(0, 5),
)  # fmt: skip
def test_any_chain_means_the_same(
    i: int, j: int, steps: int, other: str, dtype: str, seed: int
) -> None:
    judge(smoothed(i, j, steps, other, dtype), seed=seed)


@pytest.mark.parametrize(("other", "plain"), [
    ("", [True]), ("early", [True]), ("turned", [True]), ("scan", [True, True]),
])  # fmt: skip
def test_where_chains_end(other: str, plain: list[bool]) -> None:
    """Before a scan; what is read from another row needs it whole, and is a phase behind."""
    assert judge(smoothed(3, 7, 3, other)) == plain


def test_what_is_read_in_another_row_ends_a_chain() -> None:
    program = smoothed(3, 7, 3, "rows")
    assert judge(program) == [True, False]


def test_a_grid_has_no_rows() -> None:
    g = Graph("grid")
    i, j = g.axes(i=5, j=6)
    x: Tile = g.input("x", (i, j), "f32")
    for _ in range(3):
        x = x.at(i=4 - i) + x.at(j=5 - j)
    g.output("y", x)
    assert not any(phase.plain for phase in phases_of(g.program(), ROOM))


def test_values_of_a_stage_are_written_together() -> None:
    """Sines and cosines of one angle are computed once for both parts of a number."""
    program = load_operator("fft").build(m=3, n=64)
    (phase,) = phases_of(program, ROOM)
    chain = chain_of(phase.program)
    assert [len(stage) for stage in chain.stages] == [2] * 6
    assert len(chain.sizes) == 4
    kernel = plain_kernel(phase.program)
    assert len(kernel.body) == 6
    assert np.prod([extent for _, extent in kernel.points]) == 3
