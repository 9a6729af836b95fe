"""What cost features count against what the planner really makes: blocks, tasks, register tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from explorer.workload import Workload
from ir import Graph, contract, get_backend
from ir.alternatives import FORM
from ir.rewrite.forms import WRITTEN
from ir.schedule import Schedule
from ir.space import Matrix, Space
from ir.targets.cpu.costs import StageCosts, StageFacts
from ir.targets.cpu.crowding import crowding
from ir.targets.cpu.plan import Plan
from ir.targets.cpu.planner import make_plan
from ir.targets.cpu.regions import Regions
from ir.targets.cpu.roles import ROLE_NAMES, role_table
from ir.targets.cpu.sharing import Walk
from ir.targets.cpu.tiles import cut
from tests.costmodel.test_traits import HOST

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("matmul", {"m": 250, "n": 130, "k": 1024}),
    ("matmul", {"m": 96, "n": 256, "k": 512, "dtype": "bf16"}),
    ("softmax", {"m": 150, "n": 700}),
    ("attention", {"b": 1, "heads": 2, "sq": 128, "d": 64, "causal": True}),
)


def _drawn(operator: str, arguments: dict[str, Any]) -> tuple[Space, Matrix, Regions, list[Plan]]:
    """Schedules that split nothing, and the plans of them."""
    program = Workload.of(operator, arguments, "cpu").program
    space = Workload.of(operator, arguments, "cpu").backend.space(program, HOST)
    if space.alternatives is not None:
        space = space.alternatives.spaces["usual"]
    rows = space.sample(np.random.default_rng(1), 200)
    schedules = [space.schedule(row) for row in rows]
    whole = [number for number, s in enumerate(schedules) if s.get("split", "none") == "none"]
    decisions = space.features.decisions  # type: ignore[union-attr]
    plans = [
        make_plan(decisions.staged, schedules[number], decisions.vector, HOST.threads)
        for number in whole[:40]
    ]
    matrix = rows[whole[:40]]
    return space, matrix, Regions(decisions, space.columns(matrix)), plans


@pytest.mark.parametrize(("operator", "arguments"), CASES)
def test_blocks_are_those_of_the_planner(operator: str, arguments: dict[str, Any]) -> None:
    space, matrix, regions, plans = _drawn(operator, arguments)
    for number, plan in enumerate(plans):
        for axis, (outer, inner) in plan.blocks.items():
            assert (regions.outer[axis][number], regions.inner[axis][number]) == (outer, inner)
    assert len(plans) >= 20
    rounded = [_rounded(space.schedule(row), plan) for row, plan in zip(matrix, plans, strict=True)]
    assert any(rounded)  # else this test would say nothing


def _rounded(schedule: Schedule, plan: Plan) -> bool:
    return any(
        schedule.get(f"tile.{axis}.0") not in (None, inner)
        for axis, (_, inner) in plan.blocks.items()
    )


@pytest.mark.parametrize(("operator", "arguments"), CASES)
def test_tasks_are_those_of_the_loops_that_threads_share(
    operator: str, arguments: dict[str, Any]
) -> None:
    _, _, regions, plans = _drawn(operator, arguments)
    for stage in plans[0].staged.stages:
        walk = Walk(regions, stage)
        for number, plan in enumerate(plans):
            shared = [loop for loop in plan.leaves[stage.name].path() if loop.parallel]
            tasks = 1
            for loop in shared:
                tasks *= -(-plan.staged.program.axes[loop.axis] // loop.block)
            assert walk.tasks[number] == tasks, (stage.name, number)


def test_the_busiest_of_two_threads_sets_the_speed() -> None:
    _, _, regions, _ = _drawn(*CASES[0])
    stage = regions.decisions.staged.stages[0]
    walk = Walk(regions, stage)
    rows = len(walk.tasks)
    for tasks, block, points, speed in ((1, 96, 96, 1.0), (2, 64, 96, 1.5), (3, 32, 80, 80 / 48)):
        walk.tasks, walk.block = np.full(rows, float(tasks)), np.full(rows, float(block))
        walk.points = np.full(rows, float(points))
        assert walk.speed(2.0) == pytest.approx(np.full(rows, speed))


def test_register_tiles_of_a_ragged_axis_are_counted_by_block() -> None:
    _, _, regions, _ = _drawn(*CASES[0])
    rows = regions.columns.rows
    regions.outer["m"], regions.inner["m"] = np.full(rows, 96.0), np.full(rows, 40.0)
    full, tails = cut(regions, "m", np.full(rows, 16.0))
    blocks = [40, 40, 16] * 2 + [40, 18]  # of 250 points
    assert full[0] == sum(block // 16 for block in blocks)
    assert tails[0] == sum(block % 16 > 0 for block in blocks)


def _stage_costs(regions: Regions) -> StageCosts:
    decisions = regions.decisions
    facts = StageFacts(decisions.staged, decisions.shapes[0], HOST, decisions.vector)
    return StageCosts(facts, regions)


@pytest.mark.parametrize(
    ("n", "points", "factor"),
    [(1024, 48, 64 / 3), (1024, 2000, 1.0), (1408, 48, 8 / 3), (1000, 16, 1.0)],
)
def test_rows_a_power_of_two_apart_crowd_in_few_sets(n: int, points: int, factor: float) -> None:
    """Rows of 4096 bytes begin in one set, so 3 lines of each use 3 of 64; of 5632 bytes in 8."""
    program = Workload.of("matmul", {"m": 64, "n": n, "k": 512}, "cpu").program
    space = Workload.of("matmul", {"m": 64, "n": n, "k": 512}, "cpu").backend.space(program, HOST)
    decisions = space.features.decisions  # type: ignore[union-attr]
    regions = Regions(decisions, space.columns(space.sample(np.random.default_rng(0), 1)))
    costs = _stage_costs(regions)
    (operand,) = (found for found in costs.facts.operands if found.name == "B")
    sizes = {"n": np.array([float(points)]), "k": np.array([256.0])}
    assert crowding(program, operand, sizes) == pytest.approx(factor)


def test_roles_follow_the_axes_that_a_schedule_gives_them() -> None:
    space, matrix, regions, _ = _drawn(*CASES[0])
    table = role_table(_stage_costs(regions))
    assert set(table) == set(ROLE_NAMES)
    columns = space.columns(matrix)
    name = {"lane": columns.is_("lane.s0", "n"), "row": columns.is_("row.s0", "m")}
    both = name["lane"] & name["row"]
    assert both.any()
    for role, operand, axis in (("lane", "B", "n"), ("row", "A", "m")):
        packed = ~columns.is_(f"pack.s0.{operand}", "no")
        assert (table[f"{role}.packed"] == packed)[both].all()
        assert (table[f"{role}.again"] == 0)[both & ~packed].all()
        shared = sum(columns.is_("parallel", v) for v in ("m", "n", "m n", "n m") if axis in v)
        assert ((table[f"{role}.shared"] > 0) == (shared > 0))[both].all()
    assert table["lane.split"][both].max() == 1.0  # 520 bytes are no whole lines


@pytest.mark.parametrize("computed", [False, True])
def test_what_windows_share_is_gathered_for_each_point(computed: bool) -> None:
    """With lanes along the shift of a window that costs more than its sum's lanes do."""
    g = Graph("volume")
    y, x, d, c = g.axes(y=24, x=64, d=16, c=32)
    left, right = g.input("L", (y, x, c), "f32"), g.tensor("R", (24, 80, 32), "f32")
    place = g.iota(x) + d if computed else x + d
    g.output("C", contract(left, right[y, place, c], over=c), "f32", (y, x, d))
    space = get_backend("cpu").space(g.program(), HOST)
    rows = space.sample(np.random.default_rng(1), 900)
    rows = np.array(
        [r for r in rows if dict(space.schedule(r).values).get(FORM) in (None, WRITTEN)]
    )
    names, table = space.features(space.columns(rows))  # type: ignore[misc]
    apart = table[:, names.index("total.apart")]
    lanes = np.array([str(space.schedule(row)["lane.s0"]) for row in rows])
    assert apart[lanes == "d"].min() > 3.0  # 2^3 times all arithmetic
    assert apart[lanes == "c"].max() < 0.0
