"""The README of the results: peers, what a model adds, overhead, proposals. Runs nothing.

    python experiments/search/table.py

NOTES.md is the prose; where it says {helps}, {overhead} and {proposals} stand the tables of these
results.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MARKS = ("25", "50", "100", "200")
OURS = "evolutionary"


def write() -> None:
    """Make the README anew."""
    found = json.loads((HERE / "results.json").read_text())
    (HERE / "README.md").write_text(render(found))


def render(found: dict[str, Any]) -> str:
    """The whole page; `found` is what is in results.json."""
    lines = [*_opening(found), "", *_spaces(found), "", *_areas(found), "", *_marks(found), ""]
    notes = (HERE / "NOTES.md").read_text().strip()
    for name, table in (("helps", _helps), ("overhead", _overhead), ("proposals", _proposals)):
        path = HERE / f"{name}.json"
        told = table(json.loads(path.read_text())) if path.exists() else ["Not measured yet."]
        notes = notes.replace(f"{{{name}}}", "\n".join(told))
    return "\n".join([*lines, notes]) + "\n"


def _helps(found: dict[str, Any]) -> list[str]:
    """64 evolved trials against 256 random ones."""
    lines = ["| workload | 64 trials, ms | random, 256 trials, ms | ratio |", "|---|---|---|---|"]
    for row in found["rows"]:
        lines.append(
            f"| {row['case']} | {row['ours']:.4g} | {row['peer_value']:.4g} | {row['ratio']:.3f} |"
        )
    good = sum(row["ratio"] >= 1 for row in found["rows"])
    commit = found["header"]["commit"]
    return [*lines, "", f"At least as good on {good} of {len(found['rows'])} (commit {commit})."]


def _overhead(found: dict[str, Any]) -> list[str]:
    """Shares of the wall clock, and the memory of the long search."""
    rows = [row for row in found["rows"] if "seconds" in row]
    phases = list(rows[-1]["seconds"]) if rows else []
    lines = [f"| workload | trials | wall, s | overhead | {' | '.join(phases)} |"]
    lines.append("|---" * (len(phases) + 4) + "|")
    for row in rows:
        known = [word for word in (row["target"], row["note"]) if word not in ("", "cpu")]
        name = row["case"] + (f" ({', '.join(known)})" if known else "")
        cells = [f"{row['seconds'].get(phase, 0.0) / row['wall']:.1%}" for phase in phases]
        lines.append(
            f"| {name} | {row['trials']} | {row['wall']} | {row['ours']:.1%} | "
            f"{' | '.join(cells)} |"
        )
    for row in found["rows"]:
        lines += _memory(row) if "growth" in row else []
    return lines


def _proposals(found: dict[str, Any]) -> list[str]:
    """Milliseconds a proposal, of all and by how many went before."""
    parts = list(found["rows"][0]["parts"])[1:]
    lines = [f"| program | decisions | constraints | ms a proposal | {' | '.join(parts)} |"]
    lines.append("|---" * (len(parts) + 4) + "|")
    for row in found["rows"]:
        cells = [row["case"], row["decisions"], row["constraints"], row["ours"]]
        cells += [row["parts"][part] for part in parts]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    trials, seeds = found["rows"][0]["trials"], len(found["rows"][0]["proposed"])
    told = f"{trials} trials, medians of {seeds} seeds, commit {found['header']['commit']}."
    notes = dict.fromkeys(row["note"] for row in found["rows"] if row["note"])
    return [*lines, "", " ".join([told, *notes])]


def _memory(row: dict[str, Any]) -> list[str]:
    """Megabytes by process, at every 1,000 trials."""
    names = list(row["growth"])
    lines = ["", f"| {row['case']}, trials | {' | '.join(f'{name}, MB' for name in names)} |"]
    lines.append("|---" * (len(names) + 1) + "|")
    for sample in row["samples"]:
        if sample["trials"] == row["settled"] or sample["trials"] % 1000 == 0:
            cells = " | ".join(f"{sample.get(name, 0.0):.1f}" for name in names)
            lines.append(f"| {sample['trials']:.0f} | {cells} |")
    return lines


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


if __name__ == "__main__":
    write()
