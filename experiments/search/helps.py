"""What the model adds to a search: 64 evolved trials against 256 random ones, measured on this CPU.

    python experiments/search/helps.py --scratch FOLDER [--seconds 3000] [--cases softmax ...]

Five seeds of each on every workload, from nothing but the space. Every search, of either side, ends
as a job does: the best of what it measured run a heat and finals, which name its winner. The ten
winners of a workload are then measured again in turns, and the medians over the seeds compared.
Resumable: outcomes are kept in the scratch folder's stores, and searches are deterministic, so a
second call asks for the same and goes on.

A schedule (or kernel) that several searches ask for is measured once. That is fair: both sides are
judged by the same clock, no search gets a second, luckier draw, and winners are measured anew.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from explorer.finals import chosen_finalists  # noqa: E402
from explorer.flow import LEAST  # noqa: E402
from explorer.measure import Measurer  # noqa: E402
from explorer.outcome import Outcome  # noqa: E402
from explorer.recall import known_trials, to_record  # noqa: E402
from explorer.runtime.workers import Timing  # noqa: E402
from explorer.strategies.base import find_strategy  # noqa: E402
from explorer.workload import Workload  # noqa: E402
from ir.schedule import Schedule  # noqa: E402
from records import Store  # noqa: E402

RESULTS = HERE / "helps.json"
BATCH = 16
BARREN = 32
ROUNDS = 5
TIE = 0.01  # what two measurements of one kernel differ by
TIMING = Timing(cut=3.0, slow=2.0)
SIDES = {"evolutionary": 64, "random": 256}
WORKLOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "matmul 512x512x512": ("matmul", {"m": 512, "n": 512, "k": 512}),
    "matmul 197x768x768": ("matmul", {"m": 197, "n": 768, "k": 768}),
    "softmax 1024x1024": ("softmax", {"m": 1024, "n": 1024}),
    "softmax 4096x256": ("softmax", {"m": 4096, "n": 256}),
    "conv2d 28x28x32 -> 64": (
        "conv2d", {"n": 1, "h": 28, "w": 28, "c": 32, "f": 64, "r": 3, "s": 3},
    ),
    "conv2d 14x14x128 -> 128": (
        "conv2d", {"n": 1, "h": 14, "w": 14, "c": 128, "f": 128, "r": 3, "s": 3},
    ),
    "matmul+act 256x1024x256": ("matmul_bias_act", {"m": 256, "n": 1024, "k": 256}),
    "matmul+act 128x768x768": ("matmul_bias_act", {"m": 128, "n": 768, "k": 768}),
}  # fmt: skip


class Unfinished(Exception):
    """The budget of this call is spent."""


@dataclass
class Shared:
    """Outcomes by schedule and by kernel: from the store, else measured and stored."""

    workload: Workload
    store: Store
    measurer: Measurer
    end: float
    known: dict[Schedule, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known = dict(known_trials(self.store, self.workload))
        outcomes = self.known.values()
        self.measurer.kernels = {o.kernel_key: o for o in outcomes if o.kernel_key}

    def outcomes(self, schedules: Sequence[Schedule]) -> list[Outcome]:
        """Of each schedule; raises Unfinished when time is up."""
        missing = [schedule for schedule in schedules if schedule not in self.known]
        if missing and time.monotonic() > self.end:
            raise Unfinished
        for schedule, outcome in zip(missing, self.measurer.measure(missing), strict=True):
            self.store.add(to_record(self.workload, schedule, outcome, "", "shared"))
            self.known[schedule] = outcome
        return [self.known[schedule] for schedule in schedules]


def search(name: str, seed: int, trials: int, shared: Shared) -> list[tuple[float, Schedule]]:
    """The `trials` kernels that one search runs, the fastest first; failures are left out."""
    space, rng = shared.workload.space(), np.random.default_rng(seed)
    strategy = find_strategy(name)(space, rng, trials=trials)
    found: dict[str, tuple[float, Schedule]] = {}
    shared.measurer.best = None
    barren = 0
    while len(found) < trials and barren < BARREN:
        asked = strategy.ask(max(LEAST, min(BATCH, trials - len(found))))
        outcomes = shared.outcomes(asked)
        strategy.tell(asked, outcomes)
        before = len(found)
        for schedule, outcome in zip(asked, outcomes, strict=True):
            seconds = outcome.seconds if outcome.ok and outcome.seconds else float("inf")
            if len(found) < trials:
                found.setdefault(outcome.kernel_key or schedule.key, (seconds, schedule))
        barren = barren + 1 if len(found) == before else 0
    good = [pair for pair in found.values() if pair[0] < float("inf")]
    return sorted(good, key=lambda pair: pair[0])


def winner(ranked: list[tuple[float, Schedule]], shared: Shared) -> Schedule:
    """What the finals of a search name."""

    def again(schedules: list[Schedule], rounds: int = 1) -> list[tuple[float, Schedule]]:
        outcomes = shared.measurer.compete(schedules, rounds)
        pairs = zip(outcomes, schedules, strict=True)
        found = [(outcome.seconds, s) for outcome, s in pairs if outcome.ok and outcome.seconds]
        return sorted(found, key=lambda pair: pair[0])

    if time.monotonic() > shared.end:
        raise Unfinished
    return again(*chosen_finalists(shared.workload.space(), ranked, again))[0][1]


def compare(case: str, seeds: int, scratch: Path, end: float) -> dict[str, Any]:
    """The row of one workload; raises Unfinished."""
    operator, arguments = WORKLOADS[case]
    workload = Workload.of(operator, arguments)
    file = case.replace(" ", "-").replace(">", "") + ".db"
    with (
        Store(scratch / file) as store,
        Measurer(
            workload.program, workload.target, workload.hardware,
            cache_dir=scratch / "code", timing=TIMING,
        ) as measurer,
    ):  # fmt: skip
        shared = Shared(workload, store, measurer, end)
        winners = [
            (name, winner(search(name, seed, trials, shared), shared))
            for seed in range(seeds)
            for name, trials in SIDES.items()
        ]
        finals = measurer.compete([schedule for _, schedule in winners], ROUNDS)
    times: dict[str, list[float]] = {name: [] for name in SIDES}
    for (name, _), outcome in zip(winners, finals, strict=True):
        times[name].append(outcome.seconds * 1e3 if outcome.seconds else float("inf"))
    ours, theirs = (statistics.median(times[name]) for name in SIDES)
    return {
        "case": case,
        "metric": "best after 64 trials, against 256",
        "unit": "ms",
        "ours": ours,
        "peer": "random",
        "peer_value": theirs,
        "ratio": theirs / ours,
        "spread": (max(times["evolutionary"]) - min(times["evolutionary"])) / ours,
        "seeds": seeds,
        "all": times,
    }


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """How many workloads are at least as good: strictly, and but for a tie."""
    strict = sum(row["ratio"] >= 1 for row in rows)
    ties = sum(row["ratio"] >= 1 - TIE for row in rows)
    return f"at least as good on {strict} of {len(rows)}, within {TIE:.0%} on {ties}"


def shown(row: dict[str, Any]) -> str:
    return (
        f"{row['case']:26s} {row['ours']:8.4f} ms after 64, random {row['peer_value']:8.4f} ms "
        f"after 256: {row['ratio']:.3f} (spread {row['spread']:.3f}, {row['seeds']} seeds)"
    )


def options() -> argparse.Namespace:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--scratch", type=Path, required=True, help="folder of stores and code")
    words.add_argument("--seconds", type=float, default=3000.0, help="budget of this call")
    words.add_argument("--seeds", type=int, default=5)
    words.add_argument("--cases", nargs="*", default=[], help="only cases that contain a word")
    words.add_argument("--out", type=Path, default=RESULTS)
    return words.parse_args()


def main() -> None:
    chosen = options()
    end = time.monotonic() + chosen.seconds
    chosen.scratch.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Any]] = {}
    if chosen.out.exists():
        rows = {row["case"]: row for row in json.loads(chosen.out.read_text())["rows"]}
    for case in WORKLOADS:
        wanted = not chosen.cases or any(word in case for word in chosen.cases)
        if not wanted or rows.get(case, {}).get("seeds", 0) >= chosen.seeds:
            continue
        try:
            rows[case] = compare(case, chosen.seeds, chosen.scratch, end)
        except Unfinished:
            print(f"{case}: not finished; run again", flush=True)
            break
        from peers import header  # it needs git
        from table import write

        told = {"header": header(), "rows": list(rows.values())}
        chosen.out.write_text(json.dumps(told, indent=1) + "\n")
        write()
        print(shown(rows[case]), flush=True)
    print(verdict(list(rows.values())))


if __name__ == "__main__":
    main()
