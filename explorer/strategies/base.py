"""What a search strategy is, and how one is found by name. Knows spaces, not how one measures."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, cast

import numpy as np

from ir.errors import UsageError
from ir.schedule import Schedule
from ir.space import Space

ENTRY_POINTS = "tilewright.strategies"
REGISTRY = {
    "annealing": "explorer.strategies.annealing:Annealing",
    "evolutionary": "explorer.strategies.evolutionary:Evolutionary",
    "exhaustive": "explorer.strategies.exhaustive:Exhaustive",
    "optuna-cmaes": "explorer.strategies.optuna_samplers:cmaes",
    "optuna-nsgaii": "explorer.strategies.optuna_samplers:nsgaii",
    "optuna-random": "explorer.strategies.optuna_samplers:random",
    "optuna-tpe": "explorer.strategies.optuna_samplers:tpe",
    "replay": "explorer.strategies.replay:Replay",
    "random": "explorer.strategies.random:Random",
}


class OutcomeLike(Protocol):
    """What a strategy reads of an outcome."""

    @property
    def status(self) -> str: ...

    @property
    def seconds(self) -> float | None: ...

    @property
    def kernel_key(self) -> str | None: ...

    @property
    def notes(self) -> tuple[tuple[str, str | int | float | bool], ...]: ...


class Strategy(Protocol):
    """Proposes schedules and learns from their outcomes."""

    def ask(self, n: int) -> list[Schedule]:
        """Up to `n` legal schedules, none asked or told before; fewer when none are left."""
        ...

    def tell(self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]) -> None:
        """Outcomes of schedules, in any order, asked or not (earlier records are told so)."""
        ...


class Factory(Protocol):
    """How a strategy is made: `trials` is the budget if known, `seeds` are measured first."""

    def __call__(
        self,
        space: Space,
        rng: np.random.Generator,
        *,
        trials: int | None = None,
        seeds: Sequence[Schedule] = (),
    ) -> Strategy: ...


def strategy_names() -> tuple[str, ...]:
    return tuple(sorted({*REGISTRY, *(entry.name for entry in _plugins())}))


def find_strategy(name: str) -> Factory:
    """The strategy called `name`; UsageError with the nearest name if there is none."""
    if name in REGISTRY:
        module, _, attribute = REGISTRY[name].partition(":")
        return cast(Factory, getattr(import_module(module), attribute))
    for entry in _plugins():
        if entry.name == name:
            return cast(Factory, entry.load())
    near = difflib.get_close_matches(name, strategy_names(), n=1, cutoff=0.0)
    raise UsageError(f"no strategy {name!r}; the nearest is {near[0]!r}")


def make_strategy(
    name: str,
    space: Space,
    rng: np.random.Generator,
    *,
    trials: int | None = None,
    seeds: Sequence[Schedule] = (),
) -> Strategy:
    return find_strategy(name)(space, rng, trials=trials, seeds=seeds)


def _plugins() -> Sequence[EntryPoint]:
    return tuple(entry_points(group=ENTRY_POINTS))
