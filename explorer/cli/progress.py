"""What a running search shows: an account of its trials, and plain lines of it.

The panel for terminals is in `panel`; both read the same account. Nothing here measures.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from explorer.cli.app import milliseconds
from explorer.cli.baseline import missing_words, ratio_words
from explorer.disturbance import crowd_of, crowding, warning

if TYPE_CHECKING:
    from explorer.baseline import Baseline
    from explorer.disturbance import Crowd
    from explorer.plan import Plan
    from explorer.result import HeadStart, Progress
    from explorer.roofline import Roofline

LINE_EVERY = 32
BELOW = "below_roofline"
TERA = 10_000  # GFLOP/s from which they are told in thousands


class Work(Protocol):
    """What one run of a kernel does, at least."""

    @property
    def flops(self) -> int: ...

    @property
    def bytes(self) -> int: ...


class Display(Protocol):
    """How progress is shown. Used as a context around the run."""

    def __enter__(self) -> Display: ...

    def __exit__(self, *error: object) -> None: ...

    def show(self, progress: Progress) -> None: ...


@dataclass(slots=True)
class JobAccount:
    """One job so far."""

    title: str
    roofline: Roofline
    job: str = ""
    trials: int = 0
    best: float | None = None
    regret: float | None = None
    crowd: Crowd | None = None  # beside the best
    baseline: Baseline | None = None
    model: HeadStart | None = None
    unbelieved: str = ""  # of the first time that was below the roofline, what it was and what is
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def speed(self) -> str:
        return speed(self.best, self.roofline)

    @property
    def share(self) -> str:
        """How near the best comes to what the machine can do; empty where that is not known."""
        return "" if self.best is None else self.roofline.words(self.best)

    @property
    def beside(self) -> str:
        """The best beside the library; empty where that has no time."""
        return ratio_words(self.best, self.baseline, self.crowd)


class Account:
    """All jobs of a run so far."""

    def __init__(self, plan: Plan, rooflines: tuple[Roofline, ...]) -> None:
        self.plan = plan
        pairs = zip(plan.jobs, rooflines, strict=True)
        self.jobs = [JobAccount(job.title, roofline) for job, roofline in pairs]
        self.trials = self.replayed = 0
        self.elapsed = 0.0
        self.crowding: float | None = None
        self._began = 0.0

    def note(self, progress: Progress) -> None:
        job = self.jobs[progress.number]
        if progress.best_seconds != job.best:
            job.crowd = crowd_of(progress.outcome)
        job.job, job.trials, job.best = progress.job, progress.trial, progress.best_seconds
        job.regret, job.baseline, job.model = progress.regret, progress.baseline, progress.model
        job.outcomes[progress.outcome.status] += 1
        if progress.outcome.status == BELOW:
            job.unbelieved = job.unbelieved or progress.outcome.detail
        self.trials, self.elapsed = progress.trials, progress.elapsed
        if progress.replayed:
            self.replayed += 1
            self._began = progress.elapsed
            return
        crowd = crowding(progress.outcome)
        self.crowding = self.crowding if crowd is None else crowd

    @property
    def rate(self) -> float | None:
        """Trials a second, of those that were measured by this process; None before the first."""
        fresh = self.trials - self.replayed
        return (
            fresh / (self.elapsed - self._began) if fresh and self.elapsed > self._began else None
        )

    @property
    def outcomes(self) -> Counter[str]:
        return sum((job.outcomes for job in self.jobs), Counter())


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Silence:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show(self, progress: Progress) -> None:
        pass


class Lines:
    """A line when the best of a job improves, and every few trials."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._warned = False
        self._started = False
        self._told: set[int] = set()  # jobs of which it was said that they have no model
        self._lacking: set[int] = set()  # the same of a baseline

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show(self, progress: Progress) -> None:
        job = self._account.jobs[progress.number]
        before = job.best
        self._account.note(progress)
        if progress.replayed:
            return
        self._start()
        self._warn()
        self._say_without_model(progress, job)
        self._say_lacking(progress.number, job)
        self._say_unbelieved(progress, job)
        improved = job.best is not None and (before is None or job.best < before)
        if improved or progress.trials % LINE_EVERY == 0:
            print(self._line(progress, job), flush=True)

    def _line(self, progress: Progress, job: JobAccount) -> str:
        several = len(self._account.jobs) > 1
        title = f"{job.title}: " if several else ""
        share = "".join(f", {words}" for words in (job.share, job.beside) if words)
        share += ", crowded" if job.crowd is not None else ""
        budget = self._account.plan.budget
        of_time = "" if budget.trials or not budget.seconds else f" of {budget.seconds:g} s"
        of_trials = f" of {budget.trials}" if budget.trials else ""
        return (
            f"{progress.elapsed:6.1f} s{of_time}  trial {progress.trials:4d}{of_trials}  "
            f"{title}{job.speed}{share}{failures(self._account.outcomes)}"
        )

    def _start(self) -> None:
        """Before the first line: what an interrupted run had measured already."""
        if self._account.replayed and not self._started:
            print(f"goes on after trial {self._account.replayed}", flush=True)
        self._started = True

    def _say_without_model(self, progress: Progress, job: JobAccount) -> None:
        """Once for each job that starts without a cost model: why."""
        if not progress.model.why or progress.number in self._told:
            return
        self._told.add(progress.number)
        title = f"{job.title}: " if len(self._account.jobs) > 1 else ""
        print(f"{title}{progress.model.words}", flush=True)

    def _say_lacking(self, number: int, job: JobAccount) -> None:
        """Once for each job that has no baseline: why."""
        if job.baseline is None or job.baseline.seconds is not None or number in self._lacking:
            return
        self._lacking.add(number)
        title = f"{job.title}: " if len(self._account.jobs) > 1 else ""
        print(f"{title}{missing_words(job.baseline)}", flush=True)

    def _say_unbelieved(self, progress: Progress, job: JobAccount) -> None:
        """The first time that was below the roofline, with both numbers."""
        if progress.outcome.status == BELOW and job.outcomes[BELOW] == 1:
            title = f"{job.title}: " if len(self._account.jobs) > 1 else ""
            print(f"{title}not believed: {job.unbelieved}", flush=True)

    def _warn(self) -> None:
        said = warning(self._account.crowding)
        if said and not self._warned:
            self._warned = True
            print(f"warning: {said}", flush=True)


def crowded(crowd: Crowd | None) -> str:
    """A mark behind a time that is in doubt; empty where it is not."""
    return "" if crowd is None else f" (crowded: {crowd.words})"


def speed(seconds: float | None, work: Work) -> str:
    """Best time and rate, for people."""
    if seconds is None:
        return "nothing valid yet"
    told = rate(seconds, work)
    return f"best {milliseconds(seconds)}" + (f", {told}" if told else "")


def rate(seconds: float, work: Work) -> str:
    """Operations a second with a fitting unit; of what computes nothing, bytes of its tensors.

    Empty for a kernel of which neither is known: another tuner's.
    """
    if not work.flops and not work.bytes:
        return ""
    if not work.flops:
        return f"{work.bytes / seconds / 1e9:.1f} GB/s"
    giga = work.flops / seconds / 1e9
    return f"{giga / 1e3:.1f} TFLOP/s" if giga >= TERA else f"{giga:.1f} GFLOP/s"


def failures(outcomes: Counter[str]) -> str:
    """Counts of what was not right; empty if all was."""
    counts = ", ".join(f"{n} {status}" for status, n in outcomes.most_common() if status != "ok")
    return f"  ({counts})" if counts else ""
