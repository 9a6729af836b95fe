"""What every result file here begins with, and how rows are written."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def _git(*words: str) -> str:
    told = subprocess.run(["git", *words], cwd=HERE, text=True, capture_output=True, check=False)
    return told.stdout.strip()


def commit() -> str:
    """The commit that is running; with `+` when the code differs from it."""
    code = ("explorer", "ir", "costmodel", "records", "experiments/cpu/*.py")
    changed = _git("status", "--porcelain", "--", *(f":/{path}" for path in code))
    return _git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def header(*packages: str, threads: int | None = None) -> dict[str, Any]:
    """Hardware, versions, date, commit and the command that is running."""
    from ir.target import get_backend

    hardware = get_backend("cpu").hardware(threads)
    return {
        "hardware": hardware.name,
        **dict(hardware.facts),
        "isa": list(hardware.isa),
        "threads": hardware.threads,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", *packages)},
        },
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "command": f"python experiments/cpu/{' '.join([Path(sys.argv[0]).name, *sys.argv[1:]])}",
    }


def row(
    case: str, metric: str, unit: str, ours: float, goal: float, *, spread: float = 0.0,
    less: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """A measurement beside its goal; `less` says that smaller is better."""
    high, low = (goal, ours) if less else (ours, goal)
    ratio = high / low if low else (1.0 if high == low else float(high > low) * 1e9)
    return {
        "case": case, "metric": metric, "unit": unit, "ours": ours, "peer": "goal",
        "peer_value": goal, "ratio": ratio, "spread": spread,
    }  # fmt: skip


def write(path: Path, head: dict[str, Any], rows: list[dict[str, Any]], **more: Any) -> None:
    """The result file; whole or not at all."""
    scratch = path.with_suffix(".part")
    scratch.write_text(json.dumps({"header": head, "rows": rows, **more}, indent=1) + "\n")
    scratch.replace(path)


def show(rows: list[dict[str, Any]]) -> None:
    """The rows as a table on standard output."""
    for r in rows:
        met = "reached" if r["ratio"] >= 1 else "missed"
        print(
            f"{r['case']:28} {r['metric']:34} {r['ours']:>16,.6g} {r['unit']:14} "
            f"goal {r['peer_value']:>12,.6g}  {met}"
        )
