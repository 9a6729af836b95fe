"""Whatever a kernel or the generator does, the outcome is typed and the next candidate is fine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from explorer.measure import Measurer
from explorer.runtime.workers import Timing
from ir.schedule import Schedule
from tests.runtime.fake_backend import HARDWARE, PROGRAM, schedule

ENOUGH = 10.0  # seconds: far beyond the deadline, on a busy machine too

PLACE = "tests.runtime.fake_backend:FakeBackend"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def forget(measurer: Measurer) -> None:
    """What ran before is to run again."""
    measurer.best = None
    measurer.kernels = {}


def make(cache: Path, deadline: float = 10.0, compilers: int | None = None) -> Measurer:
    return Measurer(
        PROGRAM,
        PLACE,
        HARDWARE,
        cache_dir=cache,
        deadline_s=deadline,
        compile_deadline_s=deadline,
        runtime="cpu",
        compilers=compilers,
        timing=Timing(budget=0.005),
    )


@pytest.fixture(scope="module")
def measurer(cache: Path) -> Iterator[Measurer]:
    with make(cache) as measurer:
        yield measurer


FAULTS = [
    ("segfault", "crash", "SIGSEGV"),
    ("exit", "crash", "status 0 without an answer"),
    ("abort", "crash", "SIGABRT"),
    ("wrong", "wrong_result", "O: 1000 of 1000 elements wrong, first at [0]"),
    ("nan", "wrong_result", "nan instead of"),
    ("untouched", "wrong_result", "7 never written"),
    ("unstable", "unstable", "right at first, then not"),
    ("remember", "wrong_result", "second set of inputs"),
    ("overrun", "crash", "SIGSEGV"),
    ("write_input", "crash", "SIGSEGV"),
    ("undefined", "crash", "SIGSEGV"),
    ("refuse", "illegal", "no-bytes: 1 B needed"),
    ("lower_raise", "compile_error", "ZeroDivisionError: a bug in the generator"),
    ("lower_abort", "compile_error", "SIGABRT"),
    ("lower_memory", "out_of_memory", ""),
    ("bad_ir", "compile_error", "expected instruction opcode"),
    ("fatal_ir", "compile_error", "LLVM ERROR: Inline asm"),
]


@pytest.mark.parametrize(("what", "status", "words"), FAULTS)
def test_fault_is_a_typed_outcome_and_leaves_the_next_alone(
    measurer: Measurer, what: str, status: str, words: str
) -> None:
    forget(measurer)
    broken, good = measurer.measure([schedule(what), schedule("good")])
    assert (broken.status, words in broken.detail) == (status, True), broken
    assert broken.seconds is None
    assert good.ok, good


def test_good_kernels_are_measured(measurer: Measurer) -> None:
    for what in ("good", "barriers", "good"):
        forget(measurer)
        (outcome,) = measurer.measure([schedule(what)])
        assert outcome.ok, outcome
        assert outcome.seconds is not None
        assert outcome.quartiles is not None
        assert outcome.quartiles[0] <= outcome.seconds <= outcome.quartiles[1]
        assert outcome.repeats >= 2  # 3 of a run shorter than the budget, which others may lengthen
        assert outcome.error == pytest.approx(0.0, abs=1e-6)
        assert outcome.kernel_key
        assert outcome.clock_ghz is not None
        assert 0.5 < outcome.clock_ghz < 8


def test_huge_output_is_swallowed(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with make(cache) as measurer:
        measurer.best = 1e-6
        flood, good = measurer.measure([schedule("flood", threads=1), schedule("good")])
    assert flood.ok, flood
    assert flood.repeats == 1
    assert good.ok
    assert capfd.readouterr() == ("", "")


def test_hanging_kernel_ends_at_its_deadline(cache: Path) -> None:
    with make(cache, deadline=0.6) as measurer:
        assert next(measurer.measure([schedule("good")])).ok
        start = time.monotonic()
        forget(measurer)
        hung, good = measurer.measure([schedule("hang"), schedule("good")])
    assert hung.status == "timeout", hung
    assert good.ok, good
    assert time.monotonic() - start < ENOUGH


def test_hanging_generator_ends_at_its_deadline(cache: Path) -> None:
    with make(cache, deadline=0.6, compilers=1) as measurer:
        hung, good = measurer.measure([schedule("lower_hang"), schedule("good")])
    assert hung.status == "timeout", hung
    assert good.ok, good


def test_far_behind_the_best_is_timed_once(cache: Path) -> None:
    with make(cache) as measurer:
        good, slow = measurer.measure([schedule("good"), schedule("slow")])
    assert good.repeats > 1
    assert (slow.status, slow.repeats) == ("ok", 1)


def test_a_kernel_runs_once(cache: Path) -> None:
    """The schedules differ in what the lowering does not read."""
    same = Schedule.of("fake", {**schedule("good").as_dict(), "unread": 1})
    with make(cache) as measurer:
        good, again = measurer.measure([schedule("good"), same])
        (late,) = measurer.measure([same])
        crash, damned = measurer.measure([schedule("segfault"), schedule("segfault")])
    assert (good.copied, again.copied, late.copied) == (False, True, True)
    assert again.seconds == late.seconds == good.seconds
    assert (crash.status, crash.copied) == (damned.status, not damned.copied) == ("crash", False)


def test_compete_takes_turns(measurer: Measurer) -> None:
    first, second, broken = measurer.compete(
        [schedule("good"), schedule("good", 1), schedule("wrong")], rounds=3
    )
    assert first.ok
    assert second.ok
    assert first.repeats >= 3 * 2
    assert broken.status == "wrong_result"


def test_workers_end_with_the_measurer(cache: Path) -> None:
    with make(cache) as measurer:
        assert next(measurer.measure([schedule("good")])).ok
        pids = [worker.pid for worker in measurer.workers]
        assert len(pids) >= 2
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()
