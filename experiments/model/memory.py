"""Peak memory of training: on records of a store, and on rows alone, as they grow tenfold.

    python experiments/model/memory.py --out experiments/model/memory.json

Each figure is the peak resident size (ru_maxrss) of a process of its own. `kept` leaves features in
memory, `shelved` on the disk. Times are made up (the products are of real spaces), since what is
learnt does not matter here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from costmodel.dataset import Group, fit_groups
from costmodel.model import Settings
from costmodel.shelf import Shelf

WIDTH, ROWS = 200, 40_000  # of the rows alone, at 1x
WORKLOADS, TRIALS = 8, 500  # of the store, at 1x
QUICK = Settings(rounds=6, depth=5, time_rounds=4, validity_rounds=4)


def made_store(path: Path, workloads: int) -> None:
    """Products of many shapes, each with trials of random schedules."""
    from explorer.outcome import Outcome
    from explorer.recall import to_record
    from explorer.workload import Workload
    from records import Store

    rng = np.random.default_rng(0)
    seconds = rng.uniform(1e-5, 1e-3, TRIALS)
    with Store(path) as store:
        for number in range(workloads):
            workload = Workload.of("matmul", {"m": 32 + 16 * number, "n": 64, "k": 64}, "cpu")
            store.keep_texts([str(workload.program)])
            space = workload.space()
            schedules = map(space.schedule, space.sample(rng, TRIALS))
            store.add_all(
                to_record(
                    workload, schedule, Outcome("ok", float(took), kernel_key=schedule.key),
                    "", "random",
                )
                for schedule, took in zip(schedules, seconds, strict=True)
            )  # fmt: skip


def rows_alone(times: int, shelved: bool) -> None:
    """Fit on rows that are put on a shelf group by group, or kept."""
    with tempfile.TemporaryDirectory() as folder:
        shelf = Shelf(Path(folder))
        rng = np.random.default_rng(0)
        names = tuple(f"f{number}" for number in range(WIDTH))
        groups = []
        for number in range(10 * times):
            features = rng.normal(size=(ROWS // 10, WIDTH)).astype(np.float32)
            seconds = np.exp(features[:, 0].astype(np.float64)) * 1e-3
            held = shelf.put(features) if shelved else features
            groups.append(Group("rows", str(number), "cpu", names, held, seconds))
        fit_groups(groups, settings=QUICK, shelf=shelf, ram=0 if shelved else 1 << 60)


def store_trained(store: Path, shelved: bool) -> None:
    """What `tilewright train` does, with fewer trees."""
    from explorer.training import read_groups

    with tempfile.TemporaryDirectory() as folder:
        shelf = Shelf(Path(folder))
        groups = read_groups([store], "cpu", (), shelf if shelved else None)
        fit_groups(groups, settings=QUICK, shelf=shelf, ram=0 if shelved else 1 << 60)


def measured(*words: str) -> dict[str, float]:
    """Peak MiB and seconds of a run of this very script."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, __file__, *words], check=True, capture_output=True)
    return {"mib": float(done.stdout.split()[-1]), "seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--shelved", action="store_true")
    given = parser.parse_args()
    if given.rows:
        rows_alone(given.rows, given.shelved)
    elif given.store:
        store_trained(given.store, given.shelved)
    else:
        compare(given.out)
        return
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def compare(out: Path | None) -> None:
    """Every case in a process of its own; a table, and the file."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for times in (1, 10):
            store = Path(folder) / f"{times}.db"
            made_store(store, WORKLOADS * times)
            cases = {"rows": ("--rows", str(times)), "store": ("--store", str(store))}
            counts = {"rows": ROWS * times, "store": WORKLOADS * TRIALS * times}
            for case, words in cases.items():
                for way, more in (("kept", ()), ("shelved", ("--shelved",))):
                    found = measured(*words, *more)
                    rows.append({"case": case, "trials": counts[case], "features": way} | found)
                    print(rows[-1], flush=True)
    if out is not None:
        head = {"machine": platform.machine(), "cpus": os.cpu_count(), "width": WIDTH}
        command = "python experiments/model/memory.py --out experiments/model/memory.json"
        out.write_text(json.dumps({**head, "command": command, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
