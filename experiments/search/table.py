"""The README of the results: spaces, areas, fractions of the optimum. Reads rows; runs nothing."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

MARKS = ("25", "50", "100", "200")
OURS = "evolutionary"


def render(found: dict[str, Any], notes: Path) -> str:
    """The whole page."""
    lines = [*_opening(found), "", *_spaces(found), "", *_areas(found), "", *_marks(found)]
    if notes.exists():
        lines += ["", notes.read_text().strip()]
    return "\n".join(lines) + "\n"


def _opening(found: dict[str, Any]) -> list[str]:
    head = found["header"]
    versions = ", ".join(f"{name} {value}" for name, value in head["versions"].items())
    return [
        "# Search against peers on recorded spaces",
        "",
        f"Spaces recorded on {head['hardware']}. {versions}. {head['date']}, commit "
        f"{head['commit']}.",
        "",
        f"    {head['command']}",
        "",
        "Every legal schedule of each space was measured once (`record.py`). A search asks, the "
        "record answers, so all players see the same machine. The area is the mean, over 200 "
        "evaluations, of the optimum's time over the best time so far: 1 is the optimum at once.",
    ]


def _spaces(found: dict[str, Any]) -> list[str]:
    lines = [
        "| space | decisions | schedules | optimum, ms | median / optimum | within 5 % | use |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, facts in found["spaces"].items():
        use = "held out" if facts["held_out"] else "tuned on"
        lines.append(
            f"| {name} | {facts['decisions']} | {facts['schedules']} | {facts['milliseconds']} | "
            f"{facts['median']} | {facts['within5']} | {use} |"
        )
    return lines


def _areas(found: dict[str, Any]) -> list[str]:
    """A line for each space, a column for each player, and the means over all spaces."""
    players = _players(found)
    seeds = sorted({p["seeds"] for played in found["played"].values() for p in played.values()})
    lines = [f"Area, mean over {' or '.join(map(str, seeds))} seeds:", ""]
    lines.append(f"| space | {' | '.join(players)} |")
    lines.append("|---" * (len(players) + 1) + "|")
    sums: dict[str, list[float]] = {player: [] for player in players}
    for case, played in found["played"].items():
        values = [statistics.mean(played[p]["areas"]) if p in played else None for p in players]
        for player, value in zip(players, values, strict=True):
            sums[player] += [] if value is None else [value]
        lines.append(f"| {case} | {' | '.join(_cell(value) for value in values)} |")
    means = [statistics.mean(sums[p]) if len(sums[p]) == len(found["played"]) else None
             for p in players]  # fmt: skip
    lines.append(f"| mean | {' | '.join(_cell(value) for value in means)} |")
    return lines


def _marks(found: dict[str, Any]) -> list[str]:
    """Fractions of the optimum, means over the spaces that every player has searched."""
    players = _players(found)
    shared = [played for played in found["played"].values() if set(players) <= set(played)]
    lines = [f"Fraction of the optimum, mean over {len(shared)} spaces, after evaluations:", ""]
    lines += [f"| player | {' | '.join(MARKS)} |", "|---" * (len(MARKS) + 1) + "|"]
    for player in players:
        values = [statistics.mean(played[player]["at"][mark] for played in shared) if shared
                  else None for mark in MARKS]  # fmt: skip
        lines.append(f"| {player} | {' | '.join(_cell(value) for value in values)} |")
    return lines


def _players(found: dict[str, Any]) -> list[str]:
    names = {player for played in found["played"].values() for player in played}
    return [OURS, *sorted(names - {OURS})]


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
