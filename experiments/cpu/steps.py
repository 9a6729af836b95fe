"""Programs of steps on a CPU: by one thread, by a team of all, and as torch computes them.

    python experiments/cpu/steps.py [--rounds 9]

Each schedule's kernel is checked and compiled as a search does, then called on numpy's arrays in
turns with torch's function, so many rounds; medians. A turn begins with a rest, in which threads of
the one before stop waiting for work, and a call that does not count. `steps.json` and `steps.md`
hold what came of it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import explorer
from explorer.workload import Workload
from ir.inputs import random_inputs
from ir.schedule import Schedule

HERE = Path(__file__).resolve().parent
FURTHER = HERE.parent / "corpus" / "further.py"
PROGRAMS = HERE / "step_programs.py"
REST, CALLS = 0.3, 3  # seconds before a turn, and calls of one
Arrays = Mapping[str, "torch.Tensor"]
Peer = Callable[[Arrays], object]


def around(u: torch.Tensor) -> torch.Tensor:
    wide = torch.nn.functional.pad(u, (1, 1, 1, 1))
    return wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]


def diffusion(given: Arrays) -> torch.Tensor:
    x = given["X"]
    for _ in range(16):
        x = x + 0.125 * (around(x) - 4 * x)
    return x


def shortest(given: Arrays) -> torch.Tensor:
    d = given["D"]
    for k in range(len(d)):
        d = torch.minimum(d, d[:, k : k + 1] + d[k : k + 1, :])
    return d


def sinkhorn(given: Arrays) -> torch.Tensor:
    k, v = given["K"], torch.ones_like(given["b"])
    for _ in range(10):
        v = given["b"] / (k.T @ (given["a"] / (k @ v)))
    return v


def reaction(given: Arrays) -> tuple[torch.Tensor, torch.Tensor]:
    u, v = given["U"], given["V"]
    for _ in range(16):
        r = u * v * v
        u, v = (
            u + 0.16 * (around(u) - 4 * u) - r + 0.035 * (1 - u),
            v + 0.08 * (around(v) - 4 * v) + r - 0.1 * v,
        )
    return u, v


CASES: tuple[tuple[str, dict[str, Any], Peer], ...] = (
    ("diffusion", {"m": 1024, "n": 1024, "steps": 16}, diffusion),
    (f"{PROGRAMS}:reaction", {"n": 512, "steps": 16}, reaction),
    (f"{PROGRAMS}:shortest", {"n": 512}, shortest),
    (f"{FURTHER}:sinkhorn", {"n": 1024, "steps": 10}, sinkhorn),
)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--rounds", type=int, default=9)
    rounds = words.parse_args().rounds
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    rows = [_row(*case, rounds) for case in CASES]
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    facts = {
        "hardware": explorer.load("softmax", m=1, n=1).hardware.key,
        "date": str(datetime.date.today()),
        "commit": git.stdout.strip(), "command": " ".join(["python", *sys.argv]),
        "versions": {"python": platform.python_version(), "torch": torch.__version__,
                     "numpy": np.__version__},
    }  # fmt: skip
    (HERE / "steps.json").write_text(json.dumps(facts | {"rows": rows}, indent=1) + "\n")
    (HERE / "steps.md").write_text(_page(facts, rows))


def _row(operator: str, arguments: dict[str, Any], peer: Peer, rounds: int) -> dict[str, Any]:
    workload = Workload.of(operator, arguments)
    space = workload.space()
    ways = {}
    for row in space.seed_rows(np.random.default_rng(0)):
        schedule = space.schedule(row)
        ways.setdefault(int(schedule.get("team") or 1), schedule)
    inputs = random_inputs(workload.program, np.random.default_rng(0))
    arrays = {name: torch.from_numpy(array) for name, array in inputs.items()}
    calls: dict[str, Callable[[], object]] = {
        ("team" if team > 1 else "one thread"): _kernel(operator, arguments, schedule, inputs)
        for team, schedule in ways.items()
    }
    calls["torch"] = lambda: peer(arrays)
    mine, theirs = calls["team"](), calls["torch"]()
    first = theirs[0] if isinstance(theirs, tuple) else theirs
    own = mine[0] if isinstance(mine, tuple) else mine
    np.testing.assert_allclose(np.asarray(own), np.asarray(first), rtol=1e-4, atol=1e-4)
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(REST)
            call()
            for _ in range(CALLS):
                began = time.perf_counter()
                call()
                samples[name].append(time.perf_counter() - began)
    name = operator.rpartition(":")[2]
    found = {way: 1e3 * statistics.median(times) for way, times in samples.items()}
    print(name, found, flush=True)
    return {"case": f"{name} {' '.join(f'{n}={v}' for n, v in arguments.items())}",
            "metric": "call", "unit": "ms", **found}  # fmt: skip


def _kernel(
    operator: str, arguments: dict[str, Any], schedule: Schedule, inputs: Mapping[str, Any]
) -> Callable[[], object]:
    """A call of one schedule, checked as a search does."""
    pins = schedule.as_dict()
    found = explorer.tune(operator, trials=1, pins=pins, baseline=False, **arguments)
    given = [inputs[spec.name] for spec in found.program.inputs]
    found(*given)
    return lambda: found(*given)


def _page(facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    lines = [
        "# Programs of steps on a CPU", "", f"    {facts['command']}", "",
        f"{facts['hardware']}, {versions}, {facts['date']}, commit {facts['commit']}. "
        "Milliseconds of a call on numpy's arrays, medians in turns.", "",
        "| program | one thread | team of all | torch | torch / team |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        ways = [row["one thread"], row["team"], row["torch"]]
        lines.append(
            f"| {row['case']} | {' | '.join(f'{x:.3f}' for x in ways)} | {ways[2] / ways[1]:.1f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
