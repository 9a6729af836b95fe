"""Programs of unforeseen kinds: every target answers, and what it calls legal lowers and is right.

Schedules are drawn anew for each program, from a seed. Each defect that such programs brought to
light has a test of its own behind them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer.measure import Measurer
from ir.builder import Graph, Operator, contract
from ir.inputs import random_inputs
from ir.program import Program
from ir.schedule import Schedule
from ir.space import Space
from ir.target import Backend, Hardware, get_backend
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.plans.mma_plan import make_mma_plan
from ir.targets.cuda.rows.hardware import known_hardware
from ir.targets.cuda.space.block import BlockKernel
from ir.targets.cuda.space.block_rules import OptionRules
from ir.targets.cuda.space.engines import residence_space
from ir.targets.cuda.space.mma import MmaKernel
from ir.targets.cuda.space.residences import USUAL
from tests.emulator.emulate import MODES, compiler, emulate
from tests.few import few_rows
from tests.judging import bounds_of
from tests.targets import unforeseen
from tests.targets.test_cpu_space import NARROW, WIDE
from tests.targets.test_cuda_emulated import arrays_of
from tests.targets.unforeseen import NAMES, SMALL

CPU, CUDA = get_backend("cpu"), get_backend("cuda")
HOPPER, ADA = known_hardware("h200"), known_hardware("rtx4090")
MACHINES = {"avx512": (CPU, WIDE), "avx2": (CPU, NARROW), "sm_90": (CUDA, HOPPER),
            "sm_89": (CUDA, ADA)}  # fmt: skip
every_program = pytest.mark.parametrize("number", range(len(SMALL)), ids=NAMES)
needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")


def engines(space: Space) -> list[Space]:
    """The space of each engine."""
    if "engine" not in space.names:
        return [space]
    return [space.pin(engine=engine) for engine in space.decision("engine").domain]


def lowered(
    backend: Backend, program: Program, hardware: Hardware, space: Space, count: int
) -> None:
    """Draws schedules, asks for their features and lowers them."""
    rng = np.random.default_rng(count)
    rows = np.array([space.any_legal(rng), *space.sample(rng, count)])
    columns = space.columns(rows)
    assert space.features is None or len(space.features(columns)[1]) == len(rows)
    assert space.meaning is None or len(space.meaning(columns)) == len(rows)
    for row in rows:
        kernel = backend.lower(program, space.schedule(row), hardware)
        if backend.name == "cuda":
            plan = json.loads(kernel.text("launch"))
            assert all(k["shared"] <= hardware["shared_bytes"] for k in plan["kernels"])


@pytest.mark.parametrize(
    ("number", "machine"),
    few_rows(
        product(range(len(SMALL)), MACHINES),
        [4 * n + place for n in range(len(SMALL)) for place in ((0, 3), (1, 2))[n % 2]],
        [f"{name}-{machine}" for name, machine in product(NAMES, MACHINES)],
    ),
)
@pytest.mark.alike(2)
def test_what_is_legal_lowers(number: int, machine: str) -> None:
    (one, arguments), (backend, hardware) = SMALL[number], MACHINES[machine]
    program = one.build(**arguments)
    for space in engines(backend.space(program, hardware)):
        lowered(backend, program, hardware, space, 2)


EMULATED: tuple[tuple[int, Hardware, str], ...] = (
    (4, HOPPER, "mma"), (7, HOPPER, ""), (8, ADA, ""), (9, ADA, ""), (10, HOPPER, "wgmma"),
    (13, HOPPER, ""),
)  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(("number", "hardware", "engine"), EMULATED)
def test_emulated_kernels_mean_their_program(number: int, hardware: Hardware, engine: str) -> None:
    one, arguments = SMALL[number]
    program = one.build(**arguments)
    space = CUDA.space(program, hardware)
    if engine in (space.decision("engine").domain if "engine" in space.names else ()):
        space = space.pin(engine=engine)
    rng = np.random.default_rng(number)
    assert emulated(program, space.schedule(space.sample(rng, 1)[0]), hardware) == []


def emulated(program: Program, schedule: Schedule, hardware: Hardware) -> list[str]:
    """Faults of a kernel, and what of its outputs is wrong, in two orders of completion."""
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    kernel = CUDA.lower(program, schedule, hardware)
    found: list[str] = []
    for mode in (0, 15):
        arrays = arrays_of(kernel, inputs)
        run = emulate(kernel.text("cuda"), kernel.text("launch"), arrays, mode=MODES[mode])
        found += run.faults
        found += [bounds.judge(arrays[name]).detail for name, bounds in wanted.items()]
    return [problem for problem in found if problem]


@pytest.mark.parametrize("number", [0, 9, 13])
def test_kernels_of_this_machine_are_right(number: int, code_cache: Path) -> None:
    one, arguments = SMALL[number]
    program, hardware = one.build(**arguments), CPU.hardware(2)
    space = CPU.space(program, hardware)
    schedules = [space.schedule(row) for row in space.sample(np.random.default_rng(1), 3)]
    with Measurer(program, "cpu", hardware, cache_dir=code_cache) as measurer:
        assert [o.detail for o in measurer.measure(schedules) if not o.ok] == []


# -- one test for each defect


def test_a_tensor_read_in_two_ways_crowds_the_cache_by_its_own_rows() -> None:
    program = unforeseen.gram.build(m=512, k=1024, dtype="f32")
    space = CPU.space(program, WIDE)
    names, table = space.features(space.columns(space.sample(np.random.default_rng(0), 8)))  # type: ignore[misc]
    assert table.shape == (8, len(names))


def test_a_made_up_name_is_no_tensors() -> None:
    graph = Graph("twice")
    i, j, k = graph.axes(i=40, j=40, k=30)
    x, other = graph.tensor("X", (40, 30), "f32"), graph.input("X_v1", (k,), "f32")
    graph.output("Y", contract(x[i, k], x[j, k], over=k))
    graph.output("Z", contract(x[i, k], other, over=k))
    program = graph.program()
    lowered(CPU, program, WIDE, CPU.space(program, WIDE), 4)


def test_squares_are_not_offered_dot_products() -> None:
    program = unforeseen.cosine.build(m=60, n=70, k=64, dtype="bf16")
    space = CPU.space(program, WIDE)
    offered = {d.name: d.domain for d in space.decisions if d.name.startswith("instruction")}
    assert sorted(len(domain) for domain in offered.values()) == [1, 1, 3]
    lowered(CPU, program, WIDE, space, 30)


@pytest.mark.parametrize(("one", "arguments"), [
    (unforeseen.moments, {"m": 160, "n": 264}),
    (unforeseen.weighted_rows, {"m": 512, "n": 512, "k": 512, "dtype": "bf16"}),
])  # fmt: skip
def test_running_values_reach_their_readers(one: Operator, arguments: dict[str, Any]) -> None:
    """As legal schedules have it; what does not says which loop keeps them apart."""
    program = one.build(**arguments)
    space = CPU.space(program, NARROW)
    lowered(CPU, program, NARROW, space, 40)
    rule = next(rule for rule in space.constraints if rule.name == "carried")
    drawn = space.shape.draw(np.random.default_rng(0), 200)
    broken = drawn[~np.asarray(rule.check(space.columns(drawn)))]
    words = [rule.explain(space.schedule(row).as_dict()) for row in broken[:5]]
    assert all("is outside the loop over" in text for text in words)
    assert len(broken) > 0 or one is unforeseen.moments


def test_few_rows_are_shared_by_as_many_threads_as_there_are() -> None:
    """12 rows in blocks of 4 are 3 blocks, for 4 threads."""
    program = unforeseen.written_carries.build(m=12, n=9)
    space = CPU.space(program, NARROW)
    assert len(space.sample(np.random.default_rng(0), 3)) == 3


@pytest.mark.parametrize("hardware", [HOPPER, ADA], ids=["sm_90", "sm_89"])
def test_scalars_have_a_kernel(hardware: Hardware) -> None:
    program = unforeseen.scalars.build(n=1)
    lowered(CUDA, program, hardware, CUDA.space(program, hardware), 2)


def test_a_chain_of_products_over_other_rows_is_one_kernel() -> None:
    """wgmma keeps the rows of a chain; where they differ, a block has one point of the others."""
    program = unforeseen.kronecker.build(m=32, a=16, b=16, dtype="bf16")
    assert CUDA.space(program, HOPPER).decision("engine").domain == ("wgmma", "fma")
    assert len(kernels_of(program, HOPPER, "wgmma")) == 1


def test_operands_are_walked_in_one_order() -> None:
    """Whichever of them lies along the rows, and though one lies where another tensor says."""
    program = unforeseen.listed_tiles.build(m=64, n=64, tiles=3, depth=32, dtype="bf16")
    (space,) = [s for s in engines(CUDA.space(program, HOPPER)) if s.pinned["engine"] == "wgmma"]
    row = space.any_legal(np.random.default_rng(0))
    assert "tile.k" in space.schedule(row).as_dict()


def test_rings_of_one_tensor_have_names_of_their_own() -> None:
    program = unforeseen.self_attention.build(s=64, d=32, dtype="bf16")
    names = [name for name in CUDA.space(program, HOPPER).names if name.startswith("extra.")]
    assert sorted(names) == ["extra.X", "extra.X.late"]


@needs_compiler
@pytest.mark.parametrize("tile", [16, 64])
def test_a_carry_is_walked_or_whole(tile: int) -> None:
    """Tiles of 16 walk 64 points of the sum; of 64 they have them all, and nothing is corrected."""
    program = unforeseen.weighted_rows.build(m=8, n=8, k=64, dtype="bf16")
    space = CUDA.space(program, ADA).pin({"tile.k": tile})
    schedule = space.schedule(space.sample(np.random.default_rng(0), 1)[0])
    assert ("prior" in CUDA.lower(program, schedule, ADA).text("cuda")) == (tile == 16)
    assert emulated(program, schedule, ADA) == []


def test_where_warps_meet_fits_the_card() -> None:
    """On every card, by a bound that no kernel exceeds."""
    program = unforeseen.nearest.build(m=300, n=200, d=120)
    (kernel,) = kernels_of(program, ADA)
    assert isinstance(kernel, BlockKernel)
    space = residence_space(program, ADA, None, USUAL)
    rows = space.sample(np.random.default_rng(0), 40)
    bounds = OptionRules(kernel).bytes(space.columns(rows))
    for row, bound in zip(rows, bounds, strict=True):
        launch = kernel.lower(space.schedule(row).as_dict(), "nearest")
        assert launch.shared <= bound <= ADA["shared_bytes"]
    values = space.schedule(rows[0]).as_dict() | {"own.i": 16, "own.j": 8, "own.k": 1,
                                                  "tile.i": 512, "tile.j": 256}  # fmt: skip
    rule = next(rule for rule in space.constraints if rule.name == "shared")
    assert "bytes of shared memory in each of 1 blocks" in rule.explain(values)


@pytest.mark.parametrize("number", [1, 4, 11, 15])
def test_one_formula_says_what_tiles_take(number: int) -> None:
    """For any draw, legal or not: constraints and plans agree to the byte."""
    one, arguments = SMALL[number]
    kernels = kernels_of(one.build(**arguments), ADA, "mma")
    for kernel in (kernel for kernel in kernels if isinstance(kernel, MmaKernel)):
        space = Space("cuda", tuple(kernel.decisions()), ())
        rows = space.shape.draw(np.random.default_rng(0), 60)
        for row, bound in zip(rows, kernel._bytes(space.columns(rows)), strict=True):
            values = space.schedule(row).as_dict()
            roles = kernel.swapped if values[kernel.name("swap")] else kernel.roles
            assert make_mma_plan(kernel.program, roles, values, kernel.mark).shared == bound


@needs_compiler
def test_a_raw_tile_of_two_operands_is_copied_once() -> None:
    program = unforeseen.both_scaled.build(m=32, n=32, k=128, dtype="bf16")
    space = CUDA.space(program, ADA).pin({"engine": "mma", "mma.loads": "staged"})
    schedule = space.schedule(space.sample(np.random.default_rng(0), 1)[0])
    assert emulated(program, schedule, ADA) == []


@pytest.mark.parametrize("room", [4 << 10, 12 << 10, 40 << 10])
@pytest.mark.alike(3)
def test_an_engine_is_offered_with_a_legal_schedule_or_not_at_all(room: int) -> None:
    facts = tuple((n, room if n == "shared_bytes" else v) for n, v in HOPPER.facts)
    small = replace(HOPPER, facts=facts)
    program = unforeseen.gram.build(m=64, k=64, dtype="bf16")
    for space in engines(CUDA.space(program, small)):
        lowered(CUDA, program, small, space, 1)


def test_what_is_packed_is_read_from_memory() -> None:
    """An operand and a part of another are packed at levels of their own."""
    program = unforeseen.wide_integers.build(m=64, n=96, k=80)
    lowered(CPU, program, WIDE, CPU.space(program, WIDE), 25)
