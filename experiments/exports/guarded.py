"""Exported CPU kernels with every buffer flush against pages that nobody may touch: how many calls
are wrong, or crash.

OPENBLAS_NUM_THREADS=1 python experiments/exports/guarded.py [--cases 9] [--each 2] [--calls 80]
    [--seed 0] [--operators TEXT] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from ir.registry import load_operator, operator_names  # noqa: E402
from ir.target import get_backend  # noqa: E402
from tests.runtime.guarded import call_guarded, drawn, library  # noqa: E402

THREADS = (2, 1, 3)
FROM_C = 12  # every so many kernels run from their C text


def _git(*words: str) -> str:
    told = subprocess.run(["git", *words], cwd=HERE, text=True, capture_output=True, check=False)
    return told.stdout.strip()


def header() -> dict[str, Any]:
    """Hardware, versions, date, commit and the command that is running."""
    hardware = get_backend("cpu").hardware()
    changed = _git(
        "status", "--porcelain", "--", ":/explorer", ":/ir", ":/tests/runtime/guarded.py"
    )
    return {
        "hardware": hardware.name,
        "isa": list(hardware.isa),
        "threads": list(THREADS),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("numpy", "llvmlite")},
        "date": time.strftime("%Y-%m-%d"),
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if changed else ""),
        "command": " ".join(["python experiments/exports/guarded.py", *sys.argv[1:]]),
    }


def run(options: argparse.Namespace, folder: Path) -> Counter[str]:
    """Counts by operator, and each failure with what it takes to see it again; kept in the file."""
    names = [name for name in operator_names() if options.operators in name]
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    failures: list[dict[str, Any]] = []
    operators = [load_operator(name) for name in names]
    head, began = header(), time.perf_counter()
    kernels = drawn(operators, options.cases, options.each, THREADS, options.seed)
    for number, (case, schedule, kernel) in enumerate(kernels):
        count = counts[case.operator]
        if kernel is None:
            count["refused"] += 1
            continue
        from_c = number % FROM_C == FROM_C - 1
        built = library(kernel, folder / str(number), folder / "cache", from_c=from_c)
        told = call_guarded(case, kernel, built, options.calls, options.seed + number)
        count += Counter(kernels=1, from_c=int(from_c), calls=told.calls + bool(told.wrong))
        if told.wrong:
            count["wrong"] += 1
            failures.append(
                {
                    "operator": case.operator, "arguments": dict(case.arguments),
                    "threads": kernel.threads, "schedule": schedule.to_json(), "wrong": told.wrong,
                }
            )  # fmt: skip
            print(f"{case.operator} {dict(case.arguments)}: {told.wrong}", flush=True)
        total = sum(counts.values(), Counter())
        found = {"operators": counts, "total": total, "failures": failures}
        found["seconds"] = round(time.perf_counter() - began)
        options.out.write_text(json.dumps(head | found, indent=2, default=str) + "\n")
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=9, help="programs of each operator")
    parser.add_argument("--each", type=int, default=2, help="schedules of each program")
    parser.add_argument("--calls", type=int, default=80, help="calls of each kernel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--operators", default="", help="only those whose name contains this text")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        total = run(options, Path(folder))
    print(f"{total['calls']} calls of {total['kernels']} kernels: {total['wrong']} wrong")


if __name__ == "__main__":
    main()
