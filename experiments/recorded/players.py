"""Who searches: our strategies, Optuna's sampler, Kernel Tuner in its simulation mode.

Each player is a function of (recorded space, seed) that gives the times of its evaluations in
their order, infinity for a failure, and the seconds of the processor that it thought.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from recorded import BUDGET, Recorded, Times

from explorer.outcome import Outcome
from explorer.strategies.base import find_strategy
from explorer.strategies.guide import Guided
from ir.schedule import Value

Player = Callable[[Recorded, int], tuple[Times, float]]
BATCH = 16


def ours(name: str, batch: int = BATCH) -> Player:
    """A strategy of the registry, asked as a search asks it: for no more than it wants at once."""

    def play(recorded: Recorded, seed: int) -> tuple[Times, float]:
        rng = np.random.default_rng(seed)
        strategy = find_strategy(name)(recorded.space, rng, trials=BUDGET)
        times: list[float] = []
        thought = -time.process_time()
        while len(times) < BUDGET:
            count = min(batch, BUDGET - len(times))
            count = strategy.portion(count) if isinstance(strategy, Guided) else count
            asked = strategy.ask(count)
            if not asked:
                break
            told = [recorded.time(schedule) for schedule in asked]
            strategy.tell(asked, [_outcome(seconds) for seconds in told])
            times += told
        return np.array(times), thought + time.process_time()

    return play


def _outcome(seconds: float) -> Outcome:
    return Outcome("ok", seconds) if np.isfinite(seconds) else Outcome("crash")


def kernel_tuner(strategy: str) -> Player:
    """Kernel Tuner's strategy at its default settings; it knows which schedules were recorded."""

    def play(recorded: Recorded, seed: int) -> tuple[Times, float]:
        thought = -time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder) / "cache.json"
            cache.write_text(json.dumps(_cache(recorded)))
            thought = -time.process_time()
            results = _simulate(recorded, cache, strategy, seed)
        thought += time.process_time()
        found: dict[str, float] = {}
        for result in results:
            key = _key([result[name] for name in recorded.domains])
            seconds = result["time"]
            found.setdefault(key, float("inf") if isinstance(seconds, str) else float(seconds))
        return np.array(list(found.values())), thought

    return play


def _simulate(recorded: Recorded, cache: Path, strategy: str, seed: int) -> list[dict[str, Any]]:
    from kernel_tuner import tune_kernel

    random.seed(seed)
    np.random.seed(seed)
    allowed = set(_entries(recorded))

    def known(values: Mapping[str, Value]) -> bool:
        return _key([values[name] for name in recorded.domains]) in allowed

    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        results, _ = tune_kernel(
            recorded.name, "", (1, 1), [], _domains(recorded), lang="C", restrictions=known,
            strategy=strategy, strategy_options={"max_fevals": BUDGET}, cache=str(cache),
            simulation_mode=True, quiet=True,
        )  # fmt: skip
    return list(results)


def _domains(recorded: Recorded) -> dict[str, list[Value]]:
    return {name: list(domain) for name, domain in recorded.domains.items()}


def _cache(recorded: Recorded) -> dict[str, Any]:
    """The space in Kernel Tuner's own file format."""
    return {
        "device_name": "recorded",
        "kernel_name": recorded.name,
        "problem_size": [1, 1],
        "tune_params_keys": list(recorded.domains),
        "tune_params": _domains(recorded),
        "objective": "time",
        "cache": _entries(recorded),
    }


def _entries(recorded: Recorded) -> dict[str, Any]:
    found = {}
    spent = {"compile_time": 0.0, "verification_time": 0.0, "benchmark_time": 0.0}
    spent |= {"strategy_time": 0.0, "framework_time": 0.0}
    domains = list(recorded.domains.items())
    for place in np.argwhere(~np.isposinf(recorded.table)).tolist():
        values = {name: domain[n] for (name, domain), n in zip(domains, place, strict=True)}
        seconds = float(recorded.table[tuple(place)])
        good = np.isfinite(seconds)
        time_ = {"time": seconds, "times": [seconds]} if good else {"time": "RuntimeFailedConfig"}
        stamp = {"timestamp": "2026-01-01"}
        found[_key(list(values.values()))] = values | time_ | spent | stamp
    return found


def _key(values: list[Value]) -> str:
    return ",".join(str(value) for value in values)


PLAYERS: dict[str, Player] = {
    "evolutionary": ours("evolutionary"),
    "random": ours("random"),
    "Optuna TPE": ours("optuna-tpe", batch=1),
    "Kernel Tuner adaptive tabu grey wolf": kernel_tuner("adaptive_tabu_greywolf"),
    "Kernel Tuner genetic algorithm": kernel_tuner("genetic_algorithm"),
}
