"""Jobs on a scripted device: budgets, order of events, resuming, finals, interruptions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import explorer
from explorer import job
from explorer.errors import NothingValid
from explorer.job import JobResult, Progress
from explorer.outcome import Outcome, Status
from explorer.recall import best_record, known_trials, to_record
from explorer.search import Search
from explorer.strategies.base import REGISTRY, OutcomeLike
from explorer.strategies.random import Random
from explorer.workload import Workload
from ir.errors import UsageError
from ir.schedule import Schedule
from records import Store
from tests.job.device import ScriptedDevice, alike, by_key

EXTENTS: dict[str, Any] = {"m": 64, "n": 64, "k": 64}


def tune(path: Path, **options: Any) -> JobResult:
    given: dict[str, Any] = {"trials": 24, "strategy": "random", "store": path} | options
    return job.tune("matmul", EXTENTS, **given)


def test_a_job_measures_its_trials_and_names_the_best(device: ScriptedDevice, path: Path) -> None:
    result = tune(path)
    times = [by_key(schedule).seconds or 0.0 for schedule in device.measured]
    assert result.trials == len(device.measured) == len(set(device.measured)) == 24
    assert result.seconds == min(times)
    assert by_key(result.best).seconds == result.seconds
    assert result.outcomes == (("ok", 24),)
    assert result.gflops == pytest.approx(result.program.flops / result.seconds / 1e9)
    assert device.closed


def test_every_trial_is_stored_before_it_is_told(device: ScriptedDevice, path: Path) -> None:
    seen: list[int] = []

    def progress(progress: Progress) -> None:
        with Store(path) as other:
            assert other.count() == progress.trial
            last = list(other.records())[-1]
        assert last.schedule == progress.schedule.to_json()
        seen.append(progress.trial)

    tune(path, trials=5, progress=progress)
    assert seen == [1, 2, 3, 4, 5]


def test_trials_of_a_job_carry_it_and_its_finals_are_marked(
    device: ScriptedDevice, path: Path
) -> None:
    device.rule = device.final = lambda s: replace(
        by_key(s), seconds=1e-3 + (by_key(s).seconds or 0.0) / 8
    )  # all of them hopeful
    result = tune(path)
    with Store(path) as store:
        assert store.job(result.job).state == "done"
        assert json.loads(store.job(result.job).options)["trials"] == 24
        assert store.count(job=result.job, strategy="random") == 24
        assert store.count(job=result.job, strategy="final") == len(device.finalists) == 6


def test_finalists_are_the_fastest_one_for_each_kernel(device: ScriptedDevice, path: Path) -> None:
    device.rule = lambda schedule: replace(by_key(schedule), kernel_key=alike(schedule))
    tune(path, trials=12)
    assert len({alike(schedule) for schedule in device.finalists}) == len(device.finalists)
    fastest = min(device.measured, key=lambda schedule: by_key(schedule).seconds or 0.0)
    assert device.finalists[0] == fastest


class _Told(Random):
    """A random search that keeps what it is told."""

    outcomes: ClassVar[list[OutcomeLike]] = []

    def tell(self, schedules: Sequence[Schedule], outcomes: Sequence[OutcomeLike]) -> None:
        self.outcomes.extend(outcomes)
        super().tell(schedules, outcomes)


def test_a_kernel_is_measured_and_counted_once(
    device: ScriptedDevice, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a batch, across batches, and across jobs; the strategy is told all the same."""
    monkeypatch.setitem(REGISTRY, "random", f"{__name__}:_Told")
    device.rule = lambda schedule: replace(by_key(schedule), kernel_key=alike(schedule))
    device.final = device.rule
    first = tune(path, trials=8, batch=5)
    second = tune(path, trials=4)
    kernels = [alike(schedule) for schedule in device.measured]
    assert first.trials == 8
    assert second.trials == 4
    assert len(kernels) == len(set(kernels)) == 12
    with Store(path) as store:
        assert store.count(strategy="random") == 12
    copied = [outcome for outcome in _Told.outcomes if getattr(outcome, "copied", False)]
    assert copied
    assert all(outcome.kernel_key in kernels and outcome.seconds for outcome in copied)


def test_a_search_ends_when_all_kernels_are_known(device: ScriptedDevice, path: Path) -> None:
    device.rule = lambda schedule: replace(by_key(schedule), kernel_key=alike(schedule))
    result = tune(path, trials=100)
    assert result.trials == len(device.measured) == 16


def test_the_finals_decide(device: ScriptedDevice, path: Path) -> None:
    device.final = lambda s: replace(by_key(s), seconds=9e-3 - 2 * (by_key(s).seconds or 0.0))
    result = tune(path)
    finals = [device.final(schedule).seconds or 0.0 for schedule in device.finalists]
    assert result.seconds == device.final(result.best).seconds == min(finals)
    assert result.best != min(device.measured, key=lambda s: by_key(s).seconds or 0.0)


def test_finalists_that_fail_are_passed_over(device: ScriptedDevice, path: Path) -> None:
    first: list[Schedule] = []

    def final(schedule: Schedule) -> Outcome:
        first.append(schedule)
        return Outcome("unstable") if len(first) == 1 else by_key(schedule)

    device.final = final
    best = tune(path).best
    assert best != first[0]
    assert best == min(set(first[1:]), key=lambda s: by_key(s).seconds or 0.0)
    device.final = lambda schedule: Outcome("unstable", detail="two answers")
    with pytest.raises(NothingValid, match=r"no finalist was right again: two answers"):
        tune(path)


def test_a_second_job_goes_on_from_the_first(device: ScriptedDevice, path: Path) -> None:
    first = tune(path)
    measured = set(device.measured)
    device.measured = []
    second = tune(path, trials=8)
    assert second.known == 24
    assert second.trials == len(device.measured) == 8
    assert not measured & set(device.measured)
    assert second.seconds <= first.seconds


def test_what_is_known_holds_within_pins_only(device: ScriptedDevice, path: Path) -> None:
    tune(path)
    result = tune(path, pins={"rows.s0": 4}, trials=2)
    assert result.known == 24
    assert result.best["rows.s0"] == 4
    assert all(schedule["rows.s0"] == 4 for schedule in device.finalists)


def test_nothing_valid_says_what_was_met(device: ScriptedDevice, path: Path) -> None:
    device.rule = lambda schedule: Outcome("wrong_result", detail="off")
    with pytest.raises(NothingValid, match=r"none of 4 .* \(4 wrong_result\); the last: off; try"):
        tune(path, trials=4)
    with Store(path) as store:
        assert [known.state for known in store.jobs()] == ["failed"]
        assert store.count(status="wrong_result") == 4


def test_an_interrupted_job_keeps_what_it_has(device: ScriptedDevice, path: Path) -> None:
    def progress(progress: Progress) -> None:
        if progress.trial == 7:
            raise KeyboardInterrupt

    result = tune(path, progress=progress)
    assert result.interrupted
    assert result.trials == 7
    assert result.seconds == min(by_key(schedule).seconds or 0.0 for schedule in device.measured)
    assert device.closed
    with Store(path) as store:
        assert store.count() == 7
        assert store.job(result.job).state == "stopped"
    assert tune(path).known == 7


def test_an_interruption_before_anything_valid_is_passed_on(
    device: ScriptedDevice, path: Path
) -> None:
    def interrupted(schedule: Schedule) -> Outcome:
        raise KeyboardInterrupt

    device.rule = interrupted
    with pytest.raises(KeyboardInterrupt):
        tune(path)
    assert device.closed


def test_seconds_end_a_search(device: ScriptedDevice, path: Path) -> None:
    now = iter(range(1000))
    result = tune(path, trials=100, seconds=20, clock=lambda: float(next(now)))
    assert 5 < result.trials < 20


def test_seconds_alone_are_no_limit_of_trials(device: ScriptedDevice, path: Path) -> None:
    """Nor are trials alone one of time; with both, what is spent first ends it."""
    found = tune(path, trials=None, seconds=1.0, clock=lambda: len(device.measured) / 300)
    assert found.trials == 300
    before = len(device.measured)
    assert tune(path, trials=20, clock=lambda: 1e6 * len(device.measured)).trials == 20
    later = lambda: (len(device.measured) - before - 20) / 300  # noqa: E731
    assert tune(path, trials=20, seconds=1.0, clock=later).trials == 20


@pytest.mark.parametrize("strategy", ["evolutionary", "annealing", "exhaustive"])
def test_strategies_do_without_a_number_of_trials(
    strategy: str, device: ScriptedDevice, path: Path
) -> None:
    clock = lambda: len(device.measured) / 40  # noqa: E731
    found = tune(path, trials=None, seconds=1.0, strategy=strategy, model="none", clock=clock)
    assert found.trials == 40


def test_the_end_of_a_budget_is_exact_and_loses_nothing(device: ScriptedDevice, path: Path) -> None:
    """Few are asked for at the end in one go; what is not measured is measured if it goes on."""
    workload = Workload.of("matmul", EXTENTS)
    with Store(path) as store, Search(workload, store, strategy="random") as search:
        asked: list[Schedule] = []
        ask = search.strategy.ask
        search.strategy.ask = lambda n: asked.extend(found := ask(n)) or found  # type: ignore
        for count in (16, 1, 2, 16):
            before = search.trials
            assert len(list(search.step(count))) == count
            assert search.trials == before + count
        assert len(asked) == 35
        assert device.measured == asked
        assert store.count() == 35


def test_a_small_space_ends_the_search(device: ScriptedDevice, path: Path) -> None:
    workload = Workload.of("matmul", EXTENTS)
    pins = dict(workload.space().schedule(_legal_row(workload)).values)
    del pins["prefetch.s0"]
    result = tune(path, pins=pins, trials=100, strategy="exhaustive")
    assert 1 <= result.trials <= 4


def _legal_row(workload: Workload) -> Any:
    return workload.space().sample(np.random.default_rng(0), 1)[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "trials=0"),
        ({"batch": 0}, "batch=0"),
        ({"seconds": -1.0}, r"seconds=-1\.0"),
        ({"seconds": float("nan")}, "seconds=nan"),
        ({"strategy": "evolutionry"}, "nearest is 'evolutionary'"),
        ({"target": "cpo"}, "did you mean 'cpu'"),
        ({"threads": 0}, "threads=0"),
        ({"pins": {"rows.s0": 1000}}, r"rows\.s0"),
        ({"pins": {"row.s0s": 1}}, "nearest is 'row"),
    ],
)
def test_what_is_wrong_is_said_before_the_store_is_made(
    options: dict[str, Any], message: str, device: ScriptedDevice, path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        tune(path, **options)
    assert not path.exists()


def test_extents_that_memory_cannot_hold(device: ScriptedDevice, path: Path) -> None:
    with pytest.raises(UsageError, match="choose smaller extents"):
        job.tune("matmul", {"m": 10**7, "n": 10**7, "k": 1}, store=path)
    assert not path.exists()


def test_arguments_are_recorded_as_values_however_they_came() -> None:
    words = Workload.of("matmul", {"m": "64", "n": "64", "k": "64", "ta": "true"})
    values = Workload.of("matmul", EXTENTS | {"ta": True})
    assert words.extents_json == values.extents_json == '{"k": 64, "m": 64, "n": 64, "ta": true}'


@pytest.mark.parametrize(
    ("statuses", "verdict", "seconds"),
    [
        (("ok", "ok", "ok"), "ok", 2.0),
        (("timeout", "ok"), "ok", 2.0),
        (("ok", "timeout"), "ok", 1.0),
        (("ok", "wrong_result", "ok"), "wrong_result", None),
        (("timeout", "out_of_memory"), "out_of_memory", None),
    ],
)
def test_repeated_trials_make_one_verdict(
    statuses: tuple[Status, ...], verdict: str, seconds: float | None, path: Path
) -> None:
    workload = Workload.of("matmul", EXTENTS)
    schedule = workload.space().schedule(_legal_row(workload))
    with Store(path) as store:
        for number, status in enumerate(statuses):
            outcome = Outcome(status, 1.0 + number if status == "ok" else None)
            store.add(to_record(workload, schedule, outcome, "", "random"))
        ((known, outcome),) = known_trials(store, workload)
    assert known == schedule
    assert outcome.status == verdict
    assert outcome.seconds == seconds


def _times(store: Store, workload: Workload, number: int, strategy: str, *times: float) -> str:
    """Record these times of one schedule; gives its text."""
    rng = np.random.default_rng(number)
    schedule = workload.space().schedule(workload.space().sample(rng, 1)[0])
    for seconds in times:
        outcome = Outcome("ok", seconds) if seconds else Outcome("wrong_result")
        store.add(to_record(workload, schedule, outcome, "", strategy))
    return schedule.to_json()


def test_finals_decide_which_record_is_the_best(path: Path) -> None:
    workload = Workload.of("matmul", EXTENTS)
    with Store(path) as store:
        lucky = _times(store, workload, 1, "random", 1.0)
        assert best_record(workload, path).schedule == lucky
        _times(store, workload, 1, "final", 2.0)
        steady = _times(store, workload, 2, "random", 1.5)
        _times(store, workload, 2, "final", 1.6)
        assert best_record(workload, path).seconds == 1.6
        _times(store, workload, 3, "random", 1.2)
        assert best_record(workload, path).schedule == steady
        late = _times(store, workload, 4, "random", 0.9)
        assert best_record(workload, path).schedule == late
        _times(store, workload, 4, "random", 0)
        assert best_record(workload, path).schedule == steady


def test_the_public_surface(device: ScriptedDevice, path: Path) -> None:
    found = explorer.tune("matmul", trials=4, store=path, strategy="random", **EXTENTS)
    assert explorer.best("matmul", store=path, **EXTENTS).schedule == found.best
    workload = explorer.load("matmul", **EXTENTS)
    assert workload.program == found.program
    with Store(path) as store, explorer.explore(workload, store, strategy="random") as search:
        pairs = list(search.step(3))
        assert [schedule for schedule, _ in pairs] == device.measured[-3:]
        assert search.known == 4
        assert search.best_seconds == search.ranked()[0][0]


def test_looking_for_the_best_makes_no_store(path: Path) -> None:
    with pytest.raises(NothingValid, match="tune it first"):
        best_record(Workload.of("matmul", EXTENTS), path)
    assert not path.exists()
