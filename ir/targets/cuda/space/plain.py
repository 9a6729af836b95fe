"""Plain kernels: folds, tops, scatters and states along an axis, each as `ir.plain` writes it.

A point is a thread's, or a block's whose threads share the loops of its body. A group's arrays are
in shared memory as far as they fit, and in the workspace beyond; where a thread has the point
`alone`, it has a column of that memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.columns import Columns, Decision
from ir.plain.accesses import every
from ir.plain.build import plain_kernels
from ir.plain.code import PlainKernel, Spread
from ir.plain.jammed import can_jam
from ir.plain.overlap_space import OVERLAP
from ir.plain.parted_sums import with_parted_sums
from ir.plain.pieces import WHOLE, Choices, Ways
from ir.program import Program
from ir.schedule import Value
from ir.space import Constraint
from ir.target import Hardware
from ir.targets.cuda.grid.overlap import starts_early
from ir.targets.cuda.launch import Launch
from ir.targets.cuda.layouts.woven import ROWS
from ir.targets.cuda.plain.plain_products import NONE, tile_of
from ir.targets.cuda.plain.plain_step import RESIDENT, PlainStep, Settings
from ir.targets.cuda.plain.plain_stream import WIDEST
from ir.targets.cuda.seeds.plain_seeds import fastest_cuts, tiled_seeds
from ir.targets.cuda.space.plain_cuts import PlainCuts, room_of
from ir.targets.cuda.space.plain_rules import (
    all_run,
    asking,
    not_both,
    single,
    staging,
    teams_beside,
    turns,
)

THREADS, FOLD, RUN, TEAM, AHEAD = "threads", "fold", "run", "team", "ahead"
ALONE, BESIDE, SHARE, MMA, FETCH = "alone", "beside", "share", "mma", "prefetch"
STEPS, STAGED = "steps", "staged"
TILES = (NONE, "16x8", "16x16", "16x32", "32x16", "32x32", "32x64", "64x16", "64x32")
THREAD, BLOCK = "thread", "block"
_THREADS = (32, 64, 128, 256, 512)
_RUNS, _AHEAD = (1, 2, 4, 8, 16, 32), (0, 1, 2, 3)
_BESIDE = ((128, 8, 0, THREAD), (64, 16, 0, THREAD), (256, 8, 0, THREAD), (128, 4, 0, THREAD))
_SHARES = (1, 4, 8, 16, 32)
_APART = 16  # steps of a turn at most, among seeds of threads that read their rows apart
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
            kernels = map(with_parted_sums, plain_kernels(self.program, ways))
            self._steps[ways] = tuple(PlainStep(one, self.hardware) for one in kernels)
        return self._steps[ways]

    # -- the space

    def name(self, stem: str) -> str:
        return f"{stem}{self.mark}"

    @property
    def chooses(self) -> bool:
        """Whether a point may be a thread's or a block's."""
        return bool(self.folds) and not self.plain.cooperative

    @property
    def waits(self) -> bool:
        """Whether what folds read may wait in shared memory."""
        reads = [one for streams in self.whole.streams for one in streams.reads]
        return self.chooses and any(stream.beside for stream in reads)

    @property
    def groups(self) -> bool:
        """Whether there are loops of which a thread may compute several iterations at a time."""
        loops = (s for s in every(self.plain.body) if isinstance(s, Spread))
        return self.plain.cooperative and any(map(can_jam, loops))

    @property
    def _runs(self) -> tuple[int, ...]:
        """Where prefixes are kept, so many states are in registers."""
        return _RUNS[:-1] if any(fold.keep for fold in self.folds) else _RUNS

    def decisions(self) -> list[Decision]:
        owner = next(iter(self.program.axes), "")
        found = [Decision(self.name(THREADS), _THREADS, "binding", owner,
                          "threads of a block", 128)]  # fmt: skip
        if self.chooses:
            why = "who goes along the axis: a thread for each point, or a block in chunks"
            found.append(Decision(self.name(FOLD), (THREAD, BLOCK), "binding", owner, why))
        if self.folds:
            why = "neighbours along the axis that a thread loads at a time"
            found.append(Decision(self.name(RUN), self._runs, "binding", owner, why))
        elif self.groups:
            why = "iterations of a shared loop that a thread computes before it writes one"
            runs = _RUNS[:5]
            found.append(Decision(self.name(RUN), runs, "binding", owner, why, 1, unsaid=1))
        if len(self.whole.step_counts) > 1:
            why = "steps of a loop whose reads a thread makes before the first of them"
            found.append(Decision(self.name(STEPS), self.whole.step_counts, "pipeline", owner, why,
                                  1, unsaid=1))  # fmt: skip
        if self.whole.pitches:
            why = "whether rows that a warp's threads have pass through shared memory"
            found.append(Decision(self.name(STAGED), (False, True), "pipeline", owner, why, False,
                                  unsaid=False))  # fmt: skip
        if self.waits:
            why = "tiles along the axis that a warp of a block asks for ahead"
            found.append(Decision(self.name(AHEAD), _AHEAD, "pipeline", owner, why, 0, unsaid=0))
        if self.whole.may_be_alone:
            why = "whether a thread has a point by itself, instead of all of a block"
            found.append(Decision(self.name(ALONE), (False, True), "binding", owner, why, False,
                                  unsaid=False))  # fmt: skip
        if self.whole.has_sums:
            why = "lanes of a warp that share the sums of an iteration"
            found.append(Decision(self.name(SHARE), _SHARES, "binding", owner, why, 1, unsaid=1))
        if len(self.whole.panels) > 1:
            why = "neighbouring points of a block, which read together what they have in common"
            found.append(Decision(self.name(BESIDE), self.whole.panels, "binding", owner, why, 1,
                                  unsaid=1))  # fmt: skip
        if self.whole.has_products:
            why = (
                "rows and columns that a warp has of a step's products, on mma.sync; or a thread's"
            )
            found.append(Decision(self.name(MMA), TILES, "tensorize", owner, why, NONE,
                                  unsaid=NONE))  # fmt: skip
        if self.whole.asks or len(self.whole.step_counts) > 1:
            why = "whether what a step reads is asked for in a step before"
            found.append(Decision(self.name(FETCH), (False, True), "pipeline", owner, why, False,
                                  unsaid=False))  # fmt: skip
        if len(self._teams) > 1:
            why = "blocks that share a point and meet in memory, where points are few"
            found.append(Decision(self.name(TEAM), self._teams, "binding", owner, why, 1,
                                  unsaid=1))  # fmt: skip
        return found + self.cuts.decisions()

    def constraints(self) -> list[Constraint]:
        found = self.cuts.constraints(self._room)
        if self.cuts.overlaps is not None:
            found += self.cuts.overlaps.constraints(self._single_steps)
        others = (TEAM, BESIDE, SHARE)
        found += [
            single(self.name(ALONE), self.name(one), one)
            for one in others if {ALONE, one} <= self._stems
        ]  # fmt: skip
        found += [self._of_blocks()] if self.whole.has_products else []
        found += (
            [asking(self.name(FETCH), self.name(ALONE))]
            if self.whole.asks and self.whole.may_be_alone
            else []
        )
        found += (
            [turns(self.name(FETCH), self.name(STEPS))] if len(self.whole.step_counts) > 1 else []
        )
        found += [self._staging()] if self.whole.pitches else []
        team, threads, beside = map(self.name, (TEAM, THREADS, BESIDE))
        stems = self._stems
        found += [not_both(beside, self.name(SHARE))] if {BESIDE, SHARE} <= stems else []
        if {TEAM, BESIDE} <= stems:
            found.append(teams_beside(team, beside, self.whole.teams_beside))
        found += [self._waiting()] if self.waits else []
        if TEAM in stems:
            most = int(self.hardware["sms"]) * RESIDENT
            panels = beside if BESIDE in stems else ""
            found.append(all_run(team, threads, panels, self.points, most))
        return found

    @property
    def _single_steps(self) -> dict[str, Value]:
        """What is said of loops step by step where there is nothing to say of them."""
        about = {ALONE, BESIDE, SHARE, MMA, FETCH, STEPS, STAGED, TEAM}
        names = set(map(self.name, about))
        own = {one.name: one.initial for one in self.decisions() if one.name in names}
        one = {self.name(RUN): 1} if self.groups else {}
        return one | {name: value for name, value in own.items() if value is not None}

    @cached_property
    def _teams(self) -> tuple[int, ...]:
        """Of how many blocks a point, or several beside each other, may be."""
        return tuple(sorted({n for teams in self.whole.teams_beside.values() for n in teams}))

    @property
    def _stems(self) -> set[str]:
        own = {ALONE} if self.whole.may_be_alone else set()
        own |= {BESIDE} if len(self.whole.panels) > 1 else set()
        own |= {SHARE} if self.whole.has_sums else set()
        return own | ({TEAM} if len(self._teams) > 1 else set())

    def _of_blocks(self) -> Constraint:
        """Tensor cores take products of a block's threads."""
        mma, names = self.name(MMA), [self.name(MMA)]
        names += [self.name(one) for one in (ALONE, BESIDE) if one in self._stems]
        beside, alone = self.name(BESIDE), self.name(ALONE)
        lacking = [n for n in self.whole.panels if not self.whole.panel(n, True).products]

        def check(columns: Columns) -> Any:
            found = columns.is_(mma, NONE)
            there = ~columns.is_(alone, True) if alone in names else np.ones(columns.rows, bool)
            if beside in names:
                there = there & ~columns.among(beside, lacking)
            elif lacking:
                there = there & False
            return found | there

        def explain(values: Mapping[str, Value]) -> str:
            return ", ".join(f"{name}={values[name]}" for name in names)

        needs = "products on tensor cores are a block's, with several columns"
        return Constraint(mma, needs, check, explain, reads=tuple(names))

    def _staging(self) -> Constraint:
        most = int(self.hardware["shared_bytes"])
        pitches = {n: self.whole.pitches.get(n, most + 1) for n in self.whole.step_counts}
        return staging(self.name(STAGED), self.name(STEPS), self.name(THREADS), pitches, most)

    def _room(self, pieces: int) -> int:
        """Bytes that the parts of so many pieces take."""
        return room_of(self.program, (step.plain for step in self.steps(Ways(pieces=pieces))))

    def _waiting(self) -> Constraint:
        """What waits belongs to a block, and has room."""
        fold, ahead, run, threads = map(self.name, (FOLD, AHEAD, RUN, THREADS))
        most = int(self.hardware["shared_bytes"])
        starts = {count: self.whole.ring_start(count) for count in _THREADS}

        def bytes_of(count: int, neighbours: int, tiles: int) -> int:
            return self.whole.ring_start(count) + self.whole.ring_bytes(count, neighbours, tiles)

        def check(columns: Columns) -> Any:
            rings = self.whole.rings(columns[threads], columns[run], columns[ahead])
            taken = rings + columns.lookup(threads, starts)
            return (columns[ahead] == 0) | (columns.is_(fold, BLOCK) & (taken <= most))

        def explain(values: Mapping[str, Value]) -> str:
            if values[fold] != BLOCK:
                return f"{ahead}={values[ahead]} with {fold}={values[fold]}"
            taken = bytes_of(int(values[threads]), int(values[run]), int(values[ahead]))
            return f"shared memory: {taken:,} B needed, {most:,} B there"

        needs = "tiles that wait are a block's, and have room"
        return Constraint(ahead, needs, check, explain, reads=(fold, ahead, run, threads))

    def seeds(self) -> list[dict[str, Value]]:
        """What a thread or a block does, with the ways to cut that look fastest."""
        plain = self.uncut_seeds()
        if len(list(self.cuts.all())) == 1:
            return plain
        few = fastest_cuts(self.program, self.hardware, self.name)
        if self.cuts.overlaps is not None:
            one = {**plain[0], **self._single_steps}
            whole = next(self.cuts.all())
            names = self.name(OVERLAP), self.name(THREADS)
            return tiled_seeds([*few, whole], plain, one, *names)
        seeds = [{**plain[0], **cut} for cut in few]
        return seeds + [{**seed, **cut} for seed in plain[1:] for cut in few[:2]]

    def uncut_seeds(self) -> list[dict[str, Value]]:
        """Blocks first where points are few or the axis is long."""
        if not self.folds:
            few = self.points < 128 * int(self.hardware["sms"]) and not self.plain.cooperative
            counts = (32, 64, 128, 256) if few else (128, 256, 64, 512)
            plain: list[dict[str, Value]] = [{self.name(THREADS): count} for count in counts]
            if len(self.whole.step_counts) > 1:
                most = [n for n in self.whole.step_counts[:0:-1] if n <= _APART]
                turns = [
                    {**one, self.name(STEPS): n, self.name(FETCH): fetch}
                    for n, fetch in product(most[:2], (True, False))
                    for one in plain[:3]
                ]
                plain = self._staged_seeds(plain[:3]) + turns
            if self.groups:
                plain = [{**one, self.name(RUN): run} for run in (4, 16, 1) for one in plain]
            return self._team_seeds() + self._alone_first(self._sums_first(plain))
        blocks = [self._seed(*one) for one in self._block_seeds()]
        if not self.chooses:
            return self._team_seeds() + self._sums_first(blocks)
        if self.whole.beside:
            return [self._seed(*one) for one in _BESIDE] + blocks[:2]
        alone = [self._seed(threads, run, 0, THREAD) for threads, run in ((128, 4), (64, 1))]
        longest = max(fold.extent for fold in self.folds)
        few = self.points < 64 * int(self.hardware["sms"])
        return blocks + alone if few or longest >= _LONG else alone + blocks

    def _staged_seeds(self, seeds: list[dict[str, Value]]) -> list[dict[str, Value]]:
        """Those of which rows pass through shared memory, in the longest turns."""
        staged, steps, fetch = map(self.name, (STAGED, STEPS, FETCH))
        return [
            {**one, steps: n, staged: True, fetch: False}
            for n in sorted(self.whole.pitches, reverse=True)[:2]
            for one in seeds
        ]

    @property
    def _unshared(self) -> dict[str, Value]:
        """What a seed says where lanes do not share sums."""
        return {self.name(SHARE): 1} if self.whole.has_sums else {}

    def _sums_first(self, seeds: list[dict[str, Value]]) -> list[dict[str, Value]]:
        """Where lanes can share sums, a warp does so in some."""
        if not self.whole.has_sums:
            return seeds
        return [
            {**seed, self.name(SHARE): lanes} for seed in seeds[:2] for lanes in (32, 8)
        ] + seeds

    def _alone_first(self, seeds: list[dict[str, Value]]) -> list[dict[str, Value]]:
        """Where a thread may have a point alone, such seeds: first where there are many points."""
        beside = self._beside_first(seeds)
        if not self.whole.may_be_alone:
            return beside
        name = self.name(ALONE)
        one = {**seeds[0], **self._unshared, name: True}
        each = [{**one, self.name(THREADS): threads} for threads in (32, 64, 128)]
        others = [{**seed, name: False} for seed in beside]
        many = self.points >= 32 * int(self.hardware["sms"])
        return each + others if many else [*others[:2], *each, *others[2:]]

    def _beside_first(self, seeds: list[dict[str, Value]]) -> list[dict[str, Value]]:
        """Where points may be beside each other, such seeds first: as many as leave a block for
        each processor, and half and twice as many."""
        panels = self.whole.panels
        if len(panels) == 1:
            return self._products_first(seeds)
        name, sms = self.name(BESIDE), int(self.hardware["sms"])
        full = [count for count in panels if self.points // count >= sms] or [1]
        place = panels.index(full[-1])
        near = [panels[n] for n in (place, place + 1, place - 1) if 0 <= n < len(panels)]
        some = [
            {**seeds[0], **self._unshared, name: count, self.name(THREADS): threads}
            for count in near
            if count > 1
            for threads in (256, 128)
        ]
        return self._products_first(some + seeds)

    def _products_first(self, seeds: list[dict[str, Value]]) -> list[dict[str, Value]]:
        """Where a step has products, they are on tensor cores in some."""
        if self.whole.asks:
            fetch, alone = self.name(FETCH), self.name(ALONE)
            seeds = [{**seed, fetch: not seed.get(alone, False)} for seed in seeds]
        if not self.whole.has_products:
            return seeds
        found: list[dict[str, Value]] = []
        for seed in seeds:
            count = int(seed.get(self.name(BESIDE), 1))
            if self.whole.panel(count, True).products and not seed.get(self.name(ALONE), False):
                found += [{**seed, self.name(MMA): tile} for tile in ("16x32", "32x32", "16x16")]
        return found + [{**seed, self.name(MMA): NONE} for seed in seeds]

    def _block_seeds(self) -> tuple[tuple[int, int, int], ...]:
        """Threads, neighbours, tiles ahead: of lanes that have a few words each at a time."""
        if not self.waits:
            return ((256, 4, 0), (128, 8, 0), (256, 1, 0), (64, 4, 0))
        reads = [s for streams in self.whole.streams for s in streams.reads if s.beside]
        word = min(8, max(WIDEST // stream.size for stream in reads))
        if any(fold.keep for fold in self.folds):
            return ((256, 2 * word, 1), (128, 2 * word, 2), (256, word, 0), (32, 16, 2),
                    (512, word, 1), (256, word, 2))  # fmt: skip
        longer = min(4 * word, 32)
        return ((128, longer, 2), (256, longer, 1), (256, word, 0), (128, 2 * word, 2),
                (64, longer, 2), (512, 2 * word, 1))  # fmt: skip

    def _team_seeds(self) -> list[dict[str, Value]]:
        """The largest teams that all run."""
        most = int(self.hardware["sms"]) * RESIDENT // self.points
        found = self._team_products()
        for threads in (256, 512, 128) if len(self.whole.teams) > 1 else ():
            team = max(team for team in self.whole.teams if team * threads <= most)
            more = {self.name(RUN): 1} if self.groups else {}
            one: dict[str, Value] = {
                self.name(THREADS): threads, self.name(TEAM): team, **more
            }  # fmt: skip
            if self.whole.has_sums:
                found += [{**one, self.name(SHARE): lanes} for lanes in (32, 8)]
            found.append(one)
        return found

    def _team_products(self) -> list[dict[str, Value]]:
        """Teams of points beside each other whose products are on tensor cores: as many blocks as
        there are processors."""
        sms, found = int(self.hardware["sms"]), list[dict[str, Value]]()
        for count, teams in reversed(self.whole.teams_beside.items()):
            if len(teams) == 1 or not self.whole.panel(count, True).products:
                continue
            (one, *_) = self.whole.panel(count, True).products
            batch, rows, _ = one.sides  # tiles of rows, of which a block has its own
            most = min(sms // (self.points // count), batch * -(-rows // ROWS))
            team = max(n for n in teams if n <= max(most, 1))
            found += [
                {
                    self.name(THREADS): threads, self.name(BESIDE): count, self.name(TEAM): team,
                    self.name(MMA): tile, **({self.name(RUN): 1} if self.groups else {}),
                    **({self.name(ALONE): False} if self.whole.may_be_alone else {}),
                    **self._unshared,
                }
                for threads, tile in ((128, "16x8"), (256, "16x8"), (128, "16x16"), (128, "16x32"))
            ]  # fmt: skip
        return found

    def _seed(self, threads: int, run: int, ahead: int, way: str = BLOCK) -> dict[str, Value]:
        found: dict[str, Value] = {self.name(THREADS): threads, self.name(RUN): run}
        if self.waits:
            found[self.name(AHEAD)] = ahead
        return found | ({self.name(FOLD): way} if self.chooses else {})

    def settings(self, step: PlainStep, values: Mapping[str, Value]) -> Settings:
        """What a schedule says of a step: whether a point is a block's is as the decision says, or
        as it is better where there is none for it."""
        grouped = step.better_grouped
        if self._is_chosen(step):
            grouped = values[self.name(FOLD)] == BLOCK
        elif step is self.whole and values.get(self.name(ALONE), False):
            grouped = False
        threads, run = values[self.name(THREADS)], values.get(self.name(RUN), 1)
        team = int(values.get(self.name(TEAM), 1)) if step is self.whole else 1
        ahead = int(values.get(self.name(AHEAD), 0)) if grouped else 0
        share = int(values.get(self.name(SHARE), 1)) if step is self.whole and grouped else 1
        early = starts_early(values)
        tile = tile_of(str(values.get(self.name(MMA), NONE))) if step is self.whole else None
        fetch = bool(values.get(self.name(FETCH), False)) and step is self.whole
        steps = int(values.get(self.name(STEPS), 1)) if step is self.whole and not grouped else 1
        staged = bool(values.get(self.name(STAGED), False)) and steps > 1
        return Settings(
            int(threads), grouped, int(run), early, team, ahead, share, tile, fetch, steps, staged
        )

    def panel(self, step: PlainStep, values: Mapping[str, Value]) -> PlainStep:
        """The step with as many points beside each other as a schedule says."""
        if step is not self.whole:
            return step
        tensor = values.get(self.name(MMA), NONE) != NONE
        return step.panel(int(values.get(self.name(BESIDE), 1)), tensor)

    def grouped(self, step: PlainStep, columns: Columns) -> NDArray[np.bool_]:
        """Where a point of a step is a block's."""
        if self._is_chosen(step):
            return columns.is_(self.name(FOLD), BLOCK)
        if step is self.whole and self.name(ALONE) in columns:
            return ~columns.is_(self.name(ALONE), True)
        return np.full(columns.rows, step.better_grouped)

    def _is_chosen(self, step: PlainStep) -> bool:
        """Whether a step's points are threads' or blocks' as a decision says: those of the axis,
        and not those of the pieces' results."""
        own = step is self.whole or step.points != self.points
        return self.chooses and bool(step.folds) and own

    # -- a schedule

    def launches(self, values: Mapping[str, Value], name: str) -> tuple[Launch, ...]:
        """The launches of all steps."""
        from ir.targets.cuda.plain.plain_lower import PlainLowering

        steps = self.steps(self.cuts.ways(values))
        return tuple(
            PlainLowering(
                self.panel(step, values),
                self.program,
                self.settings(step, values),
                f"{name}_{number}" if number else name,
            ).run()
            for number, step in enumerate(steps)
        )
