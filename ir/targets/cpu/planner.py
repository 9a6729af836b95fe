"""From a schedule to a loop tree: which loops stand where, and which stages share them.

The loop string (outer order, then inner order) is one mechanism for every program; a loop of one
iteration is dropped. Which loops are left says whether running values reach their readers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ir.errors import Refusal
from ir.schedule import Schedule
from ir.stages import StagedProgram
from ir.targets.cpu.instructions import VectorRow
from ir.targets.cpu.placement import place
from ir.targets.cpu.plan import Item, Leaf, Loop, Plan, bind_stage, blocks_of

LoopString = Sequence[tuple[str, int]]  # (axis, level) from the outermost loop inwards


class _Tree:
    """Builds the loop tree: axes enter one by one; stages that may share a loop do."""

    def __init__(self, plan: Plan, order: LoopString, parallel: frozenset[str]) -> None:
        self.plan = plan
        self.order = order
        self.parallel = parallel
        self.stages = plan.staged.stages

    def build(self) -> list[Item]:
        return self._items(list(range(len(self.stages))), 0, None)

    def _items(self, members: list[int], depth: int, parent: Loop | None) -> list[Item]:
        if depth == len(self.order):
            leaves: list[Item] = []
            for position in members:
                leaf = Leaf(self.stages[position], parent)
                self.plan.leaves[leaf.stage.name] = leaf
                leaves.append(leaf)
            return leaves
        axis, level = self.order[depth]
        items: list[Item] = []
        for inside, run in self._runs(members, axis):
            if not inside:
                items += self._items(run, depth + 1, parent)
                continue
            loop = Loop(axis, level, self.plan.blocks[axis][1 - level], parent)
            free = parent is None or parent.parallel or not parent.in_parallel
            kept = all(axis not in self.stages[position].reduce for position in run)
            loop.parallel = axis in self.parallel and free and kept and not loop.repeats_parallel()
            loop.items = self._items(run, depth + 1, loop)
            items.append(loop)
        return items

    def _belongs(self, position: int, axis: str) -> bool:
        """Whether the stage must stand inside a loop over `axis`."""
        staged = self.plan.staged
        return axis in self.stages[position].domain or any(
            axis in staged.carried(use.node)
            for uses in staged.uses[position].values()
            for use in uses
        )

    def _runs(self, members: list[int], axis: str) -> list[tuple[bool, list[int]]]:
        """Neighbours that stand inside a loop over an axis together, or outside of it; found once:
        spaces try thousands of loop strings."""
        known, key = self.plan.staged.runs, (tuple(members), axis)
        if key not in known:
            known[key] = self._found_runs(members, axis)
        return known[key]

    def _found_runs(self, members: list[int], axis: str) -> list[tuple[bool, list[int]]]:
        runs: list[tuple[bool, list[int]]] = []
        for position in members:
            inside = self._belongs(position, axis)
            slot = self._slot(runs, position, axis, inside)
            if slot is None:
                runs.append((inside, [position]))
            else:
                runs[slot][1].append(position)
        return runs

    def _slot(
        self, runs: list[tuple[bool, list[int]]], position: int, axis: str, inside: bool
    ) -> int | None:
        """The last run if the stage may join it."""
        if not runs or runs[-1][0] != inside:
            return None
        if not inside:
            return len(runs) - 1
        ok = all(self._joins(position, other, axis) for other in runs[-1][1])
        return len(runs) - 1 if ok else None

    def _joins(self, position: int, other: int, axis: str) -> bool:
        stage, earlier = self.stages[position], self.stages[other]
        for use in self.plan.staged.uses[position].get(other, ()):
            varies = axis in self.plan.staged.program.nodes[use.node].axes
            running = self.plan.staged.carried(use.node)
            if running or varies or axis not in earlier.reduce:
                continue
            if not (use.late and axis in stage.reduce):
                return False
        return True


def order_of(schedule: Schedule, axes: Iterable[str]) -> list[tuple[str, int]]:
    """The loop string as (axis, level) pairs: level 1 first. Axes not named run innermost."""
    result = []
    for level in (1, 0):
        named = [a for a in str(schedule.get(f"order.{level}", "")).split() if a]
        rest = [a for a in axes if a not in named]
        result += [(axis, level) for axis in (*named, *rest)]
    return result


def make_plan(staged: StagedProgram, schedule: Schedule, vector: VectorRow, threads: int) -> Plan:
    """Everything static about one candidate; raises Refusal."""
    bindings = {stage.name: bind_stage(stage, schedule, vector) for stage in staged.stages}
    blocks = blocks_of(staged, schedule, bindings)
    plan = Plan(staged, bindings, blocks, [])
    plan.chunk = str(schedule.get("chunk", "block"))
    plan.stream = bool(schedule.get("stream", False))
    plan.threads = threads
    parallel = frozenset(str(schedule.get("parallel", "")).split())
    order = order_of(schedule, staged.program.axes)
    plan.items = _Tree(plan, _real(staged, order, blocks), parallel).build()
    problem = _carries_apart(plan)
    if problem:
        raise Refusal("carried", problem)
    place(plan, schedule)
    return plan


def _real(
    staged: StagedProgram, order: LoopString, blocks: Mapping[str, tuple[int, int]]
) -> LoopString:
    """The loops of a loop string that have more iterations than one."""
    extents = staged.program.axes

    def several(axis: str, level: int) -> bool:
        outer, inner = blocks[axis]
        return outer < extents[axis] if level else inner < outer

    return [loop for loop in order if several(*loop)]


def carried_apart(staged: StagedProgram, loops: LoopString) -> str:
    """Why running values do not reach their readers in these loops; empty if they do."""
    blocks = dict.fromkeys(staged.program.axes, (1, 1))
    plan = Plan(staged, {}, blocks, [])
    plan.items = _Tree(plan, loops, frozenset()).build()
    return _carries_apart(plan)


def _carries_apart(plan: Plan) -> str:
    """The first stage that reads a running value outside of the very loops that carry it."""
    staged = plan.staged
    for position, table in enumerate(staged.uses):
        own = plan.leaves[staged.stages[position].name].path()
        for other, uses in table.items():
            carried = frozenset().union(*(staged.carried(use.node) for use in uses))
            for loop in plan.leaves[staged.stages[other].name].path():
                if loop.axis in carried and loop not in own:
                    return (
                        f"{staged.stages[position].name} is outside the loop over {loop.axis} "
                        f"in which {staged.stages[other].name} carries its operand"
                    )
    return ""


def reads_running(staged: StagedProgram) -> bool:
    """Whether some stage reads what another has of a state that is still carried."""
    tables = (uses for table in staged.uses for uses in table.values())
    return any(staged.carried(use.node) for uses in tables for use in uses)
