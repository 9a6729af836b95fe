"""Who searches a recorded space: our strategies by ask and tell, Kernel Tuner by its simulation.

Each player is a function of (space, seed) that gives the times of its evaluations in their order.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from replayed import BUDGET, Replayed, Times

from explorer.strategies.base import Strategy, find_strategy
from explorer.strategies.guide import Guided
from ir.schedule import Schedule, Value

Player = Callable[[Replayed, int], Times]
BATCH = 16


def ours(name: str, batch: int = BATCH) -> Player:
    """A strategy of the registry, without the backend's seeds; each schedule is an evaluation."""

    def play(table: Replayed, seed: int) -> Times:
        strategy = find_strategy(name)(table.bare, np.random.default_rng(seed), trials=BUDGET)
        times: list[float] = []
        while len(times) < BUDGET:
            asked = strategy.ask(wanted(strategy, min(batch, BUDGET - len(times))))
            if not asked:
                break
            strategy.tell(asked, [table.outcome(schedule, kernels=False) for schedule in asked])
            times += [table.seconds[schedule] for schedule in asked]
        return np.array(times)

    return play


def wanted(strategy: Strategy, count: int) -> int:
    """As a search asks: for no more than the strategy wants at once."""
    return strategy.portion(count) if isinstance(strategy, Guided) else count


def as_shipped(table: Replayed, seed: int) -> Times:
    """Our default: with the backend's seeds, and a kernel that ran before is no evaluation."""
    rng = np.random.default_rng(seed)
    strategy = find_strategy("evolutionary")(table.space, rng, trials=BUDGET)
    times: dict[str, float] = {}
    while len(times) < BUDGET:
        asked = strategy.ask(wanted(strategy, min(BATCH, BUDGET - len(times))))
        if not asked:
            break
        outcomes = [table.outcome(schedule, kernels=True) for schedule in asked]
        strategy.tell(asked, outcomes)
        for schedule, outcome in zip(asked, outcomes, strict=True):
            times.setdefault(outcome.kernel_key, table.seconds[schedule])
    return np.array(list(times.values()))


def kernel_tuner(strategy: str) -> Player:
    """Kernel Tuner's strategy at its default settings, in simulation mode."""

    def play(table: Replayed, seed: int) -> Times:
        names = [table.bare.decisions[column].name for column in table.bare.shape.free]
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder) / "cache.json"
            cache.write_text(json.dumps(_cache(table, names)))
            results = _simulate(table, names, cache, strategy, seed)
        found: dict[str, float] = {}
        for result in results:
            key = _key([result[name] for name in names])
            found.setdefault(key, float(result["time"]) / 1e3)
        return np.array(list(found.values()))

    return play


def _simulate(
    table: Replayed, names: list[str], cache: Path, strategy: str, seed: int
) -> list[dict[str, Any]]:
    from kernel_tuner import tune_kernel

    random.seed(seed)
    np.random.seed(seed)
    allowed = {_key([schedule[name] for name in names]) for schedule in table.seconds}

    def recorded(values: Mapping[str, Value]) -> bool:
        return _key([values[name] for name in names]) in allowed

    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        results, _ = tune_kernel(
            table.case.name,
            "",
            (1, 1),
            [],
            _domains(table, names),
            lang="C",
            restrictions=recorded,
            strategy=strategy,
            strategy_options={"max_fevals": BUDGET},
            cache=str(cache),
            simulation_mode=True,
            quiet=True,
        )
    return list(results)


def _domains(table: Replayed, names: list[str]) -> dict[str, list[Value]]:
    return {name: list(table.bare.decision(name).domain) for name in names}


def _cache(table: Replayed, names: list[str]) -> dict[str, Any]:
    """The space in Kernel Tuner's own file format; times in milliseconds."""
    return {
        "device_name": "recorded",
        "kernel_name": table.case.name,
        "problem_size": [1, 1],
        "tune_params_keys": names,
        "tune_params": _domains(table, names),
        "objective": "time",
        "cache": {
            _key([schedule[name] for name in names]): _entry(schedule, names, seconds)
            for schedule, seconds in table.seconds.items()
        },
    }


def _entry(schedule: Schedule, names: list[str], seconds: float) -> dict[str, Any]:
    durations = {"compile_time": 0.0, "verification_time": 0.0, "benchmark_time": 0.0}
    overheads = {"strategy_time": 0.0, "framework_time": 0.0, "timestamp": "2026-01-01"}
    time = seconds * 1e3
    return (
        {name: schedule[name] for name in names}
        | {"time": time, "times": [time]}
        | (durations | overheads)
    )


def _key(values: list[Value]) -> str:
    return ",".join(str(value) for value in values)


PLAYERS: dict[str, Player] = {
    "evolutionary": ours("evolutionary"),
    "random": ours("random"),
    "Optuna TPE": ours("optuna-tpe", batch=1),
    "Kernel Tuner genetic algorithm": kernel_tuner("genetic_algorithm"),
    "Kernel Tuner simulated annealing": kernel_tuner("simulated_annealing"),
    "annealing": ours("annealing"),
    "evolutionary as shipped": as_shipped,
}
