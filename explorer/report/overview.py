"""What a page says of all jobs of a run before it tells each: one line each, and their courses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from explorer.errors import NothingValid
from explorer.report import figures
from explorer.report.figures import Option
from explorer.report.units import TimeUnit, rate
from explorer.story import Story

NOTHING = "-"


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in the table; `anchor` is where its own sections begin, "" if nothing was valid."""

    title: str
    anchor: str
    best: str
    rate: str
    share: str
    ratio: str
    trials: int
    right: int


@dataclass(frozen=True, slots=True)
class Overview:
    """The head of a page about several jobs."""

    title: str
    facts: tuple[tuple[str, str], ...]
    summary: str
    jobs: tuple[JobRow, ...]
    figures: Mapping[str, Option]


def overview(stories: Sequence[Story]) -> Overview:
    """All jobs of a run side by side; raises NothingValid where none has a valid trial."""
    rows = tuple(_row(number, story) for number, story in enumerate(stories))
    found = [(row, story) for row, story in zip(rows, stories, strict=True) if row.anchor]
    if not found:
        raise NothingValid(f"none of the run's {len(rows)} jobs has a valid trial")
    first = stories[0]
    trials = sum(row.trials for row in rows)
    facts = (
        ("jobs", ", ".join(story.job.id for story in stories)),
        ("begun", first.job.created[:19].replace("T", " ") + " UTC"),
        ("target", f"{first.hardware.target}, {first.hardware.threads} threads"),
        ("machine", str(dict(first.hardware.facts).get("model", first.hardware.name))),
    )
    lines = {row.title: _course(story) for row, story in found}
    summary = f"{len(rows)} jobs shared {trials} trials; {len(found)} of them have a right kernel."
    drawn = {"courses": figures.courses(lines, "seconds of the run")}
    return Overview(f"{len(rows)} jobs of one run", facts, summary, rows, drawn)


def _row(number: int, story: Story) -> JobRow:
    right = sum(trial.outcome.ok for trial in story.trials)
    try:
        seconds = story.best.outcome.seconds or 0.0
    except NothingValid:
        told = (NOTHING, NOTHING, NOTHING, NOTHING)
        return JobRow(story.title, "", *told, len(story.trials), right)
    program, share = story.workload.program, story.roofline.share(seconds)
    each = rate(program.flops / seconds) if program.flops else rate(program.bytes / seconds, "B")
    beside = None if story.settled is None else story.settled.beside_baseline
    ratio = None if beside is None else beside.ratio
    return JobRow(
        story.title, f"job-{number}", TimeUnit.for_seconds(seconds).text(seconds), each,
        NOTHING if share is None else f"{share:.0%}",
        NOTHING if ratio is None else f"{ratio:.2f}x",
        len(story.trials), right,
    )  # fmt: skip


def _course(story: Story) -> list[tuple[float, float]]:
    """The best so far over the last best, by seconds."""
    stairs: list[tuple[float, float]] = []
    for trial in story.trials:
        seconds = trial.outcome.seconds if trial.outcome.ok else None
        if seconds is not None and (not stairs or seconds < stairs[-1][1]):
            stairs.append((trial.elapsed, seconds))
    end = max((trial.elapsed for trial in story.trials), default=0.0)
    least = stairs[-1][1] if stairs else 1.0
    return [(round(x, 3), round(y / least, 4)) for x, y in [*stairs, (end, least)]]
