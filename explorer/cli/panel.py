"""The live panel of a search on a terminal. It knows rich; what it shows is a `progress.Account`.

It is drawn when a trial is told, never while one is timed, so that it disturbs no measurement.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from explorer.cli.app import milliseconds
from explorer.cli.plain import unfiltered
from explorer.cli.progress import Account, JobAccount
from explorer.disturbance import warning
from ir.printable import printable

if TYPE_CHECKING:
    from explorer.baseline import Baseline
    from explorer.result import Progress

REFRESH = 0.2  # seconds between two drawings, at least
_BAR = 32


class LivePanel:
    """Shows an account in place; what it showed last stays on the screen."""

    def __init__(
        self,
        account: Account,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._account = account
        self._clock = clock
        self._drawn = -REFRESH
        self._live = Live(
            console=console or Console(file=unfiltered(sys.stdout)),
            auto_refresh=False,
            get_renderable=self.render,
        )

    def __enter__(self) -> LivePanel:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._live.refresh()
        self._live.stop()

    def show(self, progress: Progress) -> None:
        self._account.note(progress)
        now = self._clock()
        if now - self._drawn >= REFRESH:
            self._drawn = now
            self._live.refresh()

    def render(self) -> Panel:
        """The whole panel."""
        jobs = self._account.jobs
        body = _single(jobs[0]) if len(jobs) == 1 else _several(jobs)
        parts: list[RenderableType] = [body, Text(""), self._budget()]
        said = warning(self._account.crowding)
        if said:
            parts.append(Text(said, style="yellow"))
        title = _words(jobs[0].title if len(jobs) == 1 else f"{len(jobs)} jobs")
        return Panel(Group(*parts), title=title, title_align="left", expand=False)

    def _budget(self) -> Table:
        """Trials, time and outcomes against what there is of them."""
        account, budget = self._account, self._account.plan.budget
        table = _grid()
        rate = "" if account.rate is None else f", {account.rate:.1f} a second"
        words = f"{account.trials}{f' of {budget.trials}' if budget.trials else ''}{rate}"
        if account.replayed:
            words += f", {account.replayed} of them before the interruption"
        done = _bar(account.trials, budget.trials) if budget.trials else ""
        table.add_row("trials", done, words)
        if budget.seconds is None:
            table.add_row("time", "", f"{account.elapsed:.0f} s")
        else:
            left = max(0.0, budget.seconds - account.elapsed)
            spent = _bar(min(account.elapsed, budget.seconds), budget.seconds)
            table.add_row("time", spent, f"{account.elapsed:.0f} s, {left:.0f} s left")
        table.add_row("outcomes", "", _counts(account))
        return table


def _counts(account: Account) -> Text:
    text = Text()
    for status, count in account.outcomes.most_common():
        text.append(", " if text else "")
        text.append(f"{count} {status}", style="green" if status == "ok" else "red")
    return text


def _single(job: JobAccount) -> Table:
    """The best of one job, in large."""
    table = _grid()
    table.add_row("best", Text(job.speed.removeprefix("best "), style="bold"), "")
    if job.crowd is not None:
        table.add_row("crowded", job.crowd.words, "")
    if job.share:
        possible = f"{job.roofline.seconds or 0:.3g} s at least, bound by {job.roofline.bound}"
        known = job.best is not None and not job.roofline.exceeded(job.best)
        table.add_row("of peak", job.share, possible if known else "")
    if job.unbelieved:
        table.add_row("not believed", Text(job.unbelieved, style="red"), "")
    if job.baseline is not None:
        table.add_row("baseline", *map(_words, _baseline(job, job.baseline)))
    regret = "" if job.regret is None else f"regret {100 * job.regret:.1f} %"
    without = "" if job.model is None or not job.model.why else f"none at first: {job.model.why}"
    if regret or without:
        table.add_row("model", regret, without)
    return table


def _baseline(job: JobAccount, baseline: Baseline) -> tuple[str, str]:
    """The ratio to the library and its time, or why there is none."""
    if baseline.seconds is None:
        return "none", baseline.why
    return job.beside or baseline.library, milliseconds(baseline.seconds)


def _several(jobs: list[JobAccount]) -> Table:
    """A row for each job."""
    table = Table(box=None, pad_edge=False)
    for heading in ("job", "trials", "best", "of peak", "baseline", "failed"):
        table.add_column(heading, justify="left" if heading == "job" else "right")
    for job in jobs:
        failed = sum(job.outcomes.values()) - job.outcomes["ok"]
        reached = None if job.best is None else job.roofline.share(job.best)
        share = "" if reached is None else f"{100 * reached:.0f} %"
        best = job.speed.removeprefix("best ")
        count = str(failed) if failed else ""
        title, beside = _words(job.title), _words(job.beside)
        table.add_row(title, str(job.trials), best, share, beside, count)
    return table


def _words(text: str) -> Text:
    """Text as it stands: neither escape codes nor rich's own marks in it mean anything."""
    return Text(printable(text))


def _grid() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    return table


def _bar(done: float, total: float) -> ProgressBar:
    return ProgressBar(total=total, completed=done, width=_BAR)
