"""Baselines of jobs: when they are measured, where they are kept, and that they stay no trials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from explorer import job
from explorer.baseline import FINALS_SECONDS, Baseline, LibraryTimer
from explorer.job import JobResult, Progress
from explorer.outcome import Outcome
from explorer.recall import best_record, known_baseline
from explorer.runtime.process import Answer, Died, Raised, Reply
from explorer.runtime.workers import Examination, Timing
from explorer.workload import Workload
from ir.schedule import Schedule
from records import Store
from tests.job.device import ScriptedDevice, by_key

EXTENTS: dict[str, Any] = {"m": 64, "n": 64, "k": 64}
TURNS = (("turns", 5),)
QUICK = Baseline("BLAS (arrays 1)", Outcome("ok", 2e-3, (1.9e-3, 2.2e-3), 5))
LATER = Baseline("BLAS (arrays 1)", Outcome("ok", 2.1e-3, (2.1e-3, 2.1e-3), 45, notes=TURNS))
NONE = Baseline(why="array libraries have no carry")


def in_turns(schedule: Schedule, faster: float = 1.0) -> Outcome:
    """As `by_key`, with the quartiles of five quiet turns."""
    seconds = (by_key(schedule).seconds or 0.0) / faster
    quartiles = (0.999 * seconds, 1.001 * seconds)
    return Outcome("ok", seconds, quartiles, 45, kernel_key=schedule.key, notes=TURNS)


@pytest.fixture
def scripted() -> ScriptedDevice:
    return ScriptedDevice(by_key, in_turns, QUICK, LATER)


def tune(path: Path, **options: Any) -> JobResult:
    given: dict[str, Any] = {"trials": 12, "strategy": "random", "store": path} | options
    return job.tune("matmul", EXTENTS, **given)


def test_it_is_told_with_every_trial_and_decided_in_the_finals(
    device: ScriptedDevice, path: Path
) -> None:
    told: list[Progress] = []
    result = tune(path, progress=told.append)
    assert all(progress.baseline is QUICK for progress in told)
    assert result.baseline is LATER
    assert result.beside_baseline is not None
    assert result.beside_baseline.ratio == pytest.approx(2.1e-3 / result.seconds)
    assert result.beside_baseline.noise is not None


def test_it_is_kept_with_the_job_and_is_no_trial(device: ScriptedDevice, path: Path) -> None:
    result = tune(path)
    workload = Workload.of("matmul", EXTENTS)
    with Store(path) as store:
        options = json.loads(store.job(result.job).options)
        assert Baseline.from_facts(options["baseline"]) == LATER
        assert options["strategy"] == "random"
        assert store.job(result.job).state == "done"
        kept = [record for record in store.records() if record.strategy != "heat"]
        assert len(kept) == 12 + len(device.finalists)
        assert known_baseline(store, workload) == LATER
        assert known_baseline(store, Workload.of("matmul", EXTENTS | {"k": 32})) is None
    assert best_record(workload, path).seconds == result.seconds


def test_it_can_be_switched_off(device: ScriptedDevice, path: Path) -> None:
    result = tune(path, baseline=False)
    assert (result.baseline, result.beside_baseline) == (None, None)
    with Store(path) as store:
        assert "baseline" not in json.loads(store.job(result.job).options)


def test_a_program_without_one_says_why(device: ScriptedDevice, path: Path) -> None:
    device.library = device.contested = NONE
    result = tune(path)
    assert result.baseline is NONE
    assert result.beside_baseline is None


def test_an_interrupted_job_compares_what_it_has(device: ScriptedDevice, path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.trial == 4:
            raise KeyboardInterrupt

    result = tune(path, progress=stop)
    assert result.interrupted
    assert result.beside_baseline is not None
    assert result.beside_baseline.ratio == pytest.approx(2e-3 / result.seconds)
    assert result.beside_baseline.noise is None
    (resumed,) = job.resume(result.job, store=path).results
    assert resumed.baseline is LATER
    assert resumed.trials == 12


def test_a_resumed_job_with_nothing_left_but_its_finals_has_one(
    device: ScriptedDevice, path: Path
) -> None:
    def stop(progress: Progress) -> None:
        if progress.trial == 12:
            raise KeyboardInterrupt

    first = tune(path, progress=stop)
    device.library = None  # a fresh process knows of none before it measures
    (resumed,) = job.resume(first.job, store=path).results
    assert resumed.resumed == resumed.trials == 12
    assert resumed.baseline is LATER


# --- the incumbent ------------------------------------------------------------------------------


def test_the_best_of_earlier_searches_is_in_the_finals(device: ScriptedDevice, path: Path) -> None:
    """Even if it was slower than six others when it was measured again in this search."""
    first = tune(path, trials=4)
    device.rule = lambda schedule: in_turns(schedule, 3.0)
    second = tune(path, trials=12, seed=1)
    assert first.best in device.finalists
    assert second.beside_incumbent is not None
    with Store(path) as store:
        finals = list(store.records(job=second.job, strategy="final"))
    (before,) = (r for r in finals if json.loads(r.notes).get("incumbent"))
    assert Schedule.from_json(before.schedule) == first.best


@pytest.mark.parametrize(("faster", "kept"), [(1.0005, True), (1.5, False)])
def test_it_stays_the_best_within_noise(
    device: ScriptedDevice, path: Path, faster: float, kept: bool
) -> None:
    first = tune(path, trials=4)
    level = (by_key(first.best).seconds or 0.0) * 1.0001
    device.rule = device.final = lambda schedule: (
        in_turns(schedule)
        if schedule == first.best
        else in_turns(schedule, faster * (by_key(schedule).seconds or 0.0) / level)
    )
    second = tune(path, trials=4, seed=1)
    assert second.kept is kept
    assert (second.best == first.best) is kept


def test_one_that_the_pins_exclude_stays_away(device: ScriptedDevice, path: Path) -> None:
    first = tune(path)
    other = next(s for s in device.measured if s["rows.s0"] != first.best["rows.s0"])
    second = tune(path, trials=4, pins={"rows.s0": other["rows.s0"]})
    assert first.best not in device.finalists
    assert second.beside_incumbent is None


# --- measuring it -------------------------------------------------------------------------------

RIGHT = Examination("ok", (1e-3, 1.1e-3, 1.2e-3))


class Script:
    """Answers requests for examinations one after another; a turn takes `seconds`."""

    def __init__(self, *replies: Reply, seconds: float = 0.1) -> None:
        self.replies, self.seconds, self.now = list(replies), seconds, 0.0

    def __call__(self, timing: Timing) -> Reply:
        self.now += self.seconds
        return self.replies.pop(0)

    def timer(self) -> LibraryTimer:
        return LibraryTimer(self, lambda: self.now)


def test_turns_replace_the_first_examination() -> None:
    timer = Script(*[Answer(("lib", RIGHT))] * 4).timer()
    assert timer.result is None
    assert timer.first().seconds == 1.1e-3
    for _ in range(3):
        timer.turn(Timing())
    assert timer.result is not None
    assert timer.result.outcome is not None
    assert dict(timer.result.outcome.notes)["turns"] == 3
    assert timer.result.library == "lib"


def test_turns_end_with_their_time() -> None:
    script = Script(*[Answer(("lib", RIGHT))] * 9, seconds=FINALS_SECONDS / 2)
    timer = script.timer()
    timer.first()
    for _ in range(8):
        timer.turn(Timing())
    assert len(script.replies) == 6


def test_a_slow_library_keeps_its_first_time() -> None:
    slow = Examination("ok", (1.0, 1.0))
    script = Script(Answer(("lib", slow)))
    timer = script.timer()
    first = timer.first()
    timer.turn(Timing())
    assert timer.result is first


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Raised("Inexpressible", "array libraries have no carry"), "array libraries have no carry"),
        (Raised("MemoryError", "the GPU is full"), "MemoryError: the GPU is full"),
        (Raised("CompileError", "x" * 300 + "\n1: int a;"), "CompileError: " + "x" * 200),
        (Died("timeout", "no answer within 15 s"), "no answer within 15 s"),
        (Answer(("lib", Examination("wrong_result", detail="C: 3 wrong"))),
         "lib computes something else: C: 3 wrong"),
    ],
)  # fmt: skip
def test_why_there_is_none(reply: Reply, why: str) -> None:
    timer = Script(reply).timer()
    found = timer.first()
    assert (found.seconds, found.why) == (None, why)
    timer.turn(Timing())
    assert timer.result is found
    assert Baseline.from_facts(json.loads(json.dumps(found.to_facts()))) == found


def test_a_failure_in_the_finals_leaves_the_first_time() -> None:
    script = Script(Answer(("lib", RIGHT)), Died("crash", "gone"), Answer(("lib", RIGHT)))
    timer = script.timer()
    first = timer.first()
    timer.turn(Timing())
    timer.turn(Timing())
    assert timer.result is first
    assert len(script.replies) == 1
