"""How long `explorer.kernel` takes to find, load and give the best of 10,000 records.

    python experiments/asking/asking.py --scratch FOLDER [--processes 15] [--out results.json]

A matrix product is tuned for real, so that its store has a job with finals and its winner is kept;
then the store is filled up to 10,000 records: of that very workload, or of a hundred others. Each
question is asked by a process of its own, in three ways: first of all after `import explorer`
(what is imported late counts), after another kernel of another store was asked for (what is
imported late does not), and again. Medians over the processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "cpu")]

RECORDS = 10_000
EXTENTS = {"m": 256, "n": 256, "k": 256}
OTHER = {"m": 64, "n": 64}  # of softmax, asked for first where imports do not count
WORKLOADS = 100  # that the others are of
AGAIN = 200  # times that it is asked for again
LIMITS = {"first": 20.0, "after another": 20.0, "again": 1.0}  # milliseconds


def prepare(store: Path, trials: int) -> None:
    """A store with a job of the product, and one of what is asked for before it."""
    import explorer

    explorer.tune("matmul", **EXTENTS, trials=trials, store=store, baseline=False)
    before = store.with_name("before.db")
    if not before.exists():
        explorer.tune("softmax", **OTHER, trials=4, store=before, baseline=False)


def fill(store: Path, own: bool) -> None:
    """Up to 10,000 records: sampled schedules, as a search of that length would have measured."""
    import numpy as np

    import explorer
    from explorer.outcome import Outcome
    from explorer.recall import to_record
    from records import Store

    workload = explorer.load("matmul", **EXTENTS)
    best = explorer.best("matmul", **EXTENTS, store=store).seconds
    space, random = workload.space(), np.random.default_rng(0)
    rows = space.sample(random, 2 * RECORDS)
    schedules = list(dict.fromkeys(space.schedule(row) for row in rows))
    with Store(store) as records:
        count = RECORDS - records.count()
        times = best * (0.95 + random.gamma(2.0, 0.6, count))  # some look faster than the best
        made = []
        for number, seconds in enumerate(times):
            schedule = schedules[number % len(schedules)]
            spread = (0.99 * seconds, 1.02 * seconds)
            outcome = Outcome("ok", float(seconds), spread, 5, 0.0, kernel_key=f"{number:x}")
            record = to_record(workload, schedule, outcome, "job", "evolutionary")
            if not own:
                record = replace(record, workload=f"{number % WORKLOADS:064x}")
            made.append(record)
        records.add_all(made)


def serve(store: str, kind: str) -> None:
    """Ask in this process, and print the milliseconds that each way took."""
    import numpy as np

    import explorer

    def asked() -> float:
        began = time.perf_counter()
        if kind == "arrays":
            explorer.kernel("matmul", a, b, store=store)
        else:
            explorer.kernel("matmul", **EXTENTS, store=store)
        return 1e3 * (time.perf_counter() - began)

    shapes = (EXTENTS["m"], EXTENTS["k"]), (EXTENTS["k"], EXTENTS["n"])
    a, b = (np.ones(shape, np.float32) for shape in shapes)
    if "--warm" in sys.argv:
        explorer.kernel("softmax", **OTHER, store=Path(store).with_name("before.db"))
    first = asked()
    print(json.dumps([first, statistics.median(asked() for _ in range(AGAIN))]))


def measured(store: Path, kind: str, processes: int) -> dict[str, Any]:
    """The three figures of one way to ask, in milliseconds."""
    found: dict[str, list[float]] = {name: [] for name in LIMITS}
    words = [sys.executable, __file__, "--serve", kind, "--scratch", str(store)]
    for _ in range(processes):
        for name, more in (("first", []), ("after another", ["--warm"])):
            told = subprocess.run([*words, *more], check=True, capture_output=True, text=True)
            took, again = json.loads(told.stdout)
            found[name].append(took)
            found["again"].append(again)
    return {name: _summary(times) for name, times in found.items()}


def _summary(times: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return {"median": middle, "lower": low, "upper": high}


def page(found: dict[str, Any]) -> str:
    """The results as a table."""
    head = found["header"]
    versions = ", ".join(f"{name} {value}" for name, value in head["versions"].items())
    names = " | ".join(f"{name}, ms (<= {limit:g})" for name, limit in LIMITS.items())
    lines = [
        "# Asking for the best of 10,000 records", "",
        f"    {head['command']}", "",
        f"{head['model']}, {head['threads']} threads. {versions}. {head['date']}, "
        f"commit {head['commit']}.", "",
        f"| records | asked by | {names} |", "|---" * (2 + len(LIMITS)) + "|",
    ]  # fmt: skip
    for row in found["rows"]:
        cells = (
            f"{one['median']:.3g} ({one['lower']:.3g} to {one['upper']:.3g})"
            for one in (row["milliseconds"][name] for name in LIMITS)
        )
        lines.append(f"| {row['records']} | {row['asked']} | {' | '.join(cells)} |")
    notes = HERE / "NOTES.md"
    return "\n".join(lines) + "\n" + (notes.read_text() if notes.exists() else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scratch", type=Path, required=True, help="for the stores and the cache")
    parser.add_argument("--processes", type=int, default=15)
    parser.add_argument("--trials", type=int, default=48, help="of the product's own search")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(str(options.scratch), options.serve)
        return
    from report import header

    scratch = options.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ["TILEWRIGHT_CACHE"] = str(scratch / "cache")
    rows = []
    for records, own in (("all of the workload", True), ("of 101 workloads", False)):
        store = scratch / f"{'own' if own else 'others'}.db"
        if not store.exists():
            prepare(store, options.trials)
            fill(store, own)
        for kind in ("arguments", "arrays"):
            times = measured(store, kind, options.processes)
            rows.append({"records": records, "asked": kind, "milliseconds": times})
            print(json.dumps(rows[-1]), flush=True)
    head = header("numpy", "sqlalchemy", threads=len(os.sched_getaffinity(0)))
    head["command"] = "python experiments/asking/asking.py --scratch FOLDER"
    options.out.write_text(json.dumps({"header": head, "rows": rows}, indent=1) + "\n")
    (options.out.parent / "README.md").write_text(page({"header": head, "rows": rows}))


if __name__ == "__main__":
    main()
