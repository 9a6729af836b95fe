"""What is asked follows from outcomes alone, in whatever order and however late they come."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

import explorer.search
from explorer.asking import Asker
from explorer.outcome import Outcome
from explorer.search import Search
from explorer.strategies.base import OutcomeLike
from explorer.workload import Workload
from ir.schedule import Schedule
from records import Record, Store
from tests.job.device import ScriptedDevice, alike, by_key

TRIALS = 60


class ShuffledDevice(ScriptedDevice):
    """Ends what is under way in an order of its own, and sometimes says that it has to wait."""

    def __init__(self, seed: int, **options: Any) -> None:
        super().__init__(**options)
        self._random = random.Random(seed)
        self.depth = 3
        self.most = 0

    def ended(self, alarm: int | None = None) -> tuple[Schedule, Outcome] | None:
        if alarm is not None and self._random.random() < 0.3:
            return None
        self.most = max(self.most, len(self._begun))
        self._begun.rotate(self._random.randrange(1 + len(self._begun)))
        return super().ended(alarm)


def dialogue(
    path: Path, device: ScriptedDevice, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> list[Any]:
    """What the strategy of a search is asked and told, in order."""
    said: list[Any] = []

    class Overheard(Asker):
        def tell(self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]) -> None:
            said.append(("told", [s.key for s in schedules], [o.seconds for o in outcomes]))
            super().tell(schedules, outcomes)

        def ask(self, count: int, whole: bool = False) -> None:
            said.append(("asked", count))
            super().ask(count, whole)

    monkeypatch.setattr(explorer.search, "Asker", Overheard)
    workload = Workload.of("matmul", {"m": 64, "n": 64, "k": 64})
    with (
        Store(path) as store,
        Search(workload, store, trials=TRIALS, measurer=device, **options) as search,
    ):
        while search.trials < TRIALS:
            left = TRIALS - search.trials
            assert list(search.step(min(16, left), ahead=max(0, left - 16)))
    assert search.trials == TRIALS
    return said


@pytest.mark.parametrize("strategy", ["evolutionary", "annealing"])
def test_the_order_of_outcomes_makes_no_difference(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        dialogue(
            tmp_path / f"{seed}.db", ShuffledDevice(seed, rule=by_key), monkeypatch,
            strategy=strategy,
        )
        for seed in range(3)
    ]  # fmt: skip
    assert found[0] == found[1] == found[2]


def test_the_next_groups_are_asked_for_before_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = ShuffledDevice(0, rule=by_key)
    said = dialogue(tmp_path / "r.db", device, monkeypatch, strategy="random")
    kinds = [word[0] for word in said]
    assert kinds[:4] == ["asked", "asked", "asked", "told"]
    assert device.most > 16


def test_copies_are_asked_for_again_and_no_trial_is_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen kernels in all: the strategy is told of copies until a step gives up."""

    def few(schedule: Schedule) -> Outcome:
        return Outcome("ok", 1e-3, kernel_key=alike(schedule))

    workload = Workload.of("matmul", {"m": 64, "n": 64, "k": 64})
    with (
        Store(tmp_path / "r.db") as store,
        Search(
            workload, store, strategy="random", trials=TRIALS, measurer=ShuffledDevice(1, rule=few)
        ) as search,
    ):
        while list(search.step(8, ahead=8)):
            pass
        assert search.trials == 16


class SlowStrategy:
    """Takes its time; raises when it is asked a second time."""

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, n: int) -> list[Schedule]:
        self.asked += 1
        time.sleep(0.05)
        if self.asked > 1:
            raise ZeroDivisionError("a bug in the strategy")
        return [Schedule.of("toy", {"x": number}) for number in range(n)]

    def tell(self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]) -> None:
        raise LookupError("another one")


def test_a_strategy_is_asked_beside_and_what_it_raises_is_heard() -> None:
    asker = Asker(SlowStrategy())
    try:
        assert asker.alarm is None
        asker.ask(3)
        assert not asker.ready
        assert asker.alarm is not None
        assert len(asker.asked().schedules) == 3
        asker.ask(3)
        with pytest.raises(ZeroDivisionError):
            asker.asked()
        asker.tell([], [])
        with pytest.raises(LookupError):
            asker.settle()
    finally:
        asker.close()


class ManyAtOnce(ShuffledDevice):
    """Says how many outcomes are at hand, as a farm does."""

    @property
    def at_hand(self) -> int:
        return len(self._begun)


def test_outcomes_that_are_at_hand_together_are_stored_in_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each is told once it is stored, whoever stops listening in the middle of them."""
    commits: list[int] = []
    add = Store.add_all

    def counted(store: Store, records: Iterable[Record]) -> int:
        batch = tuple(records)
        commits.append(len(batch))
        return add(store, batch)

    monkeypatch.setattr(Store, "add_all", counted)
    workload = Workload.of("matmul", {"m": 64, "n": 64, "k": 64})
    with (
        Store(tmp_path / "r.db") as store,
        Search(
            workload, store, strategy="random", trials=TRIALS, measurer=ManyAtOnce(2, rule=by_key)
        ) as search,
    ):
        for number, _ in enumerate(search.step(32, ahead=16), start=1):
            assert number == search.trials <= store.count()
            if number == 20:
                break
        assert search.trials == store.count() == sum(commits) >= 20
    assert max(commits) > 1
