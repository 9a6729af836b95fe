"""Ranges of extents on a CPU: regret beside searches of single extents, and what dispatch costs.

    python experiments/ranges/ranges.py [--trials 600] [--alone 64] [--seeds 3] [--out results.json]

Each range is searched once for each seed. At extents that this search never measured, the schedule
that it gives runs in turns with that of a search of this extent alone, which is made once.
`results.json` holds what came of it.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import llvmlite
import numpy as np

import explorer
from explorer.disturbance import crowd_of
from explorer.exporter import find_linker
from explorer.measure import Measurer
from explorer.outcome import Outcome, kernel_of
from explorer.settings import cache_dir
from explorer.shapes.result import FamilyResult
from explorer.workload import Workload
from ir.schedule import Schedule

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("matmul", {"m": "1..2048", "n": 512, "k": 512}),
    ("softmax", {"m": "1..2048", "n": 1024}),
)
EXTENTS = (
    3,
    5,
    7,
    11,
    17,
    23,
    34,
    50,
    77,
    105,
    137,
    199,
    300,
    421,
    500,
    690,
    777,
    1001,
    1303,
    1900,
)
TABLE = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
ROUNDS = 5

C = """\
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "single.h"
#include "many.h"
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
int main(void) {
  float *a = aligned_alloc(64, 1 << 16), *b = aligned_alloc(64, 1 << 16);
  float *c = aligned_alloc(64, 1 << 16);
  for (int i = 0; i < 1 << 14; i++) a[i] = b[i] = 1;
  long sum = 0, calls = 20000;
  for (int round = 0; round < 41; round++) {
    double s0 = now();
    for (int i = 0; i < calls; i++) single(a, b, c);
    double s1 = now();
    for (int i = 0; i < calls; i++) sum += many(1, a, b, c);
    double s2 = now();
    for (int i = 0; i < calls; i++) { sum += many_workspace(512 >> (i & 3)); }
    double s3 = now();
    printf("%.3f %.3f %.3f\\n", 1e9 * (s1 - s0) / calls, 1e9 * (s2 - s1) / calls,
           1e9 * (s3 - s2) / calls);
  }
  return sum == 42;
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--alone", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.json"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for (operator, arguments), seed in itertools.product(CASES, range(options.seeds)):
            rows += _case(operator, arguments, seed, options, Path(folder))
            options.out.write_text(json.dumps(_header(options) | {"rows": rows}, indent=1) + "\n")
        rows += _dispatch(Path(folder))
    options.out.write_text(json.dumps(_header(options) | {"rows": rows}, indent=1) + "\n")


def _header(options: argparse.Namespace) -> dict[str, Any]:
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {
        "hardware": explorer.load("softmax", m=1, n=1).hardware.key,
        "versions": {"python": platform.python_version(), "numpy": np.__version__,
                     "llvmlite": llvmlite.__version__},
        "date": datetime.date.today().isoformat(),
        "commit": git.stdout.strip(),
        "command": " ".join(["python", *sys.argv]),
        "trials": options.trials,
        "alone": options.alone,
    }  # fmt: skip


def _case(
    operator: str, arguments: dict[str, Any], seed: int, options: argparse.Namespace, folder: Path
) -> list[dict[str, Any]]:
    began = time.monotonic()
    found = explorer.tune_range(
        operator,
        store=folder / f"{operator}-{seed}.db",
        trials=options.trials,
        seed=seed,
        **arguments,
    )
    title = " ".join([operator, *(f"{n}={v}" for n, v in arguments.items())])
    print(title, found.trials, "trials", f"{found.elapsed:.0f} s", len(found.schedules), flush=True)
    measured = {row.point[0] for row in found.table.rows} | {r.point[0] for r in found.regrets}
    unseen = [extent for extent in EXTENTS if extent not in measured]
    rows = [_row(title, extent, seed, found, options, folder) for extent in unseen]
    losses = [row["loss"] for row in rows]
    summary = {
        "case": title, "seed": seed, "metric": "regret",
        "mean": statistics.mean(losses), "worst": max(losses),
        "told_mean": found.mean_regret, "told_worst": found.worst_regret,
        "trials": found.trials, "seconds": round(found.elapsed, 1),
        "searched": [point[0] for point in found.searched], "schedules": len(found.schedules),
        "all_seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    print(json.dumps(summary), flush=True)
    return [*rows, summary]


def _row(
    title: str, extent: int, seed: int, found: FamilyResult, options: argparse.Namespace,
    folder: Path,
) -> dict[str, Any]:  # fmt: skip
    workload = found.family.workload((extent,))
    alone = _alone(workload, options.alone, folder)
    mine = found.winner(**{found.family.names[0]: extent}).schedule
    own = list(dict.fromkeys([mine, alone]))
    with Measurer(
        workload.program, workload.target, workload.hardware, cache_dir=cache_dir(),
        memory=workload.memory,
    ) as measurer:  # fmt: skip
        outcomes = dict(zip(own, measurer.compete(own, ROUNDS), strict=True))
    ours, theirs = _seconds(outcomes[mine]), _seconds(outcomes[alone])
    row = {
        "case": title, "seed": seed, "metric": "kernel", "unit": "s", "extent": extent,
        "ours": ours, "peer": f"search of it alone, {options.alone} trials", "peer_value": theirs,
        "ratio": theirs / ours, "loss": ours / theirs - 1.0,
        "calls_loss": (outcomes[mine].seconds or 0) / (outcomes[alone].seconds or 1) - 1.0,
        "crowded": any(crowd_of(outcome) is not None for outcome in outcomes.values()),
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    return row


def _alone(workload: Workload, trials: int, folder: Path) -> Schedule:
    """The best of a search of one extent, with finals; made once."""
    place = folder / f"{workload.program.key}.json"
    if not place.exists():
        given = dict(workload.arguments)
        found = explorer.tune(
            workload.operator, store=folder / "alone.db", trials=trials, baseline=False, **given
        )
        place.write_text(found.best.to_json())
    return Schedule.from_json(place.read_text())


def _seconds(outcome: Outcome) -> float:
    return kernel_of(outcome) or outcome.seconds or float("nan")


def _dispatch(folder: Path) -> list[dict[str, Any]]:
    """A product of a few rows, called alone and through the table, from C."""
    store, given = folder / "small.db", {"n": 16, "k": 16}
    explorer.tune_range("matmul", m="1..512", store=store, trials=64, threads=1, **given)
    explorer.export("matmul", folder, m=1, name="single", store=store, threads=1, **given)
    explorer.export("matmul", folder, m=TABLE, name="many", store=store, threads=1, **given)
    (folder / "main.c").write_text(C)
    linker, files = find_linker(), [folder / name for name in ("main.c", "single.o", "many.o")]
    if linker is None:
        return []
    command = [linker, "-O2", f"-I{folder}", "-pthread", "-o", folder / "main", *files]
    subprocess.run(list(map(str, command)), check=True)
    said = subprocess.run([folder / "main"], check=True, capture_output=True, text=True).stdout
    times = np.array([line.split() for line in said.splitlines()], float)
    one, many, switch = np.median(times, axis=0)
    row = {
        "case": f"dispatch among {len(TABLE)} kernels, matmul m=1 n=16 k=16, one thread",
        "metric": "host time of a call in C", "unit": "ns", "ours": many, "peer": "one kernel",
        "peer_value": one, "added": float(np.median(times[:, 1] - times[:, 0])), "lookup": switch,
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    return [row]


if __name__ == "__main__":
    main()
