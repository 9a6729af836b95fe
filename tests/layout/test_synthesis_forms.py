"""Problems and solutions as plain data: round trips, determinism, and what solutions say."""

from __future__ import annotations

import json

import pytest

from explorer.layouts.explain import explain
from ir.layout.layout import Layout
from ir.layout.swizzle import parse
from ir.layout.synthesis import (
    ConvertPlan,
    CopyPlan,
    GemmPlan,
    TileProgram,
    synthesise,
)
from ir.layout.synthesis.digits import radices, text, thread_digits
from tests.layout.catalogue import Gemm, attention, folding, normalisation, packed_weights
from tests.layout.plain import as_data

PROGRAMS = (
    Gemm("bf16", 64, 64, 64, "wgmma").program(),
    Gemm("f16", 64, 32, 32, "mma", epilogue="staged").program(),
    attention("e4m3", "mma", 64, 64, 64, 128),
    packed_weights("mma", 64, 32, 128, 128),
    normalisation(16, 512, 128),
    folding("max", "n", 4, 1024, 128),
)
IDS = [program.name for program in PROGRAMS]


@pytest.mark.parametrize("program", PROGRAMS, ids=IDS)
def test_solutions_repeat_to_the_byte(program: TileProgram) -> None:
    first, second = synthesise(program, limit=4), synthesise(program, limit=4)
    written = [json.dumps(as_data(solution)) for solution in first]
    assert written == [json.dumps(as_data(solution)) for solution in second]


@pytest.mark.parametrize("program", PROGRAMS, ids=IDS)
def test_solutions_are_ranked_and_differ(program: TileProgram) -> None:
    solutions = synthesise(program, limit=8)
    assert [one.cycles for one in solutions] == sorted(one.cycles for one in solutions)
    assert len({(one.tiles, one.steps) for one in solutions}) == len(solutions)


@pytest.mark.parametrize("program", PROGRAMS, ids=IDS)
def test_a_smaller_limit_gives_the_head_of_the_list(program: TileProgram) -> None:
    assert synthesise(program, limit=1)[0].cycles == synthesise(program, limit=8)[0].cycles


@pytest.mark.parametrize("program", PROGRAMS, ids=IDS)
def test_every_layout_text_is_in_the_library_s_own_form(program: TileProgram) -> None:
    solution = synthesise(program, limit=1)[0]
    for tile in solution.tiles:
        assert parse(tile.layout).size >= 1
        if tile.scope == "register":
            assert str(Layout.parse(tile.layout)) == tile.layout
    for step in solution.steps:
        if isinstance(step, CopyPlan):
            for written in (step.values, step.source_addresses, step.target_addresses):
                assert not written or str(Layout.parse(written)) == written


def test_the_explanation_tells_who_decided_each_tile_and_what_was_refused() -> None:
    program = Gemm("bf16", 64, 64, 64, "wgmma", pitch=4100).program()
    solution = synthesise(program, limit=1)[0]
    told = explain(solution)
    for tile in solution.tiles:
        assert f"\n{tile.name}: " in told
    for needed in ("stride of 4100 elements = 8200 B", "no multiple of 16 B", "instead of TMA"):
        assert needed in told
    assert explain(solution) == explain(synthesise(program, limit=1)[0])


def test_steps_cover_the_program_in_order() -> None:
    for program in PROGRAMS:
        solution = synthesise(program, limit=1)[0]
        done = [step.op for step in solution.steps if not isinstance(step, ConvertPlan)]
        assert done == list(range(len(program.ops)))
        gemms = [step.op for step in solution.steps if isinstance(step, GemmPlan)]
        assert gemms == [at for at, op in enumerate(program.ops) if op.kind == "gemm"]


@pytest.mark.parametrize(
    ("extent", "outer", "due"),
    [
        (1, (), ()),
        (64, (), (2,) * 6),
        (24, (), (2, 2, 2, 3)),
        (216, (3,), (2, 2, 2, 3, 3, 3)),
        (168, (3,), (2, 2, 2, 7, 3)),
        (7, (), (7,)),
    ],
)
def test_digits_multiply_to_the_extent(
    extent: int, outer: tuple[int, ...], due: tuple[int, ...]
) -> None:
    assert radices(extent, outer) == due


def test_thread_digits_count_lanes_then_warps() -> None:
    assert thread_digits(384) == (
        (1, 2), (2, 2), (4, 2), (8, 2), (16, 2), (32, 2), (64, 2), (128, 3),
    )  # fmt: skip


def test_text_merges_modes_that_continue() -> None:
    assert text([(2, 1), (2, 2), (2, 8)], [(2, 0), (2, 0)]) == "((4,2),4):((1,8),0)"
    assert text([], [(1, 5)]) == "(1,1):(0,0)"
