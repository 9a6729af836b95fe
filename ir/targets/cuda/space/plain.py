"""Plain kernels: folds, tops, scatters and states along an axis, each as `ir.plain` writes it.

A point is a thread's, or a block's whose threads share the loops of its body. A group's arrays are
in shared memory as far as they fit, and in the workspace beyond.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.columns import Columns, Decision
from ir.plain.build import plain_kernels
from ir.plain.code import PlainKernel
from ir.plain.pieces import WHOLE, Choices, Ways
from ir.program import Program
from ir.schedule import Value
from ir.space import Constraint
from ir.target import Hardware
from ir.targets.cuda.build.plain_step import RESIDENT, PlainStep, Settings
from ir.targets.cuda.grid.overlap import starts_early
from ir.targets.cuda.launch import Launch
from ir.targets.cuda.space.plain_cuts import PlainCuts, room_of

THREADS, FOLD, RUN, TEAM = "threads", "fold", "run", "team"
THREAD, BLOCK = "thread", "block"
_CUTS = 6  # ways to cut among the seeds
_LONG = 512  # iterations of a fold from which blocks come first among seeds


class PlainCudaKernel:
    """Decisions, constraints, seeds and lowering of plain kernels. `mark` ends their names.

    `program` is the phase that they compute; `plain` is the kernel of one that is not cut, where it
    is given, and then there is nothing to cut.
    """

    kind = "plain"

    def __init__(
        self, program: Program, mark: str, hardware: Hardware, plain: PlainKernel | None = None
    ) -> None:
        self.program, self.mark, self.hardware = program, mark, hardware
        self.cuts = PlainCuts(program, mark, hardware, Choices() if plain else None)
        self._steps: dict[Ways, tuple[PlainStep, ...]] = {}
        if plain is not None:
            self._steps[WHOLE] = (PlainStep(plain, hardware),)
        self.whole = self.steps(WHOLE)[0]
        self.plain, self.folds, self.points = (
            self.whole.plain, self.whole.folds, self.whole.points
        )  # fmt: skip

    def steps(self, ways: Ways) -> tuple[PlainStep, ...]:
        """The kernels, one after the other."""
        if ways not in self._steps:
            kernels = plain_kernels(self.program, ways)
            self._steps[ways] = tuple(PlainStep(one, self.hardware) for one in kernels)
        return self._steps[ways]

    # -- the space

    def name(self, stem: str) -> str:
        return f"{stem}{self.mark}"

    @property
    def chooses(self) -> bool:
        """Whether a point may be a thread's or a block's."""
        return bool(self.folds) and not self.plain.cooperative

    def decisions(self) -> list[Decision]:
        owner = next(iter(self.program.axes), "")
        found = [Decision(self.name(THREADS), (32, 64, 128, 256, 512), "binding", owner,
                          "threads of a block", 128)]  # fmt: skip
        if self.chooses:
            why = "who goes along the axis: a thread for each point, or a block in chunks"
            found.append(Decision(self.name(FOLD), (THREAD, BLOCK), "binding", owner, why))
        if self.folds:
            why = "neighbours along the axis that a thread of a block takes at a time"
            found.append(Decision(self.name(RUN), (1, 2, 4, 8), "binding", owner, why))
        if len(self.whole.teams) > 1:
            why = "blocks that share a point and meet in memory, where points are few"
            found.append(Decision(self.name(TEAM), self.whole.teams, "binding", owner, why, 1,
                                  unsaid=1))  # fmt: skip
        return found + self.cuts.decisions()

    def constraints(self) -> list[Constraint]:
        found = self.cuts.constraints(self._room)
        found += [self._neighbours()] if self.chooses else []
        return found + ([self._resident()] if len(self.whole.teams) > 1 else [])

    def _resident(self) -> Constraint:
        """Blocks that wait for each other all have to run at a time."""
        team, threads = self.name(TEAM), self.name(THREADS)
        most, points = int(self.hardware["sms"]) * RESIDENT, self.points

        def check(columns: Columns) -> Any:
            return (columns[team] == 1) | (columns[team] * columns[threads] * points <= most)

        def explain(values: Mapping[str, Value]) -> str:
            count = points * int(values[team]) * int(values[threads])
            return f"{team}={values[team]} makes {count:,} threads, of which {most:,} run at a time"

        needs = "blocks that wait for each other all run"
        return Constraint(team, needs, check, explain, reads=(team, threads))

    def _room(self, pieces: int) -> int:
        """Bytes that the parts of so many pieces take."""
        return room_of(self.program, (step.plain for step in self.steps(Ways(pieces=pieces))))

    def _neighbours(self) -> Constraint:
        fold, run = self.name(FOLD), self.name(RUN)

        def check(columns: Columns) -> Any:
            return columns.is_(fold, BLOCK) | (columns[run] == 1)

        def explain(values: Mapping[str, Value]) -> str:
            return f"{run}={values[run]} with {fold}={values[fold]}"

        needs = "only threads of a block take neighbours of each other"
        return Constraint(run, needs, check, explain, reads=(fold, run))

    def seeds(self) -> list[dict[str, Value]]:
        """What a thread or a block does, with the ways to cut that look fastest."""
        from ir.targets.cuda.cost.plain_costs import PlainCosts

        plain, cuts = self._uncut_seeds(), list(self.cuts.all())
        if len(cuts) == 1:
            return plain
        costs = PlainCosts(self)
        ranked = sorted(cuts, key=lambda cut: costs.clocks(self.cuts.ways(cut), plain[0]))
        few = ranked[:_CUTS]
        seeds = [{**plain[0], **cut} for cut in few]
        return seeds + [{**seed, **cut} for seed in plain[1:] for cut in few[:2]]

    def _uncut_seeds(self) -> list[dict[str, Value]]:
        """Blocks first where points are few or the axis is long."""
        if not self.folds:
            plain: list[dict[str, Value]] = [
                {self.name(THREADS): threads} for threads in (128, 256, 64, 512)
            ]
            return self._team_seeds() + plain
        blocks = [self._seed(*one) for one in ((256, 4), (128, 8), (256, 1), (64, 4), (512, 4))]
        if not self.chooses:
            return blocks
        alone = [self._seed(threads, 1, THREAD) for threads in (128, 64, 256)]
        longest = max(fold.extent for fold in self.folds)
        few = self.points < 64 * int(self.hardware["sms"])
        return blocks + alone if few or longest >= _LONG else alone + blocks

    def _team_seeds(self) -> list[dict[str, Value]]:
        """The largest teams that all run."""
        most = int(self.hardware["sms"]) * RESIDENT // self.points
        found: list[dict[str, Value]] = []
        for threads in (256, 512, 128) if len(self.whole.teams) > 1 else ():
            team = max(team for team in self.whole.teams if team * threads <= most)
            found.append({self.name(THREADS): threads, self.name(TEAM): team})
        return found

    def _seed(self, threads: int, run: int, way: str = BLOCK) -> dict[str, Value]:
        found: dict[str, Value] = {self.name(THREADS): threads, self.name(RUN): run}
        return found | ({self.name(FOLD): way} if self.chooses else {})

    def settings(self, step: PlainStep, values: Mapping[str, Value]) -> Settings:
        """What a schedule says of a step: whether a point is a block's is as the decision says, or
        as it is better where there is none for it."""
        grouped = step.better_grouped
        if self._is_chosen(step):
            grouped = values[self.name(FOLD)] == BLOCK
        threads, run = values[self.name(THREADS)], values.get(self.name(RUN), 1)
        team = int(values.get(self.name(TEAM), 1)) if step is self.whole else 1
        return Settings(int(threads), grouped, int(run), starts_early(values), team)

    def grouped(self, step: PlainStep, columns: Columns) -> NDArray[np.bool_]:
        """Where a point of a step is a block's."""
        if self._is_chosen(step):
            return columns.is_(self.name(FOLD), BLOCK)
        return np.full(columns.rows, step.better_grouped)

    def _is_chosen(self, step: PlainStep) -> bool:
        """Whether a step's points are threads' or blocks' as a decision says: those of the axis,
        and not those of the pieces' results."""
        own = step is self.whole or step.points != self.points
        return self.chooses and bool(step.folds) and own

    # -- a schedule

    def launches(self, values: Mapping[str, Value], name: str) -> tuple[Launch, ...]:
        """The launches of all steps."""
        from ir.targets.cuda.lower.plain_lower import PlainLowering

        steps = self.steps(self.cuts.ways(values))
        return tuple(
            PlainLowering(
                step,
                self.program,
                self.settings(step, values),
                f"{name}_{number}" if number else name,
            ).run()
            for number, step in enumerate(steps)
        )
