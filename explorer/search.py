"""Ask, measure, record, tell: one search over one workload, batch by batch.

Knows strategies, measuring and records by their interfaces; no operator and no target.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from costmodel.saved import TrainedModel
from explorer.errors import NothingValid
from explorer.measure import Measurer
from explorer.outcome import Outcome
from explorer.recall import FINAL, known_trials, to_record
from explorer.settings import cache_dir
from explorer.strategies.base import find_strategy
from explorer.strategies.guide import Guided, Quality
from explorer.training import prior_for
from explorer.workload import Workload
from ir.errors import UsageError
from ir.schedule import Schedule
from records import Store

FINALISTS = 6
FINALS_SECONDS = 10.0  # about what the finals may take; fewer finalists if kernels are slow
RUNS_A_TURN = 9  # checks and samples of one finalist in one round
ROUNDS = 5


def finals_size(seconds: float) -> tuple[int, int]:
    """Finalists and rounds for kernels that take `seconds`; at least two and two."""
    turns = FINALS_SECONDS / (RUNS_A_TURN * seconds)
    rounds = max(2, min(ROUNDS, int(turns / FINALISTS)))
    return max(2, min(FINALISTS, int(turns / rounds))), rounds


class Search:
    """`step` measures and records a batch, `finals` decides. Use as a context manager.

    What the store knows of the workload on this machine is told to the strategy first, and is
    not measured again. `model` is a file to start with, "none", or (None) the package's own.
    """

    def __init__(
        self,
        workload: Workload,
        store: Store,
        *,
        strategy: str = "evolutionary",
        trials: int = 256,
        pins: Mapping[str, object] | None = None,
        seed: int = 0,
        cache: Path | None = None,
        model: str | Path | None = None,
    ) -> None:
        make = find_strategy(strategy)
        self.workload = workload
        self.store = store
        self.strategy_name = strategy
        self.space = workload.space(pins)
        self.strategy = make(self.space, np.random.default_rng(seed), trials=trials)
        self.prior = self._use_prior(model)
        self.outcomes: Counter[str] = Counter()
        self._good: dict[str, tuple[float, Schedule]] = {}
        self.known = self._recall()
        self.measurer = Measurer(
            workload.program,
            workload.target,
            workload.hardware,
            cache_dir=cache or cache_dir(),
            seed=seed,
        )
        self.measurer.best = self.best_seconds
        options = {"strategy": strategy, "trials": trials, "seed": seed, "pins": dict(pins or {})}
        if self.prior is not None:
            options["model"] = self.prior.data.get("fingerprint", "")
        self.job = store.new_job(
            workload.operator, workload.extents_json, workload.target, json.dumps(options)
        )
        self.state = "failed"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def model_quality(self) -> Sequence[Quality]:
        """How well each batch was scored before it was learnt from; empty without a model."""
        return self.strategy.quality if isinstance(self.strategy, Guided) else ()

    @property
    def trials(self) -> int:
        """Candidates measured by this search."""
        return sum(self.outcomes.values())

    @property
    def best_seconds(self) -> float | None:
        """The fastest time so far, known trials included."""
        return min((seconds for seconds, _ in self._good.values()), default=None)

    def ranked(self) -> list[tuple[float, Schedule]]:
        """Good schedules with their times, the fastest first, one for each kernel."""
        return sorted(self._good.values(), key=lambda pair: pair[0])

    def step(self, count: int) -> Iterator[tuple[Schedule, Outcome]]:
        """Measure up to `count` candidates; each pair is in the store when it is yielded."""
        schedules = self.strategy.ask(count)
        outcomes: list[Outcome] = []
        try:
            for schedule, outcome in zip(schedules, self.measurer.measure(schedules), strict=True):
                self._add(schedule, outcome, self.strategy_name)
                outcomes.append(outcome)
                self.outcomes[outcome.status] += 1
                self._note(schedule, outcome)
                yield schedule, outcome
        finally:
            self.strategy.tell(schedules[: len(outcomes)], outcomes)

    def finals(self) -> tuple[float, Schedule]:
        """The best few re-measured in turns; the winner by median. Raises NothingValid."""
        ranked = self.ranked()
        if not ranked:
            raise self.nothing_valid()
        count, rounds = finals_size(ranked[0][0])
        schedules = [schedule for _, schedule in ranked[:count]]
        outcomes = self.measurer.compete(schedules, rounds)
        found: list[tuple[float, Schedule]] = []
        for schedule, outcome in zip(schedules, outcomes, strict=True):
            self._add(schedule, outcome, FINAL)
            if outcome.ok and outcome.seconds is not None:
                found.append((outcome.seconds, schedule))
        if not found:
            seen = "; ".join(outcome.detail or outcome.status for outcome in outcomes[:2])
            raise NothingValid(f"{self.workload.operator}: no finalist was right again: {seen}")
        return min(found, key=lambda pair: pair[0])

    def nothing_valid(self) -> NothingValid:
        """The error of a search that found nothing, with what it met."""
        counts = ", ".join(f"{n} {status}" for status, n in self.outcomes.most_common())
        name, tried = self.workload.operator, self.trials
        met = (
            f"none of {tried} candidates was valid ({counts})" if tried else "nothing was measured"
        )
        return NothingValid(f"{name}: {met}; try more trials, more seconds or fewer pins")

    def close(self) -> None:
        """End the workers and note the job's state."""
        self.measurer.close()
        self.store.update_job(self.job.id, self.state)

    def _use_prior(self, model: str | Path | None) -> TrainedModel | None:
        """Give the strategy the model to start with, if it takes one."""
        if not isinstance(self.strategy, Guided):
            return None
        prior = prior_for(self.space, model)
        if prior is not None:
            self.strategy.use_prior(prior)
        return prior

    def _recall(self) -> int:
        """Tell the strategy what the store knows; gives the number of schedules."""
        told = []
        open_space = self.workload.backend.space(self.workload.program, self.workload.hardware)
        for schedule, outcome in known_trials(self.store, self.workload):
            try:
                open_space.encode(schedule)
            except UsageError:
                continue  # of a space that this version no longer spans
            told.append((schedule, outcome))
            if self._pinned_so(schedule):
                self._note(schedule, outcome)
        if told:
            self.strategy.tell([schedule for schedule, _ in told], [outcome for _, outcome in told])
        return len(told)

    def _pinned_so(self, schedule: Schedule) -> bool:
        return all(schedule[name] == value for name, value in self.space.pinned.items())

    def _note(self, schedule: Schedule, outcome: Outcome) -> None:
        if outcome.ok and outcome.seconds is not None:
            key = outcome.kernel_key or schedule.key
            if key not in self._good or outcome.seconds < self._good[key][0]:
                self._good[key] = (outcome.seconds, schedule)

    def _add(self, schedule: Schedule, outcome: Outcome, strategy: str) -> None:
        self.store.add(to_record(self.workload, schedule, outcome, self.job.id, strategy))
