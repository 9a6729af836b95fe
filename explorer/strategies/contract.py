"""What every strategy must keep, as tests: inherit `StrategyContract`, and set `name` or `make`.

    from explorer.strategies.contract import StrategyContract

    class TestMine(StrategyContract):
        name = "mine"  # as registered under the entry points `tilewright.strategies`

Needs pytest, so nothing else of the package imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from explorer.strategies.base import Strategy, make_strategy, strategy_names
from ir.schedule import Schedule
from ir.space import Constraint, Decision, Matrix, Space

POWERS = (1, 2, 4, 8, 16)
ORDERS = ("mnk", "mkn", "nmk", "nkm", "kmn", "knm")


@dataclass(frozen=True, slots=True)
class FakeOutcome:
    """What a strategy reads of an outcome."""

    status: str = "ok"
    seconds: float | None = 1.0
    kernel_key: str = ""
    notes: tuple[tuple[str, str | int | float | bool], ...] = ()


def example_space() -> Space:
    """180,000 schedules, of which a fifth are legal: ordered, named and yes-no decisions."""
    decisions = (
        Decision("rows", POWERS, "tile", "m", "rows of a block", 4),
        Decision("columns", POWERS, "tile", "n", "columns of a block", 4),
        Decision("depth", POWERS, "tile", "k", "depth of a block", 4),
        Decision("unroll", (1, 2, 4, 8), "pipeline", "k", "steps a turn", 1),
        Decision("order", ORDERS, "order", "nest", "order of the loops"),
        Decision("pack", (False, True), "layout", "A", "copy A to panels"),
        Decision("threads", POWERS, "binding", "m", "threads over rows", 1),
        Decision("prefetch", (0, 1, 2, 4, 8, 16), "pipeline", "B", "lines ahead", 0),
    )
    return Space(
        "toy",
        decisions,
        (
            _rule("registers", lambda c: c["rows"] * c["columns"] <= 32),
            _rule("rows", lambda c: c["rows"] * c["threads"] <= 64),
            _rule("work", lambda c: c["rows"] * c["columns"] * c["depth"] >= 64),
            _rule("packed", lambda c: ~(c.is_("pack", True) & c.among("order", ("kmn", "knm")))),
        ),
    )


def example_seconds(space: Space, matrix: Matrix) -> NDArray[np.float64]:
    """Times of rows of `example_space`: smooth, with interactions, one optimum."""
    c = space.columns(matrix)
    rows, columns, depth = (np.log2(c[name]) for name in ("rows", "columns", "depth"))
    cost = 1 + 0.3 * np.abs(rows + columns - 4) + 0.2 * np.abs(rows - columns)
    cost += 0.15 * np.abs(depth - 3) + 0.1 * np.abs(np.log2(c["unroll"]) - 4 + rows)
    cost *= 1 + 0.3 * (c["pack"] == 0) + 0.05 * np.abs(np.log2(1 + c["prefetch"]) - 2)
    cost *= 1 + 0.04 * c.codes("order") + 2.0 / c["threads"]
    return np.asarray(1e-3 * cost, dtype=np.float64)


def few_space() -> Space:
    """Few enough schedules to list: 60 in all, 31 legal."""
    decisions = (
        Decision("x", (1, 2, 3, 4, 5), "tile", "x", "a size"),
        Decision("y", (1, 2, 3, 4), "tile", "y", "another"),
        Decision("mode", ("slow", "fast", "odd"), "order", "nest", "how"),
    )
    rules = (
        _rule("sum", lambda c: c["x"] + c["y"] <= 6),
        _rule("odd", lambda c: ~c.is_("mode", "odd") | (c["x"] == 3)),
    )
    return Space("toy", decisions, rules)


def _rule(name: str, check: Callable[[Any], Any]) -> Constraint:
    return Constraint(name, f"the rule of {name}", check, lambda values: f"{name} is broken")


def outcomes_of(space: Space, schedules: Sequence[Schedule]) -> list[FakeOutcome]:
    """Good outcomes of schedules of `example_space`."""
    matrix = np.array([space.encode(schedule) for schedule in schedules])
    return [FakeOutcome(seconds=float(time)) for time in example_seconds(space, matrix)]


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
    """`trials` is how long the tests drive a strategy; `name` is what it is registered as."""

    name: str
    trials = 48

    def make(self, space: Space, seed: int = 0, **options: Any) -> Strategy:
        """The strategy under test; override it where more than a name is needed."""
        return make_strategy(self.name, space, np.random.default_rng(seed), **options)

    @pytest.fixture
    def space(self) -> Space:
        return example_space().pin(unroll=4)

    def test_it_is_registered(self) -> None:
        assert self.name in strategy_names()

    def test_asks_legal_schedules_each_once_and_obeys_pins(self, space: Space) -> None:
        strategy = self.make(space, trials=self.trials)
        told = drive(strategy, self.trials, lambda some: outcomes_of(space, some))
        assert len(told) == self.trials == len({schedule.key for schedule in told})
        assert space.legal(np.array([space.encode(schedule) for schedule in told])).all()

    def test_asking_again_without_telling_repeats_nothing(self, space: Space) -> None:
        strategy = self.make(space)
        asked = strategy.ask(10) + strategy.ask(10) + strategy.ask(0)
        assert len(asked) == 20 == len({schedule.key for schedule in asked})

    def test_a_small_space_is_walked_to_its_end(self) -> None:
        space = few_space()
        told = drive(self.make(space), 100, lambda some: [FakeOutcome() for _ in some], batch=7)
        assert len(told) == 31 == len({schedule.key for schedule in told})

    def test_a_space_of_one_schedule(self) -> None:
        strategy = self.make(few_space().pin(x=3, y=1, mode="odd"))
        assert len(strategy.ask(5)) == 1
        assert strategy.ask(5) == []

    def test_seeds_of_the_caller_come_first(self, space: Space) -> None:
        rows = space.sample(np.random.default_rng(9), 3)
        seeds = [space.schedule(row) for row in rows]
        assert self.make(space, seeds=seeds).ask(8)[:3] == seeds

    def test_goes_on_when_everything_fails(self, space: Space) -> None:
        failed = FakeOutcome("crash", None)
        strategy = self.make(space, trials=self.trials)
        told = drive(strategy, self.trials, lambda some: [failed] * len(some))
        assert len(told) == self.trials

    def test_goes_on_when_much_fails_and_kernels_coincide(self, space: Space) -> None:
        def outcomes(some: Sequence[Schedule]) -> list[FakeOutcome]:
            made = outcomes_of(space, some)
            good = [replace(o, kernel_key=f"{o.seconds:.4f}") for o in made]
            bad = FakeOutcome("timeout", None)
            return [bad if s["prefetch"] == 16 else o for s, o in zip(some, good, strict=True)]

        told = drive(self.make(space, trials=self.trials), self.trials, outcomes)
        assert len(told) == self.trials

    def test_an_interrupted_batch_may_be_told_in_part_and_out_of_order(self, space: Space) -> None:
        strategy = self.make(space, trials=self.trials)
        asked = strategy.ask(16)
        part = asked[10:2:-1]
        strategy.tell(part, outcomes_of(space, part))
        more = drive(strategy, 24, lambda some: outcomes_of(space, some))
        assert not {s.key for s in asked} & {s.key for s in more}
        assert len(more) == 24

    def test_records_of_earlier_runs_may_be_told(self, space: Space) -> None:
        strategy = self.make(space)
        earlier = example_space().pin(unroll=8)  # other pins than now
        for source in (earlier, space):
            rows = source.sample(np.random.default_rng(5), 24)
            known = list({source.schedule(row): None for row in rows})
            strategy.tell(known, outcomes_of(source, known))
        asked = strategy.ask(16)
        assert len(asked) == 16
        assert not {s.key for s in asked} & {s.key for s in known}
        assert all(schedule["unroll"] == 4 for schedule in asked)

    def test_same_seed_same_search(self, space: Space) -> None:
        first, second = (
            drive(self.make(space, 3, trials=40), 40, lambda some: outcomes_of(space, some))
            for _ in range(2)
        )
        assert first == second
