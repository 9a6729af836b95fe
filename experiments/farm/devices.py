"""Trials a second of a farm with one worker and with two, each with a device of its own, in turns.

    python experiments/farm/devices.py [--target cuda] [--threads 8] [--seconds 12] [--rounds 3]

A real scheduler and Dask's workers on loopback, each with so many candidates at a time. Trials are
counted for so many seconds from when every worker has told of one; every second search has both
workers. Writes devices.json.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from distributed import Client  # noqa: E402

from explorer.job import Progress, tune  # noqa: E402

CASES: dict[str, dict[str, Any]] = {
    "cuda": {"m": 8192, "n": 8192, "k": 4096, "dtype": "bf16"},
    "cpu": {"m": 256, "n": 256, "k": 256},
}
LEARNING = 12.0  # seconds within which every worker has told of a trial


@contextlib.contextmanager
def started(words: list[str], **more: str) -> Iterator[None]:
    """A process of Dask's, with its nanny and what that started, until the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", *words], env=os.environ | more, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


@contextlib.contextmanager
def farm(target: str, count: int, threads: int) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    address = f"tcp://127.0.0.1:{port}"
    worker = [
        "distributed.cli.dask_worker", address, "--resources", f"{target}=1",
        "--nthreads", str(threads), "--preload", "explorer.farm.worker", "--no-dashboard",
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        where = ["--host", "127.0.0.1", "--port", port, "--no-dashboard"]
        stack.enter_context(started(["distributed.cli.dask_scheduler", *where]))
        for number in range(count):
            stack.enter_context(started(worker, CUDA_VISIBLE_DEVICES=str(number)))
        with Client(address, timeout=30) as client:
            client.wait_for_workers(count, timeout=60)
        yield address


def rate(target: str, count: int, seconds: float, seed: int, threads: int) -> dict[str, Any]:
    """Trials a second while all workers measure."""
    times: list[tuple[float, str]] = []

    def note(progress: Progress) -> None:
        times.append((time.perf_counter(), dict(progress.outcome.notes).get("worker", "")))

    with farm(target, count, threads) as address, tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        tune(
            "matmul", CASES[target], target=target, seconds=seconds + LEARNING, seed=seed,
            progress=note, store=Path(folder) / "records.db", baseline=False, model="none",
            workers=address,
        )  # fmt: skip
    firsts = [min(t for t, name in times if name == one) for one in {name for _, name in times}]
    start = max(firsts) if len(firsts) == count else math.inf
    counted = [t for t, _ in times if start < t <= start + seconds]
    span = (counted[-1] if counted else math.inf) - start
    return {
        "workers": count, "threads": threads, "trials": len(counted),
        "rate": round(len(counted) / span, 2),
        "first": [round(t - began, 2) for t in sorted(firsts)],  # seconds
    }  # fmt: skip


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--target", default="cuda", choices=tuple(CASES))
    words.add_argument("--threads", type=int, default=8, help="candidates a worker has at a time")
    words.add_argument("--seconds", type=float, default=12.0)
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--out", type=Path, default=HERE)
    given = words.parse_args()
    rounds = []
    for number in range(given.rounds):
        pairs = enumerate((2, 1), 2 * number)
        rows = [
            rate(given.target, count, given.seconds, seed, given.threads) for seed, count in pairs
        ]
        rounds.append({"ratio": round(rows[0]["rate"] / rows[1]["rate"], 3), "rows": rows})
        print(rounds[-1], flush=True)
    found = {
        "case": f"matmul {CASES[given.target]}", "goal": ">= 1.85",
        "ratio": statistics.median(one["ratio"] for one in rounds),
        "rounds": rounds, "processors": os.cpu_count(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": "python " + " ".join(["experiments/farm/devices.py", *sys.argv[1:]]),
    }  # fmt: skip
    print(found)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "devices.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
