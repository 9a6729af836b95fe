"""What every strategy must keep: inherit `StrategyContract` and set `name`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from explorer.strategies.base import Strategy, make_strategy, strategy_names
from ir.schedule import Schedule
from ir.space import Space
from tests.space.toy import small_space, tiling_space, toy_seconds


@dataclass(frozen=True, slots=True)
class FakeOutcome:
    status: str = "ok"
    seconds: float | None = 1.0
    kernel_key: str = ""


def outcomes_of(space: Space, schedules: Sequence[Schedule]) -> list[FakeOutcome]:
    matrix = np.array([space.encode(schedule) for schedule in schedules])
    return [FakeOutcome(seconds=float(time)) for time in toy_seconds(space, matrix)]


def drive(
    strategy: Strategy,
    trials: int,
    outcomes: Callable[[Sequence[Schedule]], Sequence[FakeOutcome]],
    batch: int = 16,
) -> list[Schedule]:
    """Ask and tell until `trials` are told, or the strategy has no more to ask."""
    told: list[Schedule] = []
    while len(told) < trials:
        asked = strategy.ask(min(batch, trials - len(told)))
        if not asked:
            break
        strategy.tell(asked, outcomes(asked))
        told += asked
    return told


class StrategyContract:
    name: str

    def make(self, space: Space, seed: int = 0, **options: object) -> Strategy:
        return make_strategy(self.name, space, np.random.default_rng(seed), **options)  # type: ignore[arg-type]

    @pytest.fixture
    def space(self) -> Space:
        return tiling_space().pin({"unroll.k": 4})

    def test_it_is_registered(self) -> None:
        assert self.name in strategy_names()

    def test_asks_legal_schedules_each_once_and_obeys_pins(self, space: Space) -> None:
        strategy = self.make(space, trials=64)
        told = drive(strategy, 64, lambda some: outcomes_of(space, some))
        assert len(told) == 64 == len({schedule.key for schedule in told})
        assert space.legal(np.array([space.encode(schedule) for schedule in told])).all()

    def test_asking_again_without_telling_repeats_nothing(self, space: Space) -> None:
        strategy = self.make(space)
        asked = strategy.ask(10) + strategy.ask(10) + strategy.ask(0)
        assert len(asked) == 20 == len({schedule.key for schedule in asked})

    def test_a_small_space_is_walked_to_its_end(self) -> None:
        space = small_space()
        told = drive(self.make(space), 100, lambda some: [FakeOutcome() for _ in some], batch=7)
        assert len(told) == 31 == len({schedule.key for schedule in told})

    def test_a_space_of_one_schedule(self) -> None:
        space = small_space().pin(x=3, y=1, mode="odd")
        strategy = self.make(space)
        assert len(strategy.ask(5)) == 1
        assert strategy.ask(5) == []

    def test_seeds_of_the_caller_come_first(self, space: Space) -> None:
        rows = space.sample(np.random.default_rng(9), 3)
        seeds = [space.schedule(row) for row in rows]
        assert self.make(space, seeds=seeds).ask(8)[:3] == seeds

    def test_goes_on_when_everything_fails(self, space: Space) -> None:
        failed = FakeOutcome("crash", None)
        told = drive(self.make(space, trials=48), 48, lambda some: [failed] * len(some))
        assert len(told) == 48

    def test_goes_on_when_much_fails_and_kernels_coincide(self, space: Space) -> None:
        def outcomes(some: Sequence[Schedule]) -> list[FakeOutcome]:
            made = outcomes_of(space, some)
            good = [replace(o, kernel_key=f"{o.seconds:.4f}") for o in made]
            bad = FakeOutcome("timeout", None)
            return [bad if s["prefetch"] == 16 else o for s, o in zip(some, good, strict=True)]

        assert len(drive(self.make(space, trials=64), 64, outcomes)) == 64

    def test_records_of_earlier_runs_may_be_told(self, space: Space) -> None:
        strategy = self.make(space)
        earlier = tiling_space().pin({"unroll.k": 8})  # other pins than now
        for source in (earlier, space):
            rows = source.sample(np.random.default_rng(5), 24)
            known = [source.schedule(row) for row in rows]
            strategy.tell(known, outcomes_of(source, known))
        asked = strategy.ask(16)
        assert len(asked) == 16
        assert not {s.key for s in asked} & {s.key for s in known}
        assert all(schedule["unroll.k"] == 4 for schedule in asked)

    def test_same_seed_same_search(self, space: Space) -> None:
        first, second = (
            drive(self.make(space, 3, trials=40), 40, lambda some: outcomes_of(space, some))
            for _ in range(2)
        )
        assert first == second
