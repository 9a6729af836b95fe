"""Sharing a workload with other searches: what this one may measure, and what others have found.

Candidates are leased in the store before they are measured, and a thread renews the leases for as
long as that takes. Knows records and schedules; neither strategies nor how one measures.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from explorer.outcome import Outcome
from explorer.recall import candidate_of, verdicts
from explorer.workload import Workload
from ir.errors import UsageError
from ir.schedule import Schedule
from records import Job, Record, StoreError, described, new_owner

if TYPE_CHECKING:
    from records import Store

LEASE_SECONDS = 60.0  # how long others wait for a search that hangs, or died on another machine
BEATS = 4  # renewals in that time: some may fail, as when the store is locked for a while
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds between two looks at what others do
Pair = tuple[Schedule, Outcome]


def refuse_running(store: Store, job: Job) -> None:
    """Raises UsageError if a living process works on the job: two would do the same trials."""
    owner = store.holder(_lease_of(job))
    if owner is not None:
        raise UsageError(
            f"job {job.id} is being run by {described(owner)}, since {job.updated}: wait until it "
            "ends, or end it (its trials are kept), then resume it"
        )


def is_running(store: Store, job: Job) -> bool:
    """Whether a living process works on the job."""
    return holder_of(store, job) is not None


def holder_of(store: Store, job: Job) -> str | None:
    """The living owner that works on the job, if there is one."""
    return store.holder(_lease_of(job))


def _lease_of(job: Job) -> str:
    """What the process that runs a job holds a lease of."""
    return f"job:{job.id}"


class Sharing:
    """What one search of `workload` holds of it. Make it before what is known is read."""

    def __init__(self, store: Store, workload: Workload, seconds: float = LEASE_SECONDS) -> None:
        self._store = store
        self._workload = workload
        self._seconds = seconds
        self._owner = new_owner()
        self._known: set[bytes] = set()  # the keys of schedules
        self._others: dict[str, Schedule] = {}  # asked here, leased by others
        self._held: dict[str, Schedule] = {}
        self._heard: list[Pair] = []
        self._last = store.last()
        self._job = ""  # whose trials the search knows
        self._over = threading.Event()
        self._heart: threading.Thread | None = None

    def know(self, schedules: Iterable[Schedule]) -> None:
        """Do not tell of these again: the search knows their outcomes."""
        self._known.update(bytes.fromhex(schedule.key) for schedule in schedules)

    def run(self, job: Job) -> None:
        """Be the one who runs this job, until `close`; raises UsageError if another does."""
        self._start()
        self._job = job.id
        lease = _lease_of(job)
        if lease not in self._store.claim((lease,), self._owner, self._seconds):
            refuse_running(self._store, job)

    def take(self, schedules: Iterable[Schedule]) -> list[Schedule]:
        """Those that are this search's to measure: neither another's now, nor measured by one."""
        wanted = {candidate_of(self._workload, schedule): schedule for schedule in schedules}
        if not wanted:
            return []
        self._start()
        ours = self._store.claim(wanted, self._owner, self._seconds)
        # Whoever had a lease before stored its trial before it let go.
        tried = tuple(self._store.records(candidate=tuple(ours))) if ours else ()
        self._hear(tried)
        done = {record.candidate for record in tried}
        if done:
            self._store.release(self._owner, done)  # others may be waiting for it
        ours -= done
        self._held.update((key, wanted[key]) for key in ours)
        for key in wanted:
            self._others.pop(key, None)
            if key not in ours | done:
                self._others[key] = wanted[key]
        return [schedule for key, schedule in wanted.items() if key in ours]

    def left(self, count: int) -> list[Schedule]:
        """Up to `count` of those that others had leased and left unmeasured."""
        self._listen()
        return self.take(list(self._others.values())[:count])

    def wait(self, count: int, patience: float = math.inf) -> list[Schedule]:
        """As `left`, waiting until one is left or all are measured.

        For the time of two leases at most, and for `patience` (seconds).
        """
        deadline = time.monotonic() + min(2 * self._seconds, patience)
        pause = SHORTEST_PAUSE
        while self._others and (left := deadline - time.monotonic()) > 0:
            if found := self.left(count):
                return found
            time.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE)
        return []

    def heard(self) -> list[Pair]:
        """What others have measured, as far as `left`, `wait` and `take` met it; each once."""
        heard, self._heard = self._heard, []
        return heard

    def done(self, schedules: Iterable[Schedule] | None = None) -> None:
        """Let go of what was taken, or of these: they are measured, or will not be."""
        if schedules is None:
            keys = tuple(self._held)
        else:
            named = (candidate_of(self._workload, schedule) for schedule in schedules)
            keys = tuple(key for key in named if key in self._held)
        if keys:
            self._store.release(self._owner, keys)
        for key in keys:
            del self._held[key]

    def close(self) -> None:
        """Stop the heartbeat and let go of everything."""
        self._over.set()
        if self._heart is not None:
            self._heart.join()
            with suppress(StoreError):  # they end on their own
                self._store.release(self._owner)

    def _listen(self) -> None:
        workload = self._workload
        self._last, records = self._store.newer(
            self._last,
            self._job,
            workload=workload.program.key,
            target=workload.target,
            hardware=workload.hardware.key,
            generator=workload.backend.generator,
            memory=workload.memory,
        )
        self._hear(records)
        for record in records:
            self._others.pop(record.candidate, None)

    def _hear(self, records: Iterable[Record]) -> None:
        keys = [(bytes.fromhex(record.schedule_key), record) for record in records]
        fresh = [(key, record) for key, record in keys if key not in self._known]
        self._heard += verdicts(record for _, record in fresh)
        self._known.update(key for key, _ in fresh)

    def _start(self) -> None:
        if self._heart is None:
            self._heart = threading.Thread(target=self._beat, name="leases", daemon=True)
            self._heart.start()

    def _beat(self) -> None:
        """Renew the leases: one kernel may take longer than a lease lasts."""
        while not self._over.wait(self._seconds / BEATS):
            try:
                self._store.heartbeat(self._owner)
            except StoreError:
                continue  # the search meets it too; until then, others may take what is leased
