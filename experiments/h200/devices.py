"""Trials a second with one device and with two, in turns, without finals.

    python experiments/h200/devices.py [--seconds 12] [--rounds 3] [--out FOLDER]

One process searches with `--devices 0,1` and with `0` for so many seconds behind the first trial,
several rounds of it, each with other seeds. Writes devices.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from explorer.search import Search  # noqa: E402
from explorer.workload import Workload  # noqa: E402
from records import Store  # noqa: E402

CASE = {"m": 8192, "n": 8192, "k": 4096, "dtype": "bf16"}
BATCH = 16


def rate(devices: str, seconds: float, seed: int) -> dict[str, Any]:
    """Trials a second between the first and the last, and each device's share of the time."""
    workload = Workload.of("matmul", CASE, "cuda")
    times: list[float] = []
    with (
        Store(":memory:") as store,
        Search(workload, store, trials=None, seed=seed, devices=devices) as search,
    ):
        end = float("inf")
        while not times or times[-1] < end:
            for _ in search.step(BATCH, ahead=10**6):
                times.append(time.perf_counter())
                end = times[0] + seconds
                if times[-1] >= end:
                    break
        busy = search.measurer.examined
    span = times[-1] - times[0]
    return {
        "devices": devices, "trials": len(times), "rate": round((len(times) - 1) / span, 2),
        "busy": [round(seconds / span, 2) for seconds in busy],
    }  # fmt: skip


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seconds", type=float, default=12.0)
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--out", type=Path, default=HERE)
    given = words.parse_args()
    rounds = []
    for number in range(given.rounds):
        pairs = enumerate(("0,1", "0"), 2 * number)
        rows = [rate(devices, given.seconds, seed) for seed, devices in pairs]
        rounds.append({"ratio": round(rows[0]["rate"] / rows[1]["rate"], 3), "rows": rows})
        print(rounds[-1], flush=True)
    found = {
        "case": f"matmul {CASE}", "goal": ">= 1.8",
        "ratio": statistics.median(one["ratio"] for one in rounds),
        "rounds": rounds, "processors": os.cpu_count(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": "python " + " ".join(["experiments/h200/devices.py", *sys.argv[1:]]),
    }  # fmt: skip
    print(found)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "devices.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
