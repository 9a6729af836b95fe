"""How large the matmul space is, how fast it is sampled, how many trials a second a job makes.

python experiments/cpu/space_speed.py [--trials 256] [--draws 20000] [--out FILE]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

import report  # noqa: E402

_HELP = "import sys; from explorer.cli import main; sys.argv[:] = ['tilewright', '--help']; main()"


def repeated(action: Callable[[], object], times: int) -> tuple[float, float]:
    """Median seconds of an action, and the distance of the quartiles over the median."""
    samples = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        samples.append(time.perf_counter() - began)
    low, middle, high = statistics.quantiles(samples, n=4)
    return middle, (high - low) / middle


def space_rows(draws: int) -> list[dict[str, Any]]:
    """Size and sampling speed."""
    import numpy as np

    from explorer import load

    space = load("matmul", m=1024, n=1024, k=1024).space()
    summary = space.describe(np.random.default_rng(0))
    rng = np.random.default_rng(1)
    matrix = space.sample(rng, draws)
    if not space.legal(matrix).all():
        raise SystemExit("the space sampled an illegal schedule")
    seconds, spread = repeated(lambda: space.sample(rng, draws), 5)
    case = "matmul f32 1024x1024x1024"
    return [
        report.row(case, "schedules", "count", float(summary.size), 1e6),
        report.row(case, "legal schedules", "count", float(summary.legal), 1e6),
        report.row(
            case, "legal candidates sampled", "per second", draws / seconds, 5e4, spread=spread
        ),
    ]


def job_row(trials: int) -> dict[str, Any]:
    """A whole job, its processes, model and finals included, on a fresh store and cache."""
    from explorer import tune

    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEWRIGHT_CACHE"] = f"{folder}/cache"
        began = time.perf_counter()
        result = tune("matmul", m=512, n=512, k=512, trials=trials, store=f"{folder}/records.db")
        elapsed = time.perf_counter() - began
    print(f"best of {result.trials} trials: {result.gflops:,.0f} GFLOP/s", flush=True)
    return report.row(
        "matmul f32 512x512x512", "trials, end to end", "per second", result.trials / elapsed, 12.0
    )


def help_row() -> dict[str, Any]:
    """From a cold interpreter to the help text."""
    program = shutil.which("tilewright")
    command = [program, "--help"] if program else [sys.executable, "-c", _HELP]

    def ask() -> None:
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)

    ask()
    seconds, spread = repeated(ask, 7)
    return report.row("tilewright --help", "time", "s", seconds, 0.4, spread=spread, less=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=256)
    parser.add_argument("--draws", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=HERE / "space_speed.json")
    options = parser.parse_args()
    rows = [help_row(), *space_rows(options.draws), job_row(options.trials)]
    report.show(rows)
    report.write(options.out, report.header("xgboost", "llvmlite"), rows)


if __name__ == "__main__":
    main()
