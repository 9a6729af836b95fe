"""What a report says of a job's space: which decisions matter, alone and together, and how every
right kernel decided. Reads a `story.Story`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from explorer.landscape import Influence, by_value, influence, known_to
from explorer.outcome import Outcome
from explorer.report import figures
from explorer.report.figures import Dimension, Option
from explorer.report.units import TimeUnit
from explorer.story import Story
from ir.schedule import Schedule
from ir.space import Decision, Space

STRIPS = 6  # decisions that are shown value by value
BARS = 12  # decisions whose importance is shown
AXES = 9  # decisions of parallel coordinates
LINES = 2_000  # kernels of parallel coordinates, the fastest
TELLING = 0.005  # share of the variation from which a pair is worth a word
UNSAID = "-"  # the value of a decision that is not in force

Trials = Sequence[tuple[Schedule, Outcome]]


def space_sections(story: Story, unit: TimeUnit) -> tuple[dict[str, Any], dict[str, Option]]:
    """Values for the template, and figures by name."""
    space = story.space()
    # Times of the search alone: finals may time whole calls, and run at other clocks.
    trials = known_to(space, [(trial.schedule, trial.outcome) for trial in story.trials])
    found = influence(space, trials)
    names = list(found.alone) or _by_spread(by_value(space, trials))
    drawn = _weights(found)
    strips: list[tuple[str, str]] = []
    for name in names:
        groups = _groups(space.decision(name), trials)
        if len(groups) > 1 and len(strips) < STRIPS:
            drawn[f"strip{len(strips)}"] = figures.strip(name, groups, unit)
            strips.append((f"strip{len(strips)}", space.decision(name).why))
    drawn |= _parallel(space, names, trials, unit)
    pairs = [
        (one, two, f"{share:.1%}")
        for (one, two), share in found.together.items()
        if share >= TELLING
    ]
    return {"strips": strips, "size": space.size, "unit": unit.name, "pairs": pairs[:5]}, drawn


def _weights(found: Influence) -> dict[str, Option]:
    """Bars of what decisions explain alone, and the square of their pairs."""
    if not found.alone:
        return {}
    drawn = {"importance": figures.shares(dict(list(found.alone.items())[:BARS]))}
    if found.together:
        named = dict.fromkeys(name for pair in found.together for name in pair)
        names = [name for name in found.alone if name in named]
        drawn["together"] = figures.together(names, found.together)
    return drawn


def _groups(decision: Decision, trials: Trials) -> dict[str, list[float]]:
    """Times by value, in the order of the domain."""
    groups: dict[str, list[float]] = {}
    for schedule, outcome in trials:
        if outcome.ok and outcome.seconds is not None:
            groups.setdefault(shown(schedule.get(decision.name, "")), []).append(outcome.seconds)
    return {value: groups[value] for value in map(shown, decision.domain) if value in groups}


def _parallel(
    space: Space, names: Sequence[str], trials: Trials, unit: TimeUnit
) -> dict[str, Option]:
    """A line for each right kernel through the decisions that matter most, if any varies."""
    right = sorted(
        ((o.seconds, schedule) for schedule, o in trials if o.ok and o.seconds is not None),
        key=lambda pair: pair[0],
    )[:LINES]
    dimensions: list[Dimension] = []
    for name in names:
        taken = {shown(schedule.get(name, "")) for _, schedule in right}
        order = [UNSAID, *map(shown, space.decision(name).domain)]
        if len(taken) > 1 and len(dimensions) < AXES:
            values = tuple(value for value in dict.fromkeys(order) if value in taken)
            dimensions.append(Dimension(name, values))
    if not dimensions:
        return {}
    rows = [([shown(s.get(one.name, "")) for one in dimensions], time) for time, s in right]
    return {"parallel": figures.parallel(dimensions, rows, unit)}


def shown(value: object) -> str:
    """A decision's value as a page has it."""
    return str(value) or UNSAID


def _by_spread(effects: Mapping[str, Sequence[Any]]) -> list[str]:
    """Decisions by how far the best times of their values are apart."""

    def spread(name: str) -> float:
        bests = [effect.best for effect in effects[name] if effect.best]
        return max(bests) / min(bests) if len(bests) > 1 else 1.0

    return sorted(effects, key=spread, reverse=True)


def differences(story: Story) -> dict[str, Any]:
    """The best schedule beside the other finalists and the first right one: what is not alike."""
    best = story.best
    right = [trial for trial in story.finals if trial.outcome.ok and trial.outcome.seconds]
    others = sorted(right, key=lambda trial: trial.outcome.seconds or 0.0)
    first = [trial for trial in story.trials if trial.outcome.ok][:1]
    unit = TimeUnit.for_seconds(best.outcome.seconds or 0.0)
    columns = [("best", best)]
    columns += [(f"finalist {n}", t) for n, t in enumerate(others, start=1) if t is not best]
    columns += [("the first", trial) for trial in first]
    columns = [c for n, c in enumerate(columns) if n == 0 or c[1].schedule != best.schedule]
    heads = [(name, unit.text(trial.outcome.seconds or 0.0)) for name, trial in columns]
    rows = []
    for decision in story.space().decisions:
        values = [shown(trial.schedule.get(decision.name, "")) for _, trial in columns]
        if len(set(values)) > 1:
            rows.append((decision.name, decision.why, [(v, v != values[0]) for v in values]))
    return {"compared": heads, "differing": rows}
