"""What it costs to read a store of 100,000 trials, in seconds of the processor.

    python -m experiments.records.reading OUT.json

It runs with other versions of `records` on PYTHONPATH, too, and so compares them.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from records import Record, Store

ROWS, PAGE, WORKLOADS = 100_000, 5000, 100
FACTS = json.dumps({"isa": ["avx2", "avx512f"], **{f"fact{n}": "v" * 20 for n in range(20)}})
TILES = [f"tile.{axis}.{level}" for axis in "mnk" for level in range(6)]


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = costs(Path(folder) / "records.db")
    out.write_text(json.dumps(found, indent=2) + "\n")
    print(out.read_text())


def costs(path: Path) -> dict[str, Any]:
    with Store(path) as store:
        for first in range(0, ROWS, PAGE):
            store.add_all([trial(number) for number in range(first, first + PAGE)])
    with Store(path, read_only=True) as store:
        return {
            "rows": ROWS,
            "bytes": path.stat().st_size,
            "read_all": seconds(lambda: sum(1 for _ in store.records())),
            "check": seconds(store.check),
            "best_of_1000": seconds(lambda: store.best(f"{7:064d}", "cpu", "b" * 64)),
        }


def trial(number: int) -> Record:
    values = {name: (number + place) % 64 for place, name in enumerate(TILES)} | {"n": number}
    return Record(
        workload=f"{number % WORKLOADS:064d}",
        operator="matmul",
        extents='{"k":512,"m":512,"n":512}',
        target="cpu",
        hardware="b" * 64,
        hardware_facts=FACTS,
        generator="cpu-1",
        threads=2,
        schedule=json.dumps({"target": "cpu", "values": values}),
        kernel_key=f"kernel-{number}",
        status="ok",
        seconds=1e-3 + number * 1e-6,
        quartiles=(1e-3, 1.5e-3 + number * 1e-6),
        repeats=5,
        error=1e-7,
        created="2026-01-02T03:04:05+00:00",
        job="job-1",
        strategy="evolutionary",
    )


def seconds(action: Callable[[], object]) -> float:
    """The median of three."""
    times = []
    for _ in range(3):
        began = time.process_time()
        action()
        times.append(time.process_time() - began)
    return round(statistics.median(times), 3)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
