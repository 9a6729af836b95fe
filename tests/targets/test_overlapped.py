"""Several steps of a loop at a time on both targets: what is offered, and that it is right."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from experiments.corpus import grids
from explorer.measure import Measurer
from ir import Graph, recur, reduce
from ir.phases import phases_of
from ir.plain.pieces import Overlap, Ways
from ir.program import Program
from ir.registry import load_operator
from ir.schedule import Schedule
from ir.target import Hardware, get_backend
from ir.targets.cuda.cost.overlap_costs import OverlapCosts, stages_of
from ir.targets.cuda.rows.hardware import known_hardware
from ir.targets.cuda.space.plain import PlainCudaKernel
from tests.few import few, few_rows
from tests.targets.test_cuda_plain_order import grid, settling, two_axes
from tests.targets.test_unforeseen import emulated, needs_compiler

CUDA, CPU = get_backend("cuda"), get_backend("cpu")
HOPPER, ADA, HOST = known_hardware("h200"), known_hardware("rtx4090"), CPU.hardware(2)
GRIDS = "experiments/corpus/grids.py"
OPERATORS = {
    "diffusion": {"m": 70, "n": 75, "steps": 5},
    "life": {"m": 70, "n": 75, "steps": 5},
    "waves": {"n": 1500, "steps": 7},
}


@needs_compiler
@pytest.mark.parametrize(
    ("name", "steps", "hardware"), few_rows(product(OPERATORS, (2, 4), (HOPPER, ADA)), (0, 3, 6, 9))
)
def test_tiles_on_a_card_are_right(name: str, steps: int, hardware: Hardware) -> None:
    program = load_operator(name).build(**OPERATORS[name])
    space = CUDA.space(program, hardware).pin(overlap=steps)
    (row,) = space.sample(np.random.default_rng(steps), 1)
    assert emulated(program, space.schedule(row), hardware) == []


@needs_compiler
@pytest.mark.parametrize("name", few(grids.EXTENTS, (0, 1, 5)))
def test_grids_of_users_on_a_card_are_right(name: str) -> None:
    program = load_operator(f"{GRIDS}:{name}").build(**grids.EXTENTS[name]["small"])
    space = CUDA.space(program, HOPPER).pin(overlap=2)
    (row,) = space.sample(np.random.default_rng(3), 1)
    assert emulated(program, space.schedule(row), HOPPER) == []


@pytest.mark.parametrize("name", few(grids.EXTENTS, (0, 2, 3, 6)))
def test_grids_of_users_on_this_machine_are_right(name: str, code_cache: Path) -> None:
    program = load_operator(f"{GRIDS}:{name}").build(**grids.EXTENTS[name]["small"])
    space = CPU.space(program, HOST).pin(overlap=2)
    schedules = [space.schedule(row) for row in space.sample(np.random.default_rng(1), 2)]
    with Measurer(program, "cpu", HOST, cache_dir=code_cache) as measurer:
        assert [o.detail for o in measurer.measure(schedules) if not o.ok] == []


@pytest.mark.parametrize("name", OPERATORS)
def test_tiles_on_this_machine_are_right(name: str, code_cache: Path) -> None:
    program = load_operator(name).build(**OPERATORS[name])
    space = CPU.space(program, HOST)
    several = [int(v) for v in space.decision("overlap").domain if int(v) > 1][:2]
    schedules = [
        space.pin(overlap=steps).schedule(row)
        for steps in several
        for row in space.pin(overlap=steps).sample(np.random.default_rng(steps), 2)
    ]
    with Measurer(program, "cpu", HOST, cache_dir=code_cache) as measurer:
        assert [o.detail for o in measurer.measure(schedules) if not o.ok] == []


def test_seeds_of_a_grid_in_memory_have_several_steps_at_a_time_and_one() -> None:
    program = load_operator("diffusion").build(m=4096, n=4096, steps=16)
    for backend, hardware in ((CUDA, HOPPER), (CPU, HOST)):
        space = backend.space(program, hardware)
        found = [int(seed["overlap"]) for seed in space.seeds]
        assert found[0] > 1
        assert 1 in found


def test_schedules_from_before_there_were_tiles_name_their_kernels() -> None:
    program = load_operator("diffusion").build(m=70, n=75, steps=5)
    space = CUDA.space(program, HOPPER)
    old = Schedule("cuda", (("threads", 256), ("run", 4), ("team", 4), ("early", False)))
    values = space.schedule(space.encode(old)).as_dict()
    assert values["overlap"] == 1
    assert space.refusal(space.schedule(space.encode(old))) is None


def test_tiles_have_sizes_where_steps_are_several_and_blocks_nothing_else() -> None:
    space = CUDA.space(load_operator("diffusion").build(m=4096, n=4096, steps=16), HOPPER)
    first = space.schedule(space.sample(np.random.default_rng(0), 1)[0]).as_dict()
    one = {**first, "overlap": 1, "tile.i": 128, "tile.j": 128, "run": 1, "team": 1}
    refused = space.refusal(Schedule("cuda", tuple(one.items())))
    assert refused is not None
    assert str(refused).startswith("overlap.tiles: overlap=1 with tile.i=128")
    wide = {**one, "overlap": 16, "tile.i": 16, "tile.j": 32, "rows": 1, "columns": 1}
    refused = space.refusal(Schedule("cuda", tuple(wide.items())))
    assert refused is not None
    assert "points are right at last" in str(refused)


def layers(m: int = 512, n: int = 512) -> Program:
    """Channels, which a step mixes, before or behind the grid that they lie on."""
    g = Graph("layers")
    t, i, j, k, c = g.axes(t=9, i=m, j=n, k=3, c=3)
    x = g.state(t, (k, i, j), g.input("X", (k, i, j), "f32"))
    mixed = reduce("sum", x.at(k=c, i=i - 1, fill=0) * g.input("W", (k, c), "f32"), over=(c,))
    g.output("Y", recur(x, mixed + x.at(j=j + 1, fill=0)), "f32", (k, i, j))
    return g.program()


@pytest.mark.parametrize("program", [load_operator("life").build(m=512, n=512, steps=9), layers()],
                         ids=["life", "layers"])  # fmt: skip
def test_estimates_of_tiles_are_those_of_their_own_kernels_loops(program: Program) -> None:
    """A small tile stands for all: what it gives for its own size is what the kernel has."""
    (phase,) = phases_of(program)
    kernel = PlainCudaKernel(phase.program, "", HOPPER)
    windows = kernel.cuts.choices.windows
    assert windows is not None
    costs = OverlapCosts(phase.program, windows, HOPPER)
    overlap = Overlap(4, (64, 128), 4, 2)
    (step,) = kernel.steps(Ways(overlap=overlap))
    own, told = stages_of(step.plain), costs.stages(overlap)
    assert [(s.iterations, s.often) for s in own] == [(s.iterations, s.often) for s in told]
    assert costs.clocks(overlap, 256).points == step.points


def test_a_tile_that_is_all_margin_is_refused_in_a_line() -> None:
    """What a step keeps is needed so far around that nothing of the smallest tile is right."""
    g = Graph("wide")
    t, i, j, a = g.axes(t=4, i=512, j=512, a=17)
    x = g.state(t, (i, j), g.input("X", (i, j), "f32"))
    near = x * 2.0 + 1.0
    around = reduce("sum", near.at(i=i + a - 8, fill=0), over=(a,))
    g.output("Y", recur(x, around * 0.05 + near.at(j=j + 1, fill=0)), "f32", (i, j))
    space = CUDA.space(g.program(), HOPPER)
    values = space.schedule(space.sample(np.random.default_rng(0), 1)[0]).as_dict()
    values |= {"overlap": 2, "tile.i": 16, "tile.j": 32}
    refused = space.refusal(Schedule("cuda", tuple(values.items())))
    assert refused is not None
    assert "points are right at last" in str(refused)


def test_what_cannot_be_cut_has_no_such_decision() -> None:
    for program in (two_axes(), settling(), grid()):
        names = CUDA.space(program, HOPPER).names
        assert ("overlap" in names) == (program.name == "grid")
