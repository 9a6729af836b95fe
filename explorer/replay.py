"""Recorded measurements in place of a machine: a search over them compiles and runs nothing.

`Recording` is what one machine measured of a workload, `Replayer` answers from it behind the
measurer's interface. Knows records and workloads; no strategy and no job.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from explorer.baseline import Baseline
from explorer.measuring import depth_of
from explorer.outcome import Outcome
from explorer.rebuilding import machine_of
from explorer.recall import Where, verdicts
from explorer.sources import opened
from explorer.workload import Workload
from ir.errors import UsageError
from ir.schedule import Schedule, Value
from ir.space import Space
from records import Address, Record

SHOWN = 3  # workloads named where the wanted one is missing


@dataclass(frozen=True)
class Recording:
    """Outcomes by schedule. `workload` is on the recorded machine, whatever this one is."""

    workload: Workload
    outcomes: Mapping[Schedule, Outcome]

    @classmethod
    def load(cls, workload: Workload, source: Where) -> Recording:
        """What `source` (a store, or an export of one) holds of `workload`.

        Of several machines, thread counts and code generators, the one with most trials, in the
        workload's memory if there are such. Raises
        UsageError if there is nothing that this version's space spans, StoreError if it is damaged.
        """
        groups: dict[tuple[str, int, str, str], list[Record]] = {}
        for record in _records(workload, source):
            if workload.threads in (None, record.threads):
                key = (record.hardware, record.threads, record.generator, record.memory)
                groups.setdefault(key, []).append(record)
        if not groups:
            raise UsageError(_nothing_of(workload, source))
        records = max(groups.values(), key=lambda g: (g[0].memory == workload.memory, len(g)))
        there = replace(workload, machine=machine_of(records[0]), memory=records[0].memory)
        outcomes = dict(verdicts(records))
        known = spanned(there.space({}), list(outcomes))
        if not known:
            raise UsageError(
                f"{Address.of(source)}: recorded by code generator {records[0].generator}, whose "
                f"schedules {there.backend.generator} does not know; record them again"
            )
        return cls(there, {schedule: outcomes[schedule] for schedule in known})

    @cached_property
    def pins(self) -> dict[str, Value]:
        """Decisions that have one value in all recorded schedules."""
        values: dict[str, list[Value]] = {}
        for schedule in self.outcomes:
            for name, value in schedule.values:
                values.setdefault(name, []).append(value)
        return {
            name: found[0]
            for name, found in values.items()
            if len(found) == len(self.outcomes) and len(set(found)) == 1
        }

    def space(self, pins: Mapping[str, object] | None = None) -> Space:
        """The part of the workload's space that the records vary, with `pins` fixed besides."""
        return self.workload.space({**self.pins, **(pins or {})})

    @cached_property
    def times(self) -> tuple[float, ...]:
        """Seconds of all schedules that were right, rising."""
        right = (o.seconds for o in self.outcomes.values() if o.ok and o.seconds is not None)
        return tuple(sorted(right))

    def rank(self, seconds: float) -> int:
        """The place of a time among these; 1 is the best."""
        return 1 + bisect_left(self.times, seconds)

    def fastest_first(self) -> tuple[Schedule, ...]:
        """Schedules that were right, by time, one for each kernel."""
        times: dict[str, tuple[float, Schedule]] = {}
        for schedule, outcome in self.outcomes.items():
            if outcome.ok and outcome.seconds is not None:
                key = outcome.kernel_key or schedule.key
                if key not in times or outcome.seconds < times[key][0]:
                    times[key] = (outcome.seconds, schedule)
        ranked = sorted(times.values(), key=lambda pair: pair[0])
        return tuple(schedule for _, schedule in ranked)


class Replayer:
    """See `explorer.measuring.Measuring`; what was not recorded is refused as illegal."""

    def __init__(self, recording: Recording) -> None:
        self._outcomes = recording.outcomes
        self._ended: deque[tuple[Schedule, Outcome]] = deque()
        self.depth, self.abreast = depth_of(recording.workload.target), 1
        self.baseline: Baseline | None = None
        self.examined: tuple[float, ...] = ()
        self.best: float | None = None
        self.kernels: dict[str, Outcome] = {}

    def bounded_by(self, peaks: Mapping[str, Any]) -> None:
        """Times were judged when they were recorded."""

    def begin(self, schedules: Sequence[Schedule]) -> None:
        """Recorded outcomes in the order of `schedules`; of a kernel seen before, copied."""
        self._ended.extend((schedule, self._answer(schedule)) for schedule in schedules)

    def ended(self, alarm: int | None = None) -> tuple[Schedule, Outcome] | None:
        return self._ended.popleft() if self._ended else None

    def forget(self) -> None:
        self._ended.clear()

    def _answer(self, schedule: Schedule) -> Outcome:
        outcome = self._outcome(schedule)
        if outcome.kernel_key in self.kernels:
            return replace(self.kernels[outcome.kernel_key], copied=True)
        if outcome.kernel_key:
            self.kernels[outcome.kernel_key] = outcome
        return outcome

    def compete(
        self, schedules: Sequence[Schedule], rounds: int, library: bool = False
    ) -> list[Outcome]:
        """The recorded outcomes again, in heats as in finals: there are no others."""
        return [self._outcome(schedule) for schedule in schedules]

    def rest(self) -> None:
        """There is no device."""

    def close(self) -> None:
        """Nothing was started."""

    def _outcome(self, schedule: Schedule) -> Outcome:
        known = self._outcomes.get(schedule)
        if known is not None:
            return known
        return Outcome("illegal", detail=f"recorded: it is none of the {len(self._outcomes):,}")


def seeds_from(
    workload: Workload, source: Where, pins: Mapping[str, object] | None = None
) -> tuple[Schedule, ...]:
    """Schedules recorded of `workload` on any machine that are legal on its own, fastest first."""
    recorded = Recording.load(workload, source).fastest_first()
    space = workload.space(pins)
    legal = [s for s in spanned(space, recorded) if space.refusal(s) is None]
    if not legal:
        raise UsageError(
            f"{Address.of(source)}: none of {len(recorded)} recorded schedules is legal here"
        )
    return tuple(legal)


def spanned(space: Space, schedules: Sequence[Schedule]) -> list[Schedule]:
    """Those whose names and values are of `space`, whatever is pinned."""
    found = []
    for schedule in schedules:
        try:
            space.encode(schedule)
        except UsageError:
            continue
        found.append(schedule)
    return found


def refuse_missing(where: Address) -> None:
    """Raises UsageError if there is no such file."""
    if where.path is not None and not where.path.is_file():
        raise UsageError(
            f"{where}: no such file; name a store, an export of one (.jsonl), or another tuner's "
            "results (.json, .json.gz)"
        )


def _records(workload: Workload, source: Where) -> list[Record]:
    """What a store or an export holds of a workload, oldest first."""
    where = Address.of(source)
    refuse_missing(where)
    with opened(where) as store:
        return list(store.records(workload=workload.program.key, target=workload.target))


def _nothing_of(workload: Workload, source: Where) -> str:
    """That a source has no record of a workload, and what it has instead."""
    where = Address.of(source)
    with opened(where) as store:
        kinds = {(r.operator, r.extents, r.target, r.threads) for r in store.records()}
    wanted = (workload.operator, dict(workload.arguments), workload.target)
    told = [((name, json.loads(given), target), n) for name, given, target, n in kinds]
    same = {n for kind, n in told if kind == wanted}
    if workload.threads in same or (same and workload.threads is None):
        return (
            f"{where}: {workload.operator} {workload.extents_json} was recorded of another "
            "program, or of another form of it than this version gives it; record it again"
        )
    shown = [f"{name} {extents} for {target} on {n} threads" for name, extents, target, n in kinds]
    there = ", ".join(sorted(shown)[:SHOWN]) or "nothing at all"
    threads = f" on {workload.threads} threads" if workload.threads else ""
    asked = f"{workload.operator} {workload.extents_json} for {workload.target}{threads}"
    return f"{where}: no record of {asked}; there is {there}"
