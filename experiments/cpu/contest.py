"""Contestants in processes of their own, and taking their times in turns.

Knows how to talk to `peers.py`; no search, no files.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import Case
from quiet import others, usage

from ir.targets.cpu.hardware import host_hardware

HERE = Path(__file__).resolve().parent
THREADS = 2
ROUNDS = 9
DEADLINE = 300.0  # seconds for one answer, references in float64 included
PAUSE = 0.25  # threads of the one before stop spinning and park
# Results of tens of megabytes must not be mapped afresh (and zeroed by the system) at every call.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "268435456",
}
# numpy asks the system for large pages, torch does not: all contestants have the usual ones.
PLAIN = {"NUMPY_MADVISE_HUGEPAGE": "0"}
BOUND = {"OMP_PROC_BIND": "close", "OMP_PLACES": "cores", **KEEP_MEMORY}
TORCH_SETTINGS = {
    "threads bound": BOUND,
    "threads bound, waiting passively": {
        **BOUND, "OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0",
    },
    "threads free": KEEP_MEMORY,
}  # fmt: skip
PROBE = Case("probe", "", "matmul", {"m": 512, "n": 512, "k": 512, "dtype": "f32"})


class ContestantFailed(Exception):
    """A contestant ended, or did not answer in time."""


class Contestant:
    """A child process that times itself when asked."""

    def __init__(self, name: str, kind: str, extra: Mapping[str, str]) -> None:
        self.name = name
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "peers.py"), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **PLAIN, **dict.fromkeys(threads, str(THREADS)), **extra},
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise ContestantFailed(f"{self.name} ended") from None
        if not select.select([self.process.stdout], [], [], DEADLINE)[0]:
            raise ContestantFailed(f"{self.name} did not answer within {DEADLINE:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise ContestantFailed(f"{self.name} ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


@dataclass(frozen=True, slots=True)
class Duel:
    """What came of one case: by contestant, seconds of every turn and facts it told."""

    samples: dict[str, list[float]]
    facts: dict[str, dict[str, float]]
    others: float | None  # share of the machine that other processes used meanwhile


def duel(contestants: Sequence[Contestant], case: Case, schedule: str, rounds: int) -> Duel:
    """Samples of every contestant that has the case, taken in turns; they are closed after it."""
    try:
        request = {"operator": case.operator, "arguments": case.arguments, "schedule": schedule}
        answers = {contestant: contestant.ask(**request) for contestant in contestants}
        ready = [contestant for contestant, answer in answers.items() if answer["ready"]]
        samples: dict[str, list[float]] = {contestant.name: [] for contestant in ready}
        pids = [contestant.process.pid for contestant in contestants]
        before = usage(pids)
        for turn in range(rounds):
            first = turn % len(ready)
            for contestant in ready[first:] + ready[:first]:
                time.sleep(PAUSE)
                found = contestant.ask(seconds=0.08)["seconds"]
                samples[contestant.name].append(statistics.median(found))
        load = others(before, usage(pids))
        facts = {contestant.name: contestant.ask(judge=True) for contestant in ready}
        return Duel(samples, facts, load)
    finally:
        for contestant in contestants:
            contestant.close()


def fastest_torch() -> tuple[str, dict[str, float]]:
    """The name of torch's fastest setting on a small matmul, and every setting's milliseconds."""
    contestants = [Contestant(name, "torch", extra) for name, extra in TORCH_SETTINGS.items()]
    samples = duel(contestants, PROBE, "", rounds=5).samples
    times = {name: 1e3 * statistics.median(values) for name, values in samples.items()}
    return min(times, key=times.__getitem__), times


def against_all(case: Case, schedule: str, torch_setting: str) -> Duel:
    """Our schedule, torch and OpenBLAS at its strongest and as it comes."""
    contestants = [
        Contestant("ours", "ours", {}),
        Contestant("torch", "torch", TORCH_SETTINGS[torch_setting]),
    ]
    if case.group == "matmul f32":
        contestants.append(Contestant("OpenBLAS as installed", "numpy", {}))
        if "avx512f" in host_hardware(THREADS).isa:  # where a newer core's kernels are slower
            older = {"OPENBLAS_CORETYPE": "SkylakeX"}
            contestants.append(Contestant("OpenBLAS SkylakeX", "numpy", older))
    return duel(contestants, case, schedule, ROUNDS)
