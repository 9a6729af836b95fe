"""Simulated annealing: chains that walk from neighbour to neighbour, uphill less and less often.

Kirkpatrick, Gelatt and Vecchi (Science 220, 1983), with several chains so that a batch may be
measured at once. Knows spaces and outcomes; no model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from explorer.strategies.base import OutcomeLike
from explorer.strategies.history import History, SeedQueue, draw_fresh
from ir.schedule import Schedule
from ir.space import Matrix, Row, Space


@dataclass(frozen=True, slots=True)
class Settings:
    """Temperatures are of log time: at 0.1 a step that is 10 % slower is taken once in e times."""

    chains: int = 3
    hottest: float = 0.2
    coldest: float = 0.01
    strength: float = 1.5  # decisions changed by a step, on average
    tries: int = 64  # neighbours drawn for each chain to find one that is new and legal
    horizon: int = 192  # budget assumed when none is given


@dataclass(slots=True)
class _Chain:
    """Where a chain stands, and the log of its time there."""

    row: Row | None = None
    energy: float = math.inf


class Annealing:
    """See the module's text; `Settings` holds every number."""

    def __init__(
        self,
        space: Space,
        rng: np.random.Generator,
        *,
        trials: int | None = None,
        seeds: Sequence[Schedule] = (),
        settings: Settings | None = None,
    ) -> None:
        self.space = space
        self.settings = settings or Settings()
        self.history = History(space)
        self._rng = rng
        self._budget = trials or self.settings.horizon
        self._queue = SeedQueue(self.history, rng, seeds)
        self._chains = [_Chain() for _ in range(self.settings.chains)]
        self._pending: dict[bytes, _Chain] = {}

    def ask(self, n: int) -> list[Schedule]:
        seeds = self._queue.take(n)
        rows = np.concatenate([seeds, self._steps(n - len(seeds))])
        batch = self.history.asked(self.history.fresh(rows))
        if len(batch) < n:
            batch += self.history.asked(draw_fresh(self.history, self._rng, n - len(batch)))
        return batch

    def tell(self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]) -> None:
        rows = self.history.told(schedules, outcomes)
        times = self.history.seconds[len(self.history) - len(rows) :]
        for row, seconds in zip(rows, times.tolist(), strict=True):
            self._settle(row, math.log(seconds) if seconds > 0 else math.inf)

    @property
    def temperature(self) -> float:
        """Geometric from the hottest to the coldest over the budget."""
        settings = self.settings
        progress = min(1.0, len(self.history) / self._budget)
        return float(settings.hottest * (settings.coldest / settings.hottest) ** progress)

    def _steps(self, count: int) -> Matrix:
        """New neighbours of the chains in turn, up to `count`."""
        width = len(self.space.decisions)
        found: list[Row] = []
        started = [chain for chain in self._chains if chain.row is not None]
        for number in range(max(0, count) if started else 0):
            chain = started[number % len(started)]
            row = self._neighbour(chain)
            if row is not None:
                self._pending[row.tobytes()] = chain
                found.append(row)
        return np.array(found, dtype=np.int16).reshape(len(found), width)

    def _neighbour(self, chain: _Chain) -> Row | None:
        assert chain.row is not None
        near = np.repeat(chain.row[None, :], self.settings.tries, axis=0)
        near = self.space.mutate(self._rng, near, self.settings.strength)
        near = self.history.fresh(near[self.space.legal(near)])
        return next((row for row in near if row.tobytes() not in self._pending), None)

    def _settle(self, row: Row, energy: float) -> None:
        """Decide the step that a chain waits for; what nobody waits for may start a chain anew."""
        chain = self._pending.pop(row.tobytes(), None)
        if chain is not None:
            if self._accepts(energy - chain.energy):
                chain.row, chain.energy = row, energy
            return
        worst = max(self._chains, key=lambda chain: chain.energy)
        inside = self.history.within_pins(row) and bool(self.space.legal(row[None, :])[0])
        if energy < worst.energy and inside:
            worst.row, worst.energy = row, energy

    def _accepts(self, rise: float) -> bool:
        """Metropolis' rule."""
        return rise <= 0 or self._rng.random() < math.exp(-min(rise / self.temperature, 700.0))
