"""What the search adds: best after 128 trials, evolution against random draws, 5 seeds each.

All runs of a shape share workers, and their winners are measured again in turns.
"""

from __future__ import annotations

import itertools
import statistics
from typing import Any

import numpy as np
from common import Clock, Results, Unfinished, going_on, options, pending

from explorer.errors import NothingValid
from explorer.measure import Measurer
from explorer.settings import cache_dir
from explorer.strategies.base import find_strategy
from explorer.workload import Workload
from ir.schedule import Schedule

CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("matmul 2048^3", "matmul", {"m": 2048, "n": 2048, "k": 2048, "dtype": "bf16", "tb": True}),
    ("matmul 64x8192x8192", "matmul",
     {"m": 64, "n": 8192, "k": 8192, "dtype": "bf16", "tb": True}),
    ("matmul 1000x1000x4096", "matmul",
     {"m": 1000, "n": 1000, "k": 4096, "dtype": "bf16"}),
    ("attention 2x16x2048x64", "attention",
     {"b": 2, "heads": 16, "sq": 2048, "d": 64, "dtype": "bf16"}),
    ("gated 1024x4096x2048", "gated_mlp",
     {"m": 1024, "n": 4096, "k": 2048, "dtype": "bf16", "tb": True}),
    ("column_sum 16384x8192", "column_sum", {"m": 16384, "n": 8192, "dtype": "bf16"}),
)  # fmt: skip
SEEDS = 5
TRIALS = 128
BATCH = 16
ROUNDS = 5
FINALS_SECONDS = 15.0
STRATEGIES = ("evolutionary", "random")


def run(workload: Workload, measurer: Measurer, strategy: str, seed: int) -> Schedule:
    """The fastest schedule of one search from nothing."""
    space = workload.space(None)
    searcher = find_strategy(strategy)(space, np.random.default_rng(seed), trials=TRIALS)
    best: tuple[float, Schedule] | None = None
    measurer.best = None
    measurer.kernels = {}
    asked = 0
    while asked < TRIALS:
        schedules = searcher.ask(min(BATCH, TRIALS - asked))
        if not schedules:
            break
        asked += len(schedules)
        outcomes = list(measurer.measure(schedules))
        searcher.tell(schedules, outcomes)
        for schedule, outcome in zip(schedules, outcomes, strict=True):
            if outcome.ok and outcome.seconds and (best is None or outcome.seconds < best[0]):
                best = (outcome.seconds, schedule)
    if best is None:
        raise NothingValid(f"{workload.operator}: nothing valid by {strategy}, seed {seed}")
    return best[1]


def gain(name: str, workload: Workload, clock: Clock) -> dict[str, Any]:
    """The row of one case; raises Unfinished where the budget does not reach."""
    with Measurer(workload.program, "cuda", workload.hardware, cache_dir=cache_dir()) as measurer:
        winners = []
        for seed, strategy in itertools.product(range(SEEDS), STRATEGIES):
            began = clock.left
            winners.append((strategy, run(workload, measurer, strategy, seed)))
            left = 2 * SEEDS - len(winners)
            if (began - clock.left) * left + FINALS_SECONDS > clock.left:
                raise Unfinished(f"{name}: {left} searches left, {clock.left:.0f} s")
        outcomes = measurer.compete([schedule for _, schedule in winners], ROUNDS)
    times: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
    for (strategy, _), outcome in zip(winners, outcomes, strict=True):
        if outcome.seconds is not None:
            times[strategy].append(outcome.seconds * 1e6)
    ours, theirs = (statistics.median(times[s]) for s in STRATEGIES)
    width = (max(times["evolutionary"]) - min(times["evolutionary"])) / ours
    return {
        "case": name, "metric": "best after 128 trials", "unit": "us", "ours": ours,
        "peer": "random", "peer_value": theirs, "ratio": theirs / ours, "spread": width,
        "all": times,
    }  # fmt: skip


def main() -> None:
    settings = options(__doc__ or "")
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    waiting = pending(CASES, settings, results, clock, ("random",), 120.0)
    for name, operator, arguments in waiting:
        with going_on():
            results.add(gain(name, Workload.of(operator, arguments, "cuda", None), clock))


if __name__ == "__main__":
    main()
