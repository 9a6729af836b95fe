"""The README of results: a table of cases, groups against their goals, errors and memory.

Reads rows; measures nothing.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from cases import GOALS, Goal, all_cases
from quiet import DISTURBED

Row = dict[str, Any]
INSTALLED = "OpenBLAS as installed"
ERROR, MEMORY = "largest error", "workspace"


def best_rows(rows: list[Row]) -> list[Row]:
    """One row of time per case: against the fastest peer."""
    found: dict[str, Row] = {}
    for row in rows:
        if row["metric"] == "time" and (
            row["case"] not in found or row["ratio"] < found[row["case"]]["ratio"]
        ):
            found[row["case"]] = row
    return list(found.values())


def disturbed(row: Row) -> bool:
    """Whether others used so much of the machine that the ratio says little."""
    return (row.get("others") or 0.0) > DISTURBED


def render(head: dict[str, Any], rows: list[Row], notes: Path) -> str:
    """The whole page."""
    best = best_rows(rows)
    lines = [*_opening(head, rows), "", *_cases(rows, best), "", *_groups(rows, best)]
    for part in (_disturbed(best), _errors(rows), _memory(rows), _missing(head, best)):
        lines += ["", *part] if part else []
    if notes.exists():
        lines += ["", notes.read_text().strip()]
    return "\n".join(lines) + "\n"


def _opening(head: dict[str, Any], rows: list[Row]) -> list[str]:
    versions = ", ".join(f"{name} {value}" for name, value in head["versions"].items())
    commits = dict.fromkeys(row.get("commit", head["commit"]) for row in rows)
    lines = [
        "# Tuned kernels against torch and OpenBLAS on a CPU",
        "",
        f"{head['model']} ({head['hardware']}), {head['threads']} threads, "
        f"{', '.join(head['isa'])}. {versions}. {head['date']}, commit {', '.join(commits)}.",
        "",
        f"    {head['command']}",
    ]
    if "torch_ms" in head:
        times = ", ".join(f"{name} {value:.3f} ms" for name, value in head["torch_ms"].items())
        lines += [
            "",
            f"Torch runs with {head['torch_setting']}, the fastest on matmul f32 512^3 of: "
            f"{times}.",
        ]
    return [
        *lines,
        "",
        "Ratio: the peer's median time over ours, above 1 we are faster; against the fastest peer "
        "of each case. Spread: between the quartiles of our turns, over their median.",
    ]


def _cases(rows: list[Row], best: list[Row]) -> list[str]:
    installed = {row["case"]: row["ratio"] for row in rows if row["peer"] == INSTALLED}
    lines = [
        "| case | ours, ms | fastest peer | its ms | ratio | spread | trials | "
        f"ratio to {INSTALLED} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in best:
        second = f"{installed[r['case']]:.2f}" if r["case"] in installed else ""
        trials = r["trials"] + r.get("known", 0)
        lines.append(
            f"| {r['case']} | {r['ours']:.4f} | {r['peer']} | {r['peer_value']:.4f} | "
            f"{r['ratio']:.2f} | {100 * r['spread']:.0f} % | {trials} | {second} |"
        )
    return lines


def _groups(rows: list[Row], best: list[Row]) -> list[str]:
    lines = ["| group | geometric mean | least | goal | reached |", "|---|---|---|---|---|"]
    verdicts: dict[str, list[str]] = {"yes": [], "no": [], "in part": [], "disturbed": []}
    for group, goal in GOALS.items():
        ratios = [row["ratio"] for row in best if row["group"] == group]
        if not ratios:
            continue
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        reached = _verdict(group, goal, mean, ratios, rows)
        verdicts[reached].append(group)
        wanted = f"{goal}" + (", no more error" if group == "attention bf16" else "")
        lines.append(f"| {group} | {mean:.2f} | {min(ratios):.2f} | {wanted} | {reached} |")
    words = (
        ("Reached", "yes"),
        ("Not reached", "no"),
        ("Reached so far, cases missing", "in part"),
        ("Not decided, disturbed by other processes", "disturbed"),
    )
    said = [f"{word}: {', '.join(verdicts[key])}." for word, key in words if verdicts[key]]
    return [*lines, "", " ".join(said), *_installed(rows)]


def _installed(rows: list[Row]) -> list[str]:
    """The second ratio that goals ask for: against the library as it comes."""
    ratios = [row["ratio"] for row in rows if row["peer"] == INSTALLED]
    if not ratios:
        return []
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    return ["", f"Against {INSTALLED} on {len(ratios)} products: geometric mean {mean:.2f}."]


def _verdict(group: str, goal: Goal, mean: float, ratios: list[float], rows: list[Row]) -> str:
    met = mean >= (goal.geomean or 0) and min(ratios) >= (goal.least or 0)
    if group == "attention bf16":
        met = met and all(
            row["ratio"] >= 1 for row in rows if row["metric"] == ERROR and row["group"] == group
        )
    complete = len(ratios) == sum(case.group == group for case in all_cases())
    if met and any(disturbed(row) for row in rows if row["group"] == group):
        return "disturbed"
    return "no" if not met else "yes" if complete else "in part"


def _disturbed(best: list[Row]) -> list[str]:
    found = [f"{r['case']} ({100 * r['others']:.0f} %)" for r in best if disturbed(r)]
    unknown = [row["case"] for row in best if row.get("others") is None]
    lines = []
    if found:
        lines.append(
            "Disturbed: other processes used the machine during these cases, which slows spinning "
            f"threads most; to be measured again: {', '.join(found)}."
        )
    if unknown:
        lines.append(f"Not known whether the machine was quiet: {', '.join(unknown)}.")
    return lines


def _errors(rows: list[Row]) -> list[str]:
    found = [row for row in rows if row["metric"] == ERROR]
    if not found:
        return []
    return [
        "Largest absolute error against float64 after the last timed run, at three places of an "
        "axis:",
        "",
        "| case | ours | torch |",
        "|---|---|---|",
        *(f"| {r['case']} | {r['ours']:.2e} | {r['peer_value']:.2e} |" for r in found),
    ]


def _memory(rows: list[Row]) -> list[str]:
    found = [row for row in rows if row["metric"].startswith(MEMORY)]
    if not found:
        return []
    return [
        "Workspace of the gaussian product beside the n x n matrix:",
        "",
        "| size | ours, bytes | matrix, bytes |",
        "|---|---|---|",
        *(f"| {r['metric']} | {r['ours']:,.0f} | {r['peer_value']:,.0f} |" for r in found),
    ]


def _missing(head: dict[str, Any], best: list[Row]) -> list[str]:
    failed: dict[str, str] = head.get("failed", {})
    there = {row["case"] for row in best}
    missing = [case.name for case in all_cases() if case.name not in there]
    lines = [f"- {name}: failed: {failed[name]}" for name in missing if name in failed]
    open_ = [name for name in missing if name not in failed]
    lines += [f"- not measured yet: {', '.join(open_)}"] if open_ else []
    return ["Missing:", "", *lines] if lines else []
