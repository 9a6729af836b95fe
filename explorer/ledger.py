"""The jobs of a store, a line each, told without building a program or reading trials whole.

`explorer.story` tells a single job in full.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.comparison import CHOSEN
from explorer.recall import DECIDING, FINAL, FLOPS, best_of
from records import Job, Record, Store
from records.tallies import Tally


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job, how many trials its search made, how many were right, and its best's seconds.

    `settled` says that the best won finals; otherwise it is the fastest of the search.
    """

    job: Job
    trials: int
    right: int
    best: float | None
    settled: bool
    flops: float | None = None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Of the operator, in the order in which they were given if that is known."""
        found = json.loads(self.job.extents)
        return {name: found[name] for name in dict.fromkeys([*self._given, *found])}

    @property
    def options(self) -> Mapping[str, Any]:
        """How the search was made."""
        options: Mapping[str, Any] = json.loads(self.job.options)
        return options

    @property
    def _given(self) -> tuple[str, ...]:
        """Arguments in the order of the plan; none where another's store tells no such plan."""
        found = json.loads(self.job.extents)
        try:
            planned = self.options["plan"]["jobs"][self.options["member"]]["arguments"]
            return tuple(name for name, _ in planned if name in found)
        except (LookupError, TypeError, ValueError):
            return ()


def job_lines(store: Store, state: str | None = None) -> tuple[JobLine, ...]:
    """Every job (or those in one state), oldest first."""
    known = store.tallies(DECIDING, FINAL)
    return tuple(_line(job, known.get(job.id, Tally())) for job in store.jobs(state))


def job_line(store: Store, identifier: str) -> JobLine:
    """The job `identifier`, or the only one that begins so; raises UnknownJob."""
    job = store.job(identifier)
    return _line(job, store.tallies(DECIDING, FINAL).get(job.id, Tally()))


def winner(trials: Sequence[Record]) -> Record | None:
    """Of a job's trials the one that its finals chose; without finals the best."""
    chosen = [trial for trial in trials if json.loads(trial.notes).get(CHOSEN)]
    return chosen[-1] if chosen else best_of(trials)


def _line(job: Job, tally: Tally) -> JobLine:
    chosen = [pair for pair in tally.decided if pair[1].get(CHOSEN)][-1:]
    fastest = sorted(tally.decided, key=lambda pair: pair[0])[:1]
    for seconds, notes in chosen or fastest:
        return JobLine(job, tally.trials, tally.right, seconds, True, _flops(notes))
    return JobLine(job, tally.trials, tally.right, tally.fastest, False)


def _flops(notes: Mapping[str, Any]) -> float | None:
    told = notes.get(FLOPS)
    return told if isinstance(told, int | float) else None
