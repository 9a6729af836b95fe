"""Kernels take their layouts from the synthesis: another solution is another kernel, as right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir.errors import Refusal
from ir.inputs import random_inputs
from ir.layout.algebra import coalesce, from_modes
from ir.layout.expressions import evaluated, scaled, variable
from ir.layout.layout import concat
from ir.layout.swizzle import PLAIN, Swizzle
from ir.layout.synthesis import Pins, Solution, Tile, TileOp, TileProgram, synthesise
from ir.program import Program
from ir.schedule import Schedule
from ir.targets.cuda.launch import Launch, Parameter, plan_json
from ir.targets.cuda.layouts import mma_operands, synthesised
from ir.targets.cuda.layouts.mma_synthesised import FragmentRead, fragment_read
from ir.targets.cuda.layouts.panels import Panels, panels_of
from ir.targets.cuda.layouts.placed import ThreadValues, thread_values
from ir.targets.cuda.layouts.raw_reads import RawRead, raw_read
from ir.targets.cuda.layouts.staging import Staging, staging_of
from ir.targets.cuda.layouts.synthesised import LAYOUTS, block_layouts
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built, drawn
from tests.targets.test_cuda_emulated import problems

ACCUMULATOR = thread_values("((4,8,4),(2,2,32)):((128,1,16),(64,8,512))", (64, 256))
FRAGMENT = thread_values("((4,8,4),(2,2,16)):((128,1,16),(64,8,512))", (64, 128))
emulated = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")

PROGRAMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("matmul", {"m": 130, "n": 96, "k": 136, "dtype": "bf16"}),
    ("matmul", {"m": 128, "n": 200, "k": 128, "dtype": "f16", "ta": True, "tb": True}),
    ("matmul", {"m": 128, "n": 64, "k": 128, "dtype": "i8", "tb": True}),
    ("gated_mlp", {"m": 64, "n": 136, "k": 128, "dtype": "bf16", "tb": True}),
    ("attention", {"b": 1, "heads": 2, "sq": 130, "d": 96, "dtype": "bf16"}),
    ("conv2d", {"n": 2, "h": 14, "w": 14, "c": 32, "f": 48, "padding": 1, "dtype": "bf16"}),
)


def body(program: Program, schedule: Schedule) -> str:
    """A kernel's text without its comments, which name the schedule."""
    text = BACKEND.lower(program, schedule, HARDWARE).text("cuda")
    return "\n".join(line for line in text.splitlines() if not line.startswith("//"))


def check(program: Program, schedule: Schedule) -> None:
    """The kernel means its program, in two of the emulator's orders."""
    inputs = random_inputs(program, np.random.default_rng(0))
    kernel, wanted = BACKEND.lower(program, schedule, HARDWARE), bounds_of(program, inputs)
    for mode in (0, 9):
        assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


@pytest.fixture
def afresh() -> Iterator[None]:
    """Nothing that is known of one synthesis is left to another."""
    synthesised._layouts.cache_clear()
    yield
    synthesised._layouts.cache_clear()


# -- wgmma


@emulated
def test_another_solution_is_another_kernel_and_as_right(
    monkeypatch: pytest.MonkeyPatch, afresh: None
) -> None:
    program = built("matmul", {"m": 128, "n": 128, "k": 128, "dtype": "bf16"})
    schedule = next(s for s in drawn(program, 0, 12, 0, "wgmma") if s["tile.k"] == 64)
    first = body(program, schedule)

    def worst(problem: TileProgram, limit: int) -> tuple[Solution, ...]:
        found = synthesise(problem, 6)
        narrow = [s for s in found if "S(2,3,3)" in s.tile("shared0").layout]
        return tuple(narrow)[:limit]

    synthesised._layouts.cache_clear()
    monkeypatch.setattr(synthesised, "synthesise", worst)
    assert body(program, schedule) != first
    check(program, schedule)


@pytest.mark.parametrize(("name", "arguments"), PROGRAMS)
@pytest.mark.alike(2)
def test_the_closed_form_counts_the_layouts(name: str, arguments: dict[str, Any]) -> None:
    """A number is legal where there are so many, and each is a kernel of its own."""
    program = built(name, arguments)
    space = BACKEND.space(program, HARDWARE)
    for schedule in drawn(program, 5, 2, 6, "wgmma"):
        values = {**schedule.as_dict(), "source": "shared"}
        if "source" not in space.names:
            del values["source"]
        texts = set()
        for number in LAYOUTS:
            one = Schedule.of("cuda", {**values, "layout": number})
            refusal = space.refusal(one)
            if refusal is None:
                texts.add(body(program, one))
                continue
            assert refusal.constraint == "layout"
            with pytest.raises(Refusal, match=f"layout: solution {number}"):
                BACKEND.lower(program, one, HARDWARE)
        legal = [
            n
            for n in LAYOUTS
            if space.refusal(Schedule.of("cuda", {**values, "layout": n})) is None
        ]
        assert len(texts) == len(legal) >= 1


@emulated
@pytest.mark.parametrize("number", [1, 2])
def test_layouts_that_a_schedule_asks_for_are_right(number: int) -> None:
    for name, arguments in PROGRAMS[:2]:
        program = built(name, arguments)
        space = BACKEND.space(program, HARDWARE).pin(engine="wgmma", layout=number)
        for row in space.sample(np.random.default_rng(number), 2):
            check(program, space.schedule(row))


def test_lines_across_the_sum_are_no_wider_than_they_need_be() -> None:
    """A tile of 96 columns has lines of 32; one of 40 keeps a padded line of 64."""
    program = built("matmul", {"m": 256, "n": 960, "k": 256, "dtype": "bf16"})
    space = BACKEND.space(program, HARDWARE).pin({
        "engine": "wgmma", "tile.m": 128, "tile.k": 64, "swap": False, "layout": 0,
        "cluster": "1x1", "partition": "rows",
    })  # fmt: skip
    for columns, box in ((96, "[32,64]"), (128, "[64,64]"), (40, "[64,64]")):
        row = space.pin({"tile.n": columns}).sample(np.random.default_rng(0), 1)[0]
        launch = BACKEND.lower(program, space.schedule(row), HARDWARE).text("launch")
        b = launch[launch.index('"argument":"B"') :]
        assert f'"box":{box}' in b[: b.index("}")]


def test_a_schedule_from_before_the_choice_means_the_best_layouts() -> None:
    program = built("matmul", {"m": 256, "n": 256, "k": 256, "dtype": "bf16"})
    (schedule,) = drawn(program, 0, 1, 0, "wgmma")
    values = schedule.as_dict()
    before = Schedule.of("cuda", {k: v for k, v in values.items() if k != "layout"})
    assert body(program, before) == body(program, Schedule.of("cuda", {**values, "layout": 0}))


def test_what_the_synthesis_refuses_is_a_refusal_in_its_words() -> None:
    axes = (("m", 64), ("k", 64))
    problem = TileProgram(
        "odd", 128,
        (Tile("g", "bf16", axes, "global", (100, 1)), Tile("s", "bf16", axes, "shared")),
        (TileOp("copy", ("g",), ("s",)),), Pins(((0, "tma.load"),)),
    )  # fmt: skip
    with pytest.raises(Refusal, match=r"layouts: tma-stride: .*200 B.*no multiple of 16 B"):
        block_layouts(problem, 0)


def test_a_layout_that_is_no_row_of_panels_has_no_lines() -> None:
    tile = Tile("s", "bf16", (("m", 64), ("k", 128)), "shared")
    lines = panels_of(tile, "S(3,3,3) o 0 o (64,(64,2)):(64,(1,4096))")
    assert lines == Panels(128, 1, 2, Swizzle(3, 4, 3))
    assert lines.canonical
    assert panels_of(tile, "S(2,3,3) o 0 o ((32,2),128):((1,4096),32)") == Panels(
        64, 0, 2, Swizzle(2, 4, 3)
    )
    wide = panels_of(tile, "S(3,3,4) o 0 o (64,128):(128,1)")
    assert wide is not None
    assert not wide.canonical
    assert panels_of(tile, "((32,2),128):((2,1),64)") is None


# -- outputs on their way


@pytest.mark.parametrize(("dtype", "columns", "turned", "found"), [
    ("bf16", 64, False, Staging(128, 128, 1, "stmatrix.x4")),
    ("bf16", 32, False, Staging(64, 64, 1, "stmatrix.x4")),
    ("bf16", 24, False, Staging(48, 0, 1, "stmatrix.x2")),
    ("bf16", 48, False, Staging(128, 128, 1, "stmatrix.x4")),  # 96 bytes: no swizzle, padded
    ("bf16", 256, True, Staging(128, 128, 1, "stmatrix.x4.trans")),
    ("f32", 32, False, Staging(128, 128, 1, "st.64")),
    ("f32", 96, True, Staging(128, 128, 2, "st.32")),
])  # fmt: skip
def test_panels_of_outputs(dtype: str, columns: int, turned: bool, found: Staging) -> None:
    assert staging_of(ACCUMULATOR, dtype, columns, turned) == found


@pytest.mark.parametrize("line", [128, 64, 32])
def test_chunks_are_exchanged_as_tma_reads_them(line: int) -> None:
    form, bits = Staging(line, line, 1, ""), {128: 3, 64: 2, 32: 1}[line]
    row, chunk = np.mgrid[0:64, 0 : line // 16].reshape(2, -1)
    byte = scaled(variable("chunk", line // 16), 16)
    offset = form.offset(variable("row", 64), byte, 64)
    swizzled = Swizzle(bits, 4, 3)(row * line + chunk * 16)
    assert np.array_equal(evaluated(offset, row=row, chunk=chunk), swizzled)


@emulated
@pytest.mark.parametrize("dtype", ["bf16", "i8"])
def test_wide_outputs_along_the_rows_go_by_tma(dtype: str) -> None:
    out = {"out": "f32"} if dtype == "bf16" else {}
    program = built("matmul", {"m": 72, "n": 96, "k": 128, "dtype": dtype, "tb": True, **out})
    space = BACKEND.space(program, HARDWARE).pin(engine="wgmma", swap=True, epilogue="tma")
    for row in space.sample(np.random.default_rng(1), 2):
        schedule = space.schedule(row)
        check(program, schedule)
        text = body(program, schedule)
        assert "tw_tma_store_2d" in text
        assert "tw_store_shared_4(buffer" in text


# -- operands in registers


@pytest.mark.parametrize(("dtype", "points", "apart", "inside", "found"), [
    ("i8", 128, 1, True, RawRead(128, 2)),
    ("u8", 64, 2, True, RawRead(64, 1)),  # two points of the operand in a byte
    ("u8", 64, 1, False, RawRead(64, 1)),
    ("f32", 64, 1, True, RawRead(128, 2)),
])  # fmt: skip
def test_raw_tiles(dtype: str, points: int, apart: int, inside: bool, found: RawRead) -> None:
    fragment = FRAGMENT.within(1, points * apart)
    assert raw_read(fragment, dtype, points, apart, inside) == found


def test_neighbours_that_are_one_point_are_held_together() -> None:
    """A byte has both halves of its pair: lanes keep their bytes, registers lose a digit."""
    halves = FRAGMENT.divided(1, 2)
    assert [step.size for step in halves.values] == [2, 16]
    assert [(step.axis, step.stride) for step in halves.threads] == [(1, 1), (0, 1), (0, 16)]


def test_digits_print_as_the_layout_they_were_read_from() -> None:
    text = "((4,8,4),(2,2,32)):((128,1,16),(64,8,512))"
    assert thread_values(text, (64, 256)) == ACCUMULATOR
    assert ACCUMULATOR.text((64, 256)) == text
    assert isinstance(ACCUMULATOR.within(1, 8), ThreadValues)
    assert ACCUMULATOR.within(1, 8).text((64, 8)) == "((4,8,4),(2,2)):((128,1,16),(64,8))"


# -- mma.sync


@pytest.mark.parametrize(("dtype", "inside", "width", "instruction", "swizzle"), [
    ("bf16", True, 128, "ldmatrix.x4", Swizzle(3, 4, 3)),
    ("f16", False, 64, "ldmatrix.x4.trans", Swizzle(2, 4, 3)),
    ("e4m3", True, 32, "ldmatrix.x4", Swizzle(1, 4, 3)),
    ("i8", True, 128, "ldmatrix.x4", Swizzle(3, 4, 3)),
    ("tf32", True, 128, "ldmatrix.x4", Swizzle(3, 4, 3)),
    ("tf32", False, 128, "ld.32", Swizzle(2, 5, 2)),
])  # fmt: skip
def test_fragments_are_read_without_conflicts(
    dtype: str, inside: bool, width: int, instruction: str, swizzle: Swizzle
) -> None:
    read = fragment_read(dtype, inside, width)
    assert (read.instruction, read.swizzle) == (instruction, swizzle)


@emulated
def test_another_swizzle_of_stages_is_another_kernel_and_as_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = built("matmul", {"m": 64, "n": 72, "k": 128, "dtype": "bf16"})
    schedule = drawn(program, 3, 1, 0, "mma")[0]
    first = body(program, schedule)

    def plain(dtype: str, inside: bool, width: int) -> FragmentRead:
        return replace(fragment_read(dtype, inside, width), swizzle=PLAIN)

    monkeypatch.setattr(mma_operands, "fragment_read", plain)
    assert body(program, schedule) != first
    check(program, schedule)


@given(st.permutations(range(8)), st.integers(0, 8), st.integers(0, 8))
def test_digits_are_where_the_layout_says(order: list[int], rows: int, threads: int) -> None:
    """Any order of the bits of an index, in a tile of any rows: modes may leave a column."""
    strides = [1 << bit for bit in order]
    modes = [
        coalesce(from_modes((2, stride) for stride in part))
        for part in (strides[:threads], strides[threads:])
    ]
    layout = concat(*modes)
    shape = (1 << rows, 1 << (8 - rows))
    found = thread_values(str(layout), shape)
    places = np.zeros((1, 2), dtype=int)
    for step in (*found.threads, *found.values):
        own = np.zeros((step.size, 2), dtype=int)
        own[:, step.axis] = np.arange(step.size) * step.stride
        places = (places[None, :, :] + own[:, None, :]).reshape(-1, 2)
    index = places[:, 0] + shape[0] * places[:, 1]
    assert index.tolist() == layout.offsets().tolist()


def test_a_tile_of_one_line_is_a_panel() -> None:
    tile = Tile("x", "bf16", (("m", 1), ("k", 64)), "shared")
    assert panels_of(tile, "(1,64):(0,1)") == Panels(128, 1, 1, PLAIN)
    assert panels_of(tile, "(1,64):(0,2)") is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"strides": (200,)}, "stride of 200 bytes, no multiple of 16"),
        ({"box": (64, 300)}, "box extent 300, legal are 1 to 256"),
        ({"box": (128, 64)}, "256 bytes, swizzle 128B spans 128"),
        ({"offset": 8}, "global address 8, no multiple of 16"),
        ({"dtype": "i4"}, "i4 of 4 bits"),
    ],
)
def test_a_map_that_the_driver_would_refuse_is_refused(changes: dict[str, Any], says: str) -> None:
    whole = Parameter("A", 0, "bf16", (256, 128), (512,), (64, 64), 128)
    launch = Launch("k", "", 1, 128, 0, (whole, Parameter("C")))
    assert plan_json((launch,), "sm_90a", 0, ())
    broken = replace(launch, parameters=(replace(whole, **changes),))
    with pytest.raises(Refusal, match=f"map: k, A: .*{says}"):
        plan_json((broken,), "sm_90a", 0, ())
