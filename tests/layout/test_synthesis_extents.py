"""Extents that threads do not divide: spread over all of them, guarded at the edge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from explorer.layouts.explain import explain
from ir.layout.errors import LayoutError
from ir.layout.synthesis import CopyPlan, ReducePlan, Solution, Tile, TileProgram, synthesise
from ir.layout.synthesis.extents import extended, vector_points
from tests.layout.catalogue import Gemm, folding, held, normalisation, op, outer
from tests.layout.checker.check import check
from tests.layout.checker.findings import Kind
from tests.layout.plain import as_data


def softmax(rows: int, columns: int, threads: int) -> TileProgram:
    shape = {"m": rows, "n": columns}
    tiles = (
        outer("x_g", "f32", shape, "n"), held("x", "f32", **shape), held("top", "f32", m=rows),
        held("e", "f32", **shape), held("total", "f32", m=rows), held("y", "f32", **shape),
        outer("y_g", "f32", shape, "n"),
    )  # fmt: skip
    steps = (
        op("copy", "x_g", "x"),
        op("reduce", "x", "top", axis="n", fn="max"),
        op("map", "x top", "e", expression="exp(x - top)"),
        op("reduce", "e", "total", axis="n", fn="sum"),
        op("map", "e total", "y", expression="e / total"),
        op("copy", "y", "y_g"),
    )
    return TileProgram(f"softmax_{rows}x{columns}_{threads}", threads, tiles, steps)


def row(columns: int, dtype: str, threads: int) -> TileProgram:
    tiles = (
        outer("x_g", dtype, {"n": columns}, "n"), held("x", dtype, n=columns),
        outer("y_g", dtype, {"n": columns}, "n"),
    )  # fmt: skip
    return TileProgram("row", threads, tiles, (op("copy", "x_g", "x"), op("copy", "x", "y_g")))


def copies(solution: Solution) -> Iterator[CopyPlan]:
    return (step for step in solution.steps if isinstance(step, CopyPlan))


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_a_row_is_loaded_once(dtype: str) -> None:
    """Threads had copies of the elements where their number did not divide them."""
    solution = synthesise(row(2880, dtype, 256), limit=1)[0]
    assert not solution.tile("x").replicated
    for copy in copies(solution):
        assert copy.bits == 128
        assert copy.issues == -(-2880 // (256 * copy.elements))


@pytest.mark.parametrize(
    ("rows", "columns", "threads"), [(4, 1000, 128), (3, 1000, 96), (1, 5000, 256)]
)
def test_softmax_of_odd_rows_fits_registers(rows: int, columns: int, threads: int) -> None:
    program = softmax(rows, columns, threads)
    solution = synthesise(program, limit=1)[0]
    assert not solution.tile("x").replicated
    assert {copy.bits for copy in copies(solution)} == {128}
    assert "extension" in {reason.code for reason in solution.reasons}
    assert f"{columns} points on axis n are spread as" in explain(solution)


def findings(program: TileProgram, solution: Solution) -> list[str]:
    """What is wrong, but for sectors, which are counted over the room beyond the edge too."""
    report = check(program, as_data(solution))
    return [str(one) for one in report.findings if one.kind is not Kind.CONFLICTS]


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([softmax, normalisation]),
    st.integers(1, 5),
    st.integers(1, 1300),
    st.sampled_from([32, 64, 96, 128, 256]),
)
def test_any_extents_are_shared_out(form, rows: int, columns: int, threads: int) -> None:  # type: ignore[no-untyped-def]
    """Right beside the oracle, no access over the edge, no more work than a wide tile needs."""
    assume(rows * columns <= 120 * threads)  # registers
    program = form(rows, columns, threads)
    solution = synthesise(program, limit=1)[0]
    assert not findings(program, solution)
    source = program.tile("x_g")
    points = vector_points(source, "n")
    whole = 1 << max(0, -(-rows * columns // (threads * points)) - 1).bit_length()
    assert next(copies(solution)).elements <= points
    issued = next(copies(solution)).issues * next(copies(solution)).elements
    assert issued <= 4 * whole * points


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 700), st.integers(1, 40), st.sampled_from(["m", "n"]), st.booleans())
def test_reductions_over_odd_extents(columns: int, rows: int, axis: str, wide: bool) -> None:
    threads = 128 if wide else 32
    assume(rows * columns <= 120 * threads)  # registers
    program = folding("sum", axis, rows, columns, threads)
    assert not findings(program, synthesise(program, limit=1)[0])


@given(st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([256, 512, 1024]))
def test_extents_that_divide_are_as_they_were(rows: int, columns: int) -> None:
    for program in (softmax(rows, columns, 64), normalisation(rows, columns, 64)):
        assert extended(program) is program


def test_products_divide_their_extents_themselves() -> None:
    program = Gemm("bf16", 64, 24, 48, "mma").program()
    assert extended(program) is program
    assert not synthesise(program, limit=1)[0].bounds


def test_a_problem_with_bounds_is_checked() -> None:
    program = extended(softmax(4, 1000, 128))
    assert program.bounds == (("n", 1000),)
    reductions = [s for s in synthesise(program, limit=1)[0].steps if isinstance(s, ReducePlan)]
    assert len(reductions) == 2
    with pytest.raises(LayoutError, match="bound 2000 of axis n, extent 1024"):
        replace(program, bounds=(("n", 2000),))
    with pytest.raises(LayoutError, match="bound 60 of axis of a gemm k"):
        replace(Gemm("bf16", 64, 64, 64, "mma").program(), bounds=(("k", 60),))


def test_an_access_that_the_edge_would_cut_is_narrower() -> None:
    """Lines have room for whole vectors, but only 1002 of their points are there."""
    shape = (("m", 4), ("n", 1002))
    tiles = (
        Tile("x_g", "f32", shape, "global", (1024, 1)), held("x", "f32", m=4, n=1002),
        Tile("y_g", "f32", shape, "global", (1024, 1)),
    )  # fmt: skip
    program = TileProgram("lines", 128, tiles, (op("copy", "x_g", "x"), op("copy", "x", "y_g")))
    solution = synthesise(program, limit=1)[0]
    assert {copy.bits for copy in copies(solution)} == {64}
    assert not findings(program, solution)


def test_what_is_pinned_is_not_widened() -> None:
    program = row(1000, "f32", 128)
    pinned = replace(program.tile("x"), layout="((8,16),125):((1,0),8)")
    fixed = replace(program, tiles=(program.tiles[0], pinned, program.tiles[2]))
    assert extended(fixed) is fixed
