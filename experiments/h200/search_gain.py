"""What the search adds: best after 128 trials, evolution against random draws, 5 seeds each.

All runs of a shape share workers, and their winners are measured again in turns.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
from common import Clock, Results, chosen, options

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
STRATEGIES = ("evolutionary", "random")


def run(workload: Workload, measurer: Measurer, strategy: str, seed: int) -> Schedule:
    """The fastest schedule of one search from nothing."""
    space = workload.space(None)
    searcher = find_strategy(strategy)(space, np.random.default_rng(seed), trials=TRIALS)
    best: tuple[float, Schedule] | None = None
    measurer.best = None
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
    assert best is not None, f"{workload.operator}: nothing valid"
    return best[1]


def main() -> None:
    settings = options(__doc__ or "")
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    for name, operator, arguments in CASES:
        if not chosen(name, settings.cases) or clock.left < 90:
            continue
        if results.has(name, "random"):
            continue
        workload = Workload.of(operator, arguments, "cuda", None)
        with Measurer(
            workload.program, "cuda", workload.hardware, cache_dir=cache_dir()
        ) as measurer:
            winners = [
                (strategy, run(workload, measurer, strategy, seed))
                for seed in range(SEEDS)
                for strategy in STRATEGIES
            ]
            outcomes = measurer.compete([schedule for _, schedule in winners], 5)
        times: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
        for (strategy, _), outcome in zip(winners, outcomes, strict=True):
            if outcome.seconds is not None:
                times[strategy].append(outcome.seconds * 1e6)
        ours, theirs = (statistics.median(times[s]) for s in STRATEGIES)
        width = (max(times["evolutionary"]) - min(times["evolutionary"])) / ours
        results.add({
            "case": name, "metric": "best after 128 trials", "unit": "us", "ours": ours,
            "peer": "random", "peer_value": theirs, "ratio": theirs / ours, "spread": width,
            "all": times,
        })  # fmt: skip


if __name__ == "__main__":
    main()
