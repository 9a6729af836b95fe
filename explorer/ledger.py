"""The jobs of a store, a line each, told without building a program.

`explorer.story` tells a single job in full.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from explorer.comparison import CHOSEN
from explorer.recall import DECIDING, FINAL, FLOPS, best_of
from records import Job, Record
from records.tellings import JobCount

if TYPE_CHECKING:
    from records import Store

OK = "ok"


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job, what came of the trials of its search, by status, and its best.

    `settled` says that the best won finals; otherwise it is the best of the search.
    """

    job: Job
    outcomes: tuple[tuple[str, int], ...]
    best: Record | None
    settled: bool

    @property
    def trials(self) -> int:
        """Of the search itself, failures included."""
        return sum(count for _, count in self.outcomes)

    @property
    def gflops(self) -> float | None:
        """The best's rate, where its record tells what the program computes."""
        if self.best is None or not self.best.seconds:
            return None
        told = json.loads(self.best.notes).get(FLOPS)
        return told / self.best.seconds / 1e9 if isinstance(told, int | float) and told else None

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
    counts, finals = _counts(store), _by_job(store.records(strategy=FINAL))
    return tuple(
        _line(store, job, counts.get(job.id, Counter()), finals.get(job.id, []))
        for job in store.jobs(state)
    )


def job_line(store: Store, identifier: str) -> JobLine:
    """The job `identifier`, or the only one that begins so; raises UnknownJob."""
    job = store.job(identifier)
    finals = list(store.records(job=job.id, strategy=FINAL))
    return _line(store, job, _counts(store).get(job.id, Counter()), finals)


def _counts(store: Store) -> dict[str, Counter[str]]:
    """The trials of each job's search by status."""
    found: dict[str, Counter[str]] = {}
    for job, strategy, status, trials in store.tally(JobCount):
        if strategy not in DECIDING:
            found.setdefault(job, Counter())[status] += trials
    return found


def _by_job(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.job, []).append(record)
    return found


def _line(store: Store, job: Job, counts: Counter[str], finals: Sequence[Record]) -> JobLine:
    """Without finals, the trials of the search are read for the best of them."""
    best = _winner(finals)
    settled = best is not None
    if best is None and counts[OK]:
        best = best_of(store.records(job=job.id))
    return JobLine(job, tuple(counts.most_common()), best, settled)


def _winner(finals: Sequence[Record]) -> Record | None:
    """What the finals of a job chose; of an older version's, which do not tell, the fastest."""
    right = [record for record in finals if record.ok]
    chosen = [record for record in right if json.loads(record.notes).get(CHOSEN)]
    return chosen[-1] if chosen else best_of(right)
