"""What is asked follows from outcomes alone, in whatever order and however late they come."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
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
        self.depth, self.abreast = 3, 1
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

        def ask(self, count: int, abreast: int = 1, whole: bool = False) -> None:
            said.append(("asked", count))
            super().ask(count, abreast, whole)

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


@pytest.mark.parametrize("abreast", [1, 2])
def test_each_of_several_devices_has_a_portion(
    abreast: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = ShuffledDevice(0, rule=by_key)
    device.abreast = abreast
    said = dialogue(tmp_path / "r.db", device, monkeypatch)
    sizes = [len(word[1]) for word in said if word[0] == "told"]
    assert 4 * abreast in sizes
    assert (8 in sizes[len(sizes) // 2 :]) == (abreast == 2)


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


def test_short_trials_are_committed_together_and_before_they_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[int] = []
    unstored: list[str] = []
    workload = Workload.of("matmul", {"m": 64, "n": 64, "k": 64})
    with (
        Store(tmp_path / "r.db") as store,
        Search(
            workload, store, strategy="random", trials=TRIALS, measurer=ScriptedDevice(rule=by_key)
        ) as search,
    ):
        add_all, tell = store.add_all, search.strategy.tell

        def committed(records: Sequence[Record]) -> int:
            commits.append(len(records))
            return add_all(records)

        def told(schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]) -> None:
            stored = {record.schedule_key for record in store.records()}
            unstored.extend({schedule.key for schedule in schedules} - stored)
            tell(schedules, outcomes)

        monkeypatch.setattr(store, "add_all", committed)
        monkeypatch.setattr(search.strategy, "tell", told)
        given = []
        for schedule, _ in search.step(TRIALS):
            given.append(schedule.key)
            assert store.count() >= len(given) == search.trials
    assert sum(commits) == len(given) == TRIALS
    assert len(commits) < TRIALS
    assert not unstored


def test_whoever_stops_listening_loses_no_trial(tmp_path: Path) -> None:
    workload = Workload.of("matmul", {"m": 64, "n": 64, "k": 64})
    device = ScriptedDevice(rule=by_key)
    with (
        Store(tmp_path / "r.db") as store,
        Search(workload, store, strategy="random", trials=TRIALS, measurer=device) as search,
    ):
        for number, _ in enumerate(search.step(TRIALS)):
            if number == 1:
                break
        assert store.count() == search.trials >= 2
