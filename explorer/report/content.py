"""What a report says of a job: numbers, tables, figures and commands, ready for the template.

It reads a `story.Story` and measures nothing.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from explorer.comparison import half_interval
from explorer.disturbance import Crowd, Disturbance, crowd_of, warning, worst
from explorer.outcome import Outcome
from explorer.quality import quality_rows
from explorer.report import figures
from explorer.report.disassembly import Listing
from explorer.report.figures import Interval, Mark, Option
from explorer.report.space import differences, space_sections
from explorer.report.units import TimeUnit, rate
from explorer.story import Story, Trial, word
from ir.errors import TilewrightError
from ir.program import Program

COMPARABLE = 1.5  # times a finalist's time: others are too far away for one chart
LIBRARY = "baseline"  # what the array library is called beside finalists


@dataclass(frozen=True, slots=True)
class Failure:
    """A kind of failure: how often, and one example with its schedule."""

    status: str
    count: int
    detail: str
    schedule: str


@dataclass(frozen=True, slots=True)
class Content:
    """Values of the template by name, and figures by the name under which it places them."""

    values: Mapping[str, Any]
    figures: Mapping[str, Option]


def content(story: Story, listing: Listing | None = None) -> Content:
    """What stands on a job's page; raises NothingValid for a job without a valid trial.

    `listing` is the machine code of the best kernel, if that was asked for.
    """
    best = story.best
    seconds = best.outcome.seconds or 0.0
    unit = TimeUnit.for_seconds(seconds)
    marks = _marks(story, False)
    space, drawn = space_sections(story, unit)
    drawn |= {
        "by_trial": figures.course(marks, unit, "trial"),
        "by_time": figures.course(_marks(story, True), unit, "seconds of the search"),
        **_accuracy(story),
        **_roofline(story, marks, unit),
        **_intervals(story, unit),
    }
    values = {
        "title": story.title,
        "facts": _facts(story),
        "tiles": _tiles(story, seconds, unit),
        "warnings": _warnings(story, seconds),
        "doubted": any(mark.doubted for mark in marks),
        **space,
        **differences(story),
        "bound": story.roofline.bound,
        "exceeded": story.roofline.exceeded(seconds),
        "failures": _failures(story.trials),
        **_finalists(story),
        "decisions": _decisions(story, best),
        "texts": _texts(story, best),
        "listing": listing,
        "commands": _commands(story, best),
        "schedule": best.schedule.to_json(),
    }
    return Content(values, drawn)


def _accuracy(story: Story) -> dict[str, Option]:
    """How well each batch was scored before it was learnt from, where the search noted it."""
    rows = quality_rows(story.options)
    return {"accuracy": figures.accuracy(rows)} if rows else {}


def _facts(story: Story) -> list[tuple[str, str]]:
    options, hardware = story.options, story.hardware
    where = f"{hardware.target}, {hardware.threads} threads"
    facts = dict(hardware.facts)
    return [
        ("job", f"{story.job.id}, {story.job.state}"),
        ("begun", story.job.created[:19].replace("T", " ") + " UTC"),
        ("target", ", ".join(filter(None, (where, story.workload.placed)))),
        ("machine", f"{facts.get('model', hardware.name)} ({' '.join(hardware.isa)})"),
        ("search", f"{options.get('strategy')}, seed {options.get('seed')}"),
        ("generator", story.generator),
    ]


def _tiles(story: Story, seconds: float, unit: TimeUnit) -> list[tuple[str, str]]:
    """The figures that one looks for first."""
    program = story.workload.program
    share = story.roofline.share(seconds)
    right = sum(trial.outcome.ok for trial in story.trials)
    elapsed = max((trial.elapsed for trial in story.trials), default=0.0)
    tiles = [("best time", unit.text(seconds)), ("rate", _rate(program, seconds))]
    if share is not None:
        tiles.append(("of the machine's peak", f"{share:.0%}"))
    beside = None if story.settled is None else story.settled.beside_baseline
    if beside is not None and beside.ratio is not None:
        tiles.append((f"of the speed of {beside.name}", f"{beside.ratio:.2f}x"))
    first = next((trial.outcome.seconds for trial in story.trials if trial.outcome.ok), None)
    if first is not None:
        tiles.append(("times as fast as the first", f"{first / seconds:.2f}"))
    tiles += [("trials", f"{len(story.trials)}"), ("of them right", f"{right}")]
    tiles.append(("search", f"{elapsed:.0f} s"))
    noise = _disturbance(story).noise
    if noise is not None:
        tiles.append(("noise of a trial", f"{noise:.1%}"))
    doubted = _disturbance(story).crowded
    if doubted:
        tiles.append(("trials beside other programs", f"{doubted}"))
    return tiles


def _rate(program: Program, seconds: float) -> str:
    """Operations a second; of what computes nothing, bytes of its tensors."""
    return rate(program.flops / seconds) if program.flops else rate(program.bytes / seconds, "B")


def _disturbance(story: Story) -> Disturbance:
    found = Disturbance()
    for trial in story.trials:
        found.note(trial.outcome)
    return found


def _warnings(story: Story, seconds: float) -> list[str]:
    """What puts figures of the page in doubt."""
    said = [warning(_disturbance(story).crowding)]
    crowd = crowd_of(story.best.outcome)
    if crowd is not None:
        said.append(f"{crowd.words} while the best kernel was timed: it may be faster than that")
    if story.roofline.doubts(seconds):
        said.append(
            "the best kernel is faster than the peak that was measured for this machine, which was "
            "measured too low: no share of it is told"
        )
    return [f"{words[0].upper()}{words[1:]}." for words in said if words]


def _marks(story: Story, by_time: bool) -> list[Mark]:
    marks = []
    for number, trial in enumerate(story.trials, start=1):
        outcome = trial.outcome
        seconds = outcome.seconds if outcome.ok else None
        said = outcome.status if seconds is None else f"{seconds * 1e3:.4g} ms"
        crowd = crowd_of(outcome)
        tip = f"trial {number}: {said}{'' if crowd is None else f' ({crowd.words})'}"
        marks.append(Mark(trial.elapsed if by_time else number, seconds, tip, crowd is not None))
    return marks


def _roofline(story: Story, marks: Sequence[Mark], unit: TimeUnit) -> dict[str, Option]:
    roof, best = story.roofline, story.best.outcome.seconds or 0.0
    if not roof.known or not roof.flops or roof.exceeded(best):
        return {}
    return {"roofline": figures.roofline(roof, marks, best, unit)}


def _failures(trials: Sequence[Trial]) -> list[Failure]:
    counts = Counter(trial.outcome.status for trial in trials if not trial.outcome.ok)
    found = []
    for status, count in counts.most_common():
        example = next(trial for trial in trials if trial.outcome.status == status)
        detail = example.outcome.detail or "no more is known"
        found.append(Failure(status, count, detail, example.schedule.to_json()))
    return found


def _ranked(story: Story) -> list[tuple[Trial, Interval]]:
    """The finalists that were right, the fastest first."""
    right = [trial for trial in story.finals if trial.outcome.ok and trial.outcome.seconds]
    ranked = sorted(right, key=lambda trial: trial.outcome.seconds or math.inf)
    best = story.best
    return [
        (trial, _interval(f"finalist {place}", trial.outcome, trial is best))
        for place, trial in enumerate(ranked, start=1)
    ]


def _intervals(story: Story, unit: TimeUnit) -> dict[str, Option]:
    found = [interval for _, interval in _ranked(story)]
    rows = [*found, *_library(story, found)] if found else []
    return {"finalists": figures.intervals(rows, unit)} if rows else {}


def _finalists(story: Story) -> dict[str, Any]:
    """Whether the winner's lead is more than noise, and the schedules."""
    ranked = _ranked(story)
    if not ranked:
        return {"verdict": "", "beside": [], "finalist_schedules": []}
    crowd = worst(trial.outcome for trial, _ in ranked)
    found = [interval for _, interval in ranked]
    names = [(interval.name, trial.schedule.to_json()) for trial, interval in ranked]
    return {
        "verdict": _verdict(found) if crowd is None else _abstention(crowd),
        "finalist_schedules": names,
        "beside": _beside(story),
    }


def _library(story: Story, found: Sequence[Interval]) -> list[Interval]:
    """The baseline as a line of the chart, unless finalists would shrink to dots beside it."""
    baseline = story.baseline
    if baseline is None or baseline.outcome is None or baseline.seconds is None:
        return []
    near = found[0].median / COMPARABLE < baseline.seconds < found[-1].median * COMPARABLE
    return [_interval(LIBRARY, baseline.outcome, False)] if near else []


def _interval(name: str, outcome: Outcome, best: bool) -> Interval:
    median, half = outcome.seconds or 0.0, half_interval(outcome)
    return Interval(name, median, max(0.0, median - half), median + half, best)


def _beside(story: Story) -> list[str]:
    """The winner beside the library, and the new finalists beside the best before them."""
    lines = []
    settled, baseline = story.settled, story.baseline
    if settled is not None and settled.beside_baseline is not None:
        lines.append(f"The winner: {settled.beside_baseline.words}.")
    elif baseline is not None and baseline.why:
        lines.append(f"There is no baseline: {baseline.why}.")
    if settled is not None and settled.beside_incumbent is not None:
        stays = "The best of earlier searches stays" if settled.kept else "It is beaten"
        lines.append(f"The fastest new finalist: {settled.beside_incumbent.words}. {stays}.")
    return lines


def _verdict(found: Sequence[Interval]) -> str:
    alike = sum(other.low <= found[0].high for other in found[1:])
    if len(found) == 1:
        return "There was one finalist."
    who = "winner" if found[0].best else "fastest"
    if not alike:
        return f"The {who}'s lead over all others is larger than the noise."
    if alike == len(found) - 1:
        return f"None of the others can be told from the {who} by these times."
    return f"{alike} of the other {len(found) - 1} cannot be told from the {who} by these times."


def _abstention(crowd: Crowd) -> str:
    words = f"{crowd.words[0].upper()}{crowd.words[1:]}"
    return f"{words} meanwhile: what was left is in these times, and no interval tells how much."


def _decisions(story: Story, best: Trial) -> list[tuple[str, str, str]]:
    space = story.space()
    return [
        (decision.name, str(best.schedule.get(decision.name, "")) or "-", decision.why)
        for decision in space.decisions
    ]


def _texts(story: Story, best: Trial) -> list[tuple[str, str]]:
    """The kernel in every language, shortest first; nothing where it cannot be made any more."""
    try:
        texts = story.kernel(best.schedule).texts
    except (TilewrightError, KeyError):
        return []
    return sorted(texts, key=lambda pair: len(pair[1]))


def _commands(story: Story, best: Trial) -> list[tuple[str, str]]:
    """Command lines that rebuild, export and search again."""
    words = story.words
    where = ["--target", story.job.target]
    if story.options.get("threads"):
        where += ["--threads", str(story.options["threads"])]
    if story.workload.placed:
        where += ["--memory", story.workload.memory]
    chosen = ["--schedule", best.schedule.to_json()]
    search = ["--strategy", str(story.options.get("strategy"))]
    search += ["--seed", str(story.options.get("seed")), "--trials", str(len(story.trials))]
    for name, value in story.options.get("pins", {}).items():
        search += ["--pin", f"{name}={word(value)}"]
    lines = (
        ("Build the kernel again, check it and time it", ["run", *words, *where, *chosen]),
        ("Export it as files that need no Tilewright", ["export", *words, *where, *chosen]),
        ("Search again", ["tune", *words, *where, *search]),
    )
    return [(what, shlex.join(["tilewright", *line])) for what, line in lines]
