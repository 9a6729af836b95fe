"""The README of the results. Reads rows; runs nothing.

    python experiments/recorded/table.py

NOTES.md is the prose.
"""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OURS = "evolutionary"


def write() -> None:
    found = json.loads((HERE / "results.json").read_text())
    (HERE / "README.md").write_text(render(found))


def render(found: dict[str, Any]) -> str:
    """The whole page; `found` is what is in results.json."""
    notes = (HERE / "NOTES.md").read_text().strip()
    parts = [*_opening(found), "", *_spaces(found), "", *_scores(found), "", *_marks(found), ""]
    return "\n".join([*parts, notes]) + "\n"


def _opening(found: dict[str, Any]) -> list[str]:
    head = found["header"]
    versions = ", ".join(f"{name} {value}" for name, value in head["versions"].items())
    return [
        "# Search where measurements are few",
        "",
        f"{head['hardware']}. {versions}. {head['date']}, commit {head['commit']}.",
        "",
        f"    {head['command']}",
        "",
        "Recorded spaces of other tuners' kernels: a search asks, the record answers, failures "
        "included. P is the mean, over evaluations 20 to 200, of (R - F) / (R - O): F the best "
        "time so far, in the mean over seeds; R the expected best of as many random draws without "
        "replacement; O the optimum. 0 is random, 1 the optimum at once.",
    ]


def _spaces(found: dict[str, Any]) -> list[str]:
    lines = [
        "| space | decisions | schedules | failures | median / optimum | within 5 % | use |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in _names(found):
        space = found["spaces"][name]
        use = "tuned on" if space["tuned_on"] else "held out"
        lines.append(
            f"| {name} | {space['decisions']} | {space['schedules']} | {space['failures']} | "
            f"{space['median']} | {space['within5']} | {use} |"
        )
    return lines


def _scores(found: dict[str, Any]) -> list[str]:
    """P by space and player, with its standard error where it is ours, and means by use."""
    players = _players(found)
    seeds = max(p["seeds"] for played in found["played"].values() for p in played.values())
    lines = [f"P, {seeds} seeds:", "", f"| space | {' | '.join(players)} |"]
    lines.append("|---" * (len(players) + 1) + "|")
    for name in _names(found):
        cells = [_cell(found["played"][name].get(player)) for player in players]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    groups = {
        "mean": _names(found),
        "mean of those tuned on": [n for n in _names(found) if found["spaces"][n]["tuned_on"]],
        "mean of those held out": [n for n in _names(found) if not found["spaces"][n]["tuned_on"]],
    }
    for title, names in groups.items():
        cells = [_mean(found, names, player, "p") for player in players]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    cells = [_mean(found, _names(found), player, "milliseconds") for player in players]
    return [*lines, f"| ms a proposal | {' | '.join(cells)} |"]


def _marks(found: dict[str, Any]) -> list[str]:
    """P and the fraction of the optimum after so many evaluations, means over all spaces."""
    names = _names(found)
    marks = list(next(iter(found["played"][names[0]].values()))["at"])
    head = [f"P({mark})" for mark in marks] + [f"optimum / best({mark})" for mark in marks]
    lines = [f"| player | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|"]
    for player in _players(found):
        rows = [found["played"][name].get(player) for name in names]
        cells = [
            f"{statistics.mean(row[kind][mark] for row in rows):.3f}" if all(rows) else ""
            for kind in ("at", "optimum_at")
            for mark in marks
        ]
        lines.append(f"| {player} | {' | '.join(cells)} |")
    return lines


def _mean(found: dict[str, Any], names: list[str], player: str, what: str) -> str:
    rows = [found["played"][name].get(player) for name in names]
    return f"{statistics.mean(row[what] for row in rows):.3f}" if rows and all(rows) else ""


def _cell(played: dict[str, Any] | None) -> str:
    if played is None:
        return ""
    error = statistics.stdev(played["by_seed"]) / math.sqrt(len(played["by_seed"]))
    return f"{played['p']:.3f} ± {error:.3f}"


def _names(found: dict[str, Any]) -> list[str]:
    """Spaces tuned on first."""
    return sorted(found["spaces"], key=lambda name: (not found["spaces"][name]["tuned_on"], name))


def _players(found: dict[str, Any]) -> list[str]:
    names = {player for played in found["played"].values() for player in played}
    return sorted(names, key=lambda name: (name != OURS, name))


if __name__ == "__main__":
    write()
