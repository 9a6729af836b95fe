"""How fast searches go and how many candidates fail: of a store's records, and of fresh searches.

Fresh searches start with an empty store and no compiled kernels.
"""

from __future__ import annotations

import os
import statistics
from collections import Counter
from collections.abc import Iterable
from typing import Any

from common import (
    Clock,
    Results,
    fresh_start,
    going_on,
    job_seconds,
    options,
    pending,
)

from explorer.job import tune
from explorer.recall import DECIDING, open_store
from explorer.workload import Workload
from records import Record

Row = dict[str, Any]
PRODUCT: dict[str, Any] = {"dtype": "bf16", "tb": True}
CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("search matmul 4096^3", "matmul", {"m": 4096, "n": 4096, "k": 4096, **PRODUCT}),
    ("search matmul 64x8192x8192", "matmul", {"m": 64, "n": 8192, "k": 8192, **PRODUCT}),
    ("search gated 2048x14336x4096", "gated_mlp", {"m": 2048, "n": 14336, "k": 4096, **PRODUCT}),
    ("search attention 4x16x4096x128", "attention",
     {"b": 4, "heads": 16, "sq": 4096, "d": 128, "dtype": "bf16"}),
    ("search softmax 16384x8192", "softmax", {"m": 16384, "n": 8192, "dtype": "bf16"}),
)  # fmt: skip
FAILED = ("illegal", "compile_error", "crash", "timeout", "out_of_memory", "below_roofline")
WRONG = ("wrong_result",)
COMPILE_GOAL, RATE_GOAL, FAILED_GOAL = 250.0, 8.0, 0.01
FEWEST = 64  # trials of a job whose rate says something
MOST = 120.0  # seconds of one fresh search


def goal_row(
    case: str, metric: str, unit: str, ours: float, goal: float, less: bool, **more: Any
) -> Row:
    """A number beside its goal; `less` says that smaller is better."""
    high, low = (goal, ours) if less else (ours, goal)
    ratio = high / low if low else float(high >= low)
    return {
        "case": case, "metric": metric, "unit": unit, "ours": ours, "peer": "goal",
        "peer_value": goal, "ratio": ratio, "spread": 0.0, **more,
    }  # fmt: skip


def outcome_rows(case: str, trials: list[Record]) -> list[Row]:
    """Compile times and outcomes of trials."""
    outcomes = Counter(record.status for record in trials)
    compiled = [r.compile_seconds * 1e3 for r in trials if r.compile_seconds]
    failed, wrong = (sum(outcomes[s] for s in names) for names in (FAILED, WRONG))
    details = Counter(r.detail.splitlines()[0][:120] for r in trials if not r.ok and r.detail)
    facts = {"outcomes": dict(outcomes), "trials": len(trials)}
    return [
        goal_row(case, "median compile", "ms", statistics.median(compiled), COMPILE_GOAL, True,
                 largest=max(compiled), **facts),
        goal_row(case, "fail to compile or run", "share", failed / len(trials), FAILED_GOAL, True,
                 details=dict(details.most_common(8)), **facts),
        goal_row(case, "wrong results", "count", wrong, 0, True, **facts),
    ]  # fmt: skip


def store_rows(location: str) -> list[Row]:
    """Of all CUDA records: outcomes, and the median rate of whole searches, finals included."""
    with open_store(location) as store:
        trials = [r for r in store.records(target="cuda") if r.strategy not in DECIDING]
        jobs = {job.id: job_seconds(job) for job in store.jobs("done")}
    if not trials:
        return []
    counts = Counter(record.job for record in trials)
    rates = [counts[job] / jobs[job] for job in counts if counts[job] >= FEWEST and job in jobs]
    rows = outcome_rows("records", trials)
    if rates:
        rows.append(
            goal_row("records", "trials of whole searches", "per second", statistics.median(rates),
                     RATE_GOAL, False, searches=len(rates), least=min(rates), most=max(rates))
        )  # fmt: skip
    return rows


def fresh_rows(
    case: str, operator: str, arguments: dict[str, Any], trials: int, seconds: float
) -> list[Row]:
    """Of one search from nothing, finals included."""
    with fresh_start() as location:
        result = tune(
            operator, arguments, target="cuda", trials=trials, seconds=seconds, store=location
        )
        workload = Workload.of(operator, arguments, "cuda")
        with open_store(location) as store:
            known = store.records(workload=workload.program.key)
            found = [record for record in known if record.strategy not in DECIDING]
    rate = result.trials / result.elapsed
    facts = {"trials": result.trials, "search_seconds": round(result.elapsed, 1),
             "cores": len(os.sched_getaffinity(0))}  # fmt: skip
    return [
        *outcome_rows(case, found),
        goal_row(case, "trials of whole searches", "per second", rate, RATE_GOAL, False, **facts),
    ]


def add(results: Results, rows: Iterable[Row]) -> None:
    for row in rows:
        results.add(row)


def main() -> None:
    settings = options(__doc__ or "")
    clock, results = Clock(settings.seconds), Results.at(settings.out)
    for name, operator, arguments in pending(CASES, settings, results, clock, ("goal",), 60.0):
        with going_on():
            seconds = min(MOST, clock.left - 25)
            add(results, fresh_rows(name, operator, arguments, settings.trials, seconds))
    if not settings.dry and not settings.cases:
        add(results, store_rows(settings.store))


if __name__ == "__main__":
    main()
