"""Kernels on mma.sync: where they are chosen, what they mean, what their machine code is."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from explorer.runtime.nvdisasm import disassembler
from ir.errors import MissingTarget, UsageError
from ir.inputs import random_inputs
from ir.kernel.passes import after_each
from ir.kernel.tile_kernel import TileKernel
from ir.layout.expressions import constant, evaluated, variable
from ir.target import Hardware
from ir.targets.cuda.bodies.mma_bodies import order_of
from ir.targets.cuda.build.kernels import engines_of, kernels_of, scheduled_kernels
from ir.targets.cuda.build.mma_kernel import build, passes_of
from ir.targets.cuda.layouts.mma_operands import StageTile, depth_tiles
from ir.targets.cuda.plans.mma_plan import make_mma_plan
from ir.targets.cuda.plans.sides import Side
from ir.targets.cuda.rows.hardware import known_hardware
from ir.targets.cuda.space.engines import route_of
from ir.targets.cuda.space.mma import MmaKernel
from ir.targets.cuda.text.naming import value_name
from tests.emulator.emulate import MODES, compiler
from tests.few import by_turns, draws, few
from tests.judging import bounds_of
from tests.kernel.running import values
from tests.targets.cuda_cases import BACKEND, HARDWARE, UNSEEN, built, drawn, space_of
from tests.targets.disassembly import opcodes
from tests.targets.test_cuda_emulated import QUICK, problems

A100 = known_hardware("a100")
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("matmul", {"m": 96, "n": 128, "k": 192, "dtype": "bf16"}),
    ("matmul", {"m": 72, "n": 40, "k": 128, "dtype": "f16", "tb": True}),
    ("matmul", {"m": 40, "n": 136, "k": 96, "dtype": "bf16", "ta": True}),
    ("matmul", {"m": 64, "n": 48, "k": 80, "dtype": "f16", "ta": True, "tb": True}),
    ("matmul", {"m": 33, "n": 131, "k": 71, "dtype": "bf16", "tb": True}),
    ("matmul", {"m": 3, "n": 70, "k": 600, "dtype": "bf16", "tb": True}),
    ("matmul", {"m": 48, "n": 64, "k": 128, "dtype": "i8", "tb": True, "batch": 2}),
    ("matmul", {"m": 48, "n": 90, "k": 130, "dtype": "u8"}),
    ("matmul", {"m": 40, "n": 72, "k": 64, "dtype": "tf32"}),
    ("matmul", {"m": 35, "n": 70, "k": 63, "dtype": "tf32", "ta": True, "tb": True}),
    ("matmul_bias_act", {"m": 66, "n": 72, "k": 64, "dtype": "bf16"}),
    ("gated_mlp", {"m": 64, "n": 72, "k": 64, "dtype": "bf16", "tb": True}),
    ("conv2d", {"n": 1, "h": 10, "w": 10, "c": 16, "f": 24, "padding": 1, "dtype": "bf16"}),
    (f"{UNSEEN}:packed_int4", {"m": 20, "n": 72, "k": 70}),
    (f"{UNSEEN}:grouped_int8", {"m": 20, "n": 72, "groups": 3, "group": 32}),
    (f"{UNSEEN}:masked_product", {"m": 40, "n": 72, "k": 64}),
    ("attention", {"b": 1, "heads": 2, "sq": 40, "d": 32, "dtype": "bf16", "causal": True}),
)  # fmt: skip
IDS = [f"{number}-{name.rpartition(':')[2]}" for number, (name, _) in enumerate(CASES)]
BIG: dict[str, Any] = {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16", "tb": True}


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize(
    "number", few(range(len(CASES)), (0, 2, 4, 5, 6, 7, 9, 11, 12, 13, 14, 15, 16), IDS)
)
@draws(1, 2)
@pytest.mark.alike(2)
def test_drawn_kernels_mean_their_program(number: int, count: int) -> None:
    name, arguments = CASES[number]
    program = built(name, arguments)
    inputs = random_inputs(program, np.random.default_rng(number))
    wanted = bounds_of(program, inputs)
    for turn, schedule in enumerate(drawn(program, number, 1, count, "mma", A100)):
        kernel = BACKEND.lower(program, schedule, A100)
        for mode in (QUICK[turn % 4], QUICK[(turn + 1) % 4]):
            assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("number", [4, 10, 13], ids=lambda n: IDS[n])
def test_every_order_of_completion(number: int) -> None:
    program = built(*CASES[number])
    inputs = random_inputs(program, np.random.default_rng(number))
    wanted = bounds_of(program, inputs)
    (schedule,) = drawn(program, 3, 1, 0, "mma", A100)
    kernel = BACKEND.lower(program, schedule, A100)
    for mode in range(len(MODES)):
        assert not problems(program, kernel, inputs, wanted, mode), MODES[mode]


CHOICES: tuple[dict[str, Any], ...] = (
    {"swap": True}, {"warps.depth": 4}, {"epilogue": "direct", "warps.depth": 1},
    {"fragments": 2}, {"stages": 2}, {"stages": 6, "depth": 32}, {"raster": "columns4"},
    {"split": "k:2"},
)  # fmt: skip


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("pins", few(CHOICES, (0, 1, 2, 5, 6, 7)), ids=str)
@pytest.mark.alike(2)
def test_every_choice_of_a_product(pins: dict[str, Any]) -> None:
    depth = 1024 if any("split" in name for name in pins) else 512  # a short sum is not split
    program = built("matmul", {"m": 200, "n": 264, "k": depth, "dtype": "bf16", "tb": True})
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE).pin({f"mma.{k}": v for k, v in pins.items()})
    (row,) = space.sample(np.random.default_rng(2), 1)
    schedule = space.schedule(row)
    assert schedule["engine"] == "mma"
    kernel = BACKEND.lower(program, schedule, HARDWARE)
    for mode in QUICK[::2]:
        assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("columns", [32, 64])
def test_offsets_of_a_padded_image_count_once(columns: int) -> None:
    """Lines of one row of the image: their addresses move by whole steps from one start."""
    program = built(
        "conv2d", {"n": 1, "h": 4, "w": 56, "c": 64, "f": 64, "padding": 1, "dtype": "bf16"}
    )
    pins = {"mma.depth": 64, "mma.tile.n": 1, "mma.tile.p": 1, "mma.tile.q": columns,
            "mma.tile.f": 64}  # fmt: skip
    space = BACKEND.space(program, HARDWARE).pin(pins)
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    for row in space.sample(np.random.default_rng(1), 2):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, kernel, inputs, wanted, 0)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("loads", ["direct", "staged"])
def test_computed_operands_either_way(loads: str) -> None:
    program = built(f"{UNSEEN}:packed_int4", {"m": 16, "n": 64, "k": 256})
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, A100).pin({"mma.loads": loads})
    for row in space.sample(np.random.default_rng(3), 2):
        kernel = BACKEND.lower(program, space.schedule(row), A100)
        assert len(json.loads(kernel.text("launch"))["kernels"]) == 1
        assert not problems(program, kernel, inputs, wanted, 6)
        assert not problems(program, kernel, inputs, wanted, 9)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize(("depth", "columns"), [(64, 16), (128, 32)])
def test_an_operand_that_a_summed_axis_leaves_as_it_is(depth: int, columns: int) -> None:
    """Registers count points along an axis that the operand does not vary along."""
    mixed = f"{UNSEEN.parent / 'mixed_types.py'}:repeated_operand"
    program = built(mixed, {"m": 48, "n": 40, "k": 16, "parts": 6})
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    pins = {"mma.depth": depth, "mma.swap": True, "mma.tile.m": 8, "mma.tile.n": columns}
    space = BACKEND.space(program, HARDWARE).pin(pins)
    (row,) = space.sample(np.random.default_rng(2), 1)
    kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
    assert not problems(program, kernel, inputs, wanted, 6)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("number", [5, 13, 14], ids=lambda n: IDS[n])
def test_plain_units_mean_the_same(number: int) -> None:
    program = built(*CASES[number])
    inputs = random_inputs(program, np.random.default_rng(number))
    wanted = bounds_of(program, inputs)
    for schedule in drawn(program, number, 1, 1, "fma"):
        assert schedule["engine"] == "fma"
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert not problems(program, kernel, inputs, wanted, 0), schedule.to_json()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
def test_e4m3_is_multiplied_from_sm_89_on() -> None:
    card = known_hardware("rtx4090")
    program = built("scaled_matmul", {"m": 24, "n": 72, "k": 160})
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    for schedule in drawn(program, 2, 1, 1, "mma", card):
        kernel = BACKEND.lower(program, schedule, card)
        assert "tw_mma_m16n8k32_e4m3" in kernel.text("cuda")
        assert not problems(program, kernel, inputs, wanted, 6)


# -- which engine


@pytest.mark.parametrize(
    ("card", "arguments", "engines"),
    [
        ("a100", BIG, ("mma",)),
        ("a100", BIG | {"m": 8}, ("mma", "fma")),
        ("a100", BIG | {"dtype": "f32"}, ("fma",)),
        ("a100", BIG | {"dtype": "e4m3", "out": "bf16"}, ("fma",)),
        ("rtx4090", BIG | {"dtype": "e4m3", "out": "bf16"}, ("mma",)),
        ("h200", BIG, ("wgmma", "mma")),
        ("h200", BIG | {"m": 8}, ("wgmma", "mma", "fma")),
    ],
)
def test_engines_that_a_card_has(
    card: str, arguments: dict[str, Any], engines: tuple[str, ...]
) -> None:
    assert engines_of(built("matmul", arguments), known_hardware(card)) == engines


def test_an_engine_that_cuts_more_is_left_out() -> None:
    large = {"b": 2, "heads": 8, "sq": 1024, "d": 128, "dtype": "bf16"}
    assert engines_of(built("attention", large), HARDWARE) == ("wgmma",)
    assert engines_of(built("attention", large), A100) == ("mma_chained",)


def test_computed_operands_need_no_kernel_of_their_own() -> None:
    program = built(f"{UNSEEN}:packed_int4", {"m": 16, "n": 64, "k": 256})
    assert [k.kind for k in kernels_of(program, HARDWARE, "mma")] == ["mma"]
    assert [k.kind for k in kernels_of(program, HARDWARE, "wgmma")] == ["block", "block", "tensor"]


@pytest.mark.parametrize(("engine", "word"), [("wgmma", "tw_wgmma"), ("mma", "tw_mma_m16n8k16"),
                                              ("fma", "fmaf")])  # fmt: skip
def test_pinning_the_engine(engine: str, word: str) -> None:
    program = built("matmul", {"m": 8, "n": 512, "k": 512, "dtype": "bf16", "tb": True})
    space = BACKEND.space(program, HARDWARE).pin(engine=engine)
    rng = np.random.default_rng(0)
    for row in [*space.seed_rows(rng)[:3], *space.sample(rng, 5)]:
        schedule = space.schedule(row)
        assert schedule["engine"] == engine
        assert word in BACKEND.lower(program, schedule, HARDWARE).text("cuda")


def test_a_decision_of_another_engine_cannot_be_pinned() -> None:
    space = BACKEND.space(built("matmul", BIG), HARDWARE)
    with pytest.raises(UsageError, match="only in force with engine=mma"):
        space.pin({"engine": "wgmma", "mma.stages": 4})


@pytest.mark.parametrize(("number", "card"), by_turns(range(len(CASES) - 1), ("a100", "h200")))
@draws(3, 6)
@pytest.mark.alike(2)
def test_legal_schedules_lower(card: str, number: int, count: int) -> None:
    hardware = known_hardware(card)
    program = built(*CASES[number])
    for schedule in drawn(program, 1, count, 2 * count, "mma", hardware):
        kernel = BACKEND.lower(program, schedule, hardware)
        for launch in json.loads(kernel.text("launch"))["kernels"]:
            assert launch["shared"] <= hardware["shared_bytes"]


@pytest.mark.parametrize("number", range(len(CASES) - 1), ids=IDS[:-1])
@pytest.mark.alike(2)
def test_passes_keep_what_a_kernel_means(number: int) -> None:
    program = built(*CASES[number])
    for schedule in drawn(program, 4, 2, 6, "mma", A100):
        route, chosen = route_of(program, schedule, A100)
        kernels, own = scheduled_kernels(program, chosen, A100, route.engine, route.residence)
        for kernel in kernels:
            assert isinstance(kernel, MmaKernel)
            plan = kernel.plan(own)
            loop, blocks = order_of(plan).body, min(plan.blocks, 9)
            behind = [one for _, one in after_each(build(plan, "k"), passes_of(plan))]
            assert all(TileKernel.parse(str(one)) == one for one in behind)
            wanted, there = values(behind[0], loop, blocks, False), values(behind[-1], loop, blocks)
            for name in (value_name(program, product.position) for product in plan.roles.outer):
                assert there[name] == wanted[name]


def test_constraints_know_the_shared_memory_of_a_plan() -> None:
    for name, arguments in CASES[:2] + CASES[13:15]:
        program = built(name, arguments)
        (kernel,) = kernels_of(program, A100, "mma")
        assert isinstance(kernel, MmaKernel)
        space = space_of(program, "mma", A100)
        rows = space.sample(np.random.default_rng(5), 20)
        needed = kernel._bytes(space.columns(rows).part("mma."))
        for row, bytes_ in zip(rows, needed, strict=True):
            values = {k.removeprefix("mma."): v for k, v in space.schedule(row).values
                      if k.startswith("mma.")}  # fmt: skip
            roles = kernel.swapped if values["swap"] else kernel.roles
            assert make_mma_plan(program, roles, values, "").shared == bytes_


# -- sides and tiles


def test_digits_of_a_side_of_several_axes() -> None:
    side = Side((("h", 4), ("w", 8)))
    assert [(d.axis, d.size, d.stride) for d in side.digits(16, 2)] == [("w", 4, 2), ("h", 4, 1)]
    assert side.coordinates("p") == {"w": "(p & 7)", "h": "(p >> 3)"}


def test_depth_covers_short_inner_axes_whole() -> None:
    assert depth_tiles({"k": 512, "half": 2}, ("k", "half"), 64) == {"k": 32, "half": 2}
    assert depth_tiles({"h": 3, "w": 3, "c": 48}, ("h", "w", "c"), 32) == {"h": 1, "w": 1, "c": 32}


BANKS = (("bf16", True, 16), ("bf16", True, 32), ("bf16", True, 64), ("bf16", False, 64),
         ("i8", True, 64), ("tf32", True, 32))  # fmt: skip


@pytest.mark.parametrize(("dtype", "tb", "depth"), BANKS)
def test_a_matrix_lies_in_all_banks(dtype: str, tb: bool, depth: int) -> None:
    """The eight lines that ldmatrix reads at a time meet in no bank of 16 bytes."""
    program = built("matmul", {"m": 64, "n": 64, "k": 64, "dtype": dtype, "tb": tb})
    tile = StageTile(program, 1, Side((("n", 64),)), Side((("k", depth),)))
    for chunk in range(tile.width // 16):
        offsets = evaluated(tile.byte(variable("line", 8), constant(chunk * 16)), line=range(8))
        assert len(set((offsets // 16 % 8).tolist())) == 8


# -- machine code


def _nvrtc() -> bool:
    try:
        nvrtc.version()
    except MissingTarget:
        return False
    return True


@pytest.mark.skipif(not _nvrtc() or disassembler() is None, reason="no NVRTC or no nvdisasm")
@pytest.mark.parametrize("hardware", few([A100, HARDWARE], [0], ["sm_80", "sm_90a"]))
@pytest.mark.parametrize(
    ("name", "arguments", "product"),
    [
        ("matmul", BIG, "HMMA.16816.F32.BF16"),
        ("matmul", BIG | {"dtype": "f16", "tb": False}, "HMMA.16816.F32"),
        ("matmul", BIG | {"dtype": "tf32"}, "HMMA.1688.F32.TF32"),
        ("matmul", BIG | {"dtype": "i8"}, "IMMA.16832.S8.S8"),
        (f"{UNSEEN}:packed_int4", {"m": 64, "n": 4096, "k": 2048}, "HMMA.16816.F32.BF16"),
    ],
)
@pytest.mark.alike(2)
def test_machine_code_is_what_was_meant(
    hardware: Hardware, name: str, arguments: dict[str, Any], product: str
) -> None:
    program = built(name, arguments)
    space = space_of(program, "mma", hardware)
    for row in space.seed_rows(np.random.default_rng(0))[:9:5]:
        kernel = BACKEND.lower(program, space.schedule(row), hardware)
        plan = json.loads(kernel.text("launch"))
        code, resources = nvrtc.compile_text(kernel.text("cuda"), plan["arch"], plan["options"])
        found = opcodes(code)
        assert (resources.spill_stores, resources.spill_loads) == (0, 0)
        assert not [op for op in found if op.startswith(("LDL", "STL", "HGMMA", "IGMMA"))]
        assert found[product] > 0
        assert any(op.startswith("LDGSTS.E.BYPASS") and ".128" in op for op in found)
        assert any(op.startswith("LDSM.16.M") and op.endswith(".4") for op in found)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
def test_two_bytes_formed_in_registers_lie_side_by_side() -> None:
    """Channels in pairs of one-byte elements: less than a word is stored at a time."""
    sizes = {"n": 1, "h": 4, "w": 4, "c": 2, "f": 3, "r": 1, "s": 2}
    program = built("conv2d", {**sizes, "dtype": "i8"})
    space = BACKEND.space(program, HARDWARE).pin({"engine": "mma", "mma.tile.f": 8})
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    for row in space.sample(np.random.default_rng(0), 4):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, kernel, inputs, wanted, 0), space.schedule(row).to_json()


def test_of_counters_that_are_divided_the_compiler_knows_nothing() -> None:
    """It narrows what it knows to be small, and lost what offsets carry beyond that."""
    program = built(
        "conv2d", {"n": 1, "h": 9, "w": 9, "c": 16, "f": 16, "padding": 1, "dtype": "bf16"}
    )
    schedule = drawn(program, 0, 1, 1, "mma")[0]
    text = BACKEND.lower(program, schedule, HARDWARE).text("cuda")
    counted = re.findall(r"const i32 (number\w*) = tw_any\(\w+\);\n\s*const i32 \w+ = (.*);", text)
    assert counted
    assert all(number in place for number, place in counted)
