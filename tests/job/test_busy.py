"""Foreign load from counters of the operating system: made up ones, and the real ones."""

from __future__ import annotations

import multiprocessing
import os
import re
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from explorer import cli, job
from explorer.baseline import Baseline
from explorer.busy import ForeignLoad
from explorer.disturbance import Crowd, Disturbance, warning
from explorer.outcome import Outcome
from explorer.recall import FINAL, best_record, known_baseline, known_trials, to_record
from explorer.report.page import render
from explorer.story import read_story
from explorer.watch import Watch
from explorer.workload import Workload
from ir.schedule import Schedule
from records import Store
from tests.job.device import Rule, ScriptedDevice, by_key

TICK = os.sysconf("SC_CLK_TCK")


def write(proc: Path, seconds: float, foreign: float, own: float, stolen: float = 0.0) -> None:
    """Counters of two processors that may be used and one that may not, after `seconds`."""
    rows = []
    for number in (0, 1, 5):
        share = foreign if number < 2 else seconds
        user = int((share + own / 2) * TICK) if number < 2 else int(share * TICK)
        steal = int(stolen * TICK) if number < 2 else 0
        idle = int(seconds * TICK) - user - steal
        rows.append(f"cpu{number} {user} 0 0 {idle} 0 0 0 {steal} 0 0")
    (proc / "stat").write_text("\n".join(["cpu 1 1 1 1", *rows, "intr 5"]))
    for pid in (os.getpid(), 77):
        (proc / str(pid)).mkdir(exist_ok=True)
        ticks = int(own * TICK / 2)
        text = f"{pid} (odd) name) R {' '.join(['0'] * 10)} {ticks} 0 0 0 20 0"
        (proc / str(pid) / "stat").write_text(text)


@pytest.fixture
def usable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.busy._usable", lambda: (0, 1))


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize(
    ("foreign", "own", "stolen", "share"),
    [(0.0, 2.0, 0.0, 0.0), (0.5, 1.0, 0.0, 0.25), (1.0, 0.0, 1.0, 1.0), (0.0, 0.0, 0.0, 0.0)],
)
def test_what_is_not_our_own_is_foreign(
    foreign: float, own: float, stolen: float, share: float, tmp_path: Path
) -> None:
    load = ForeignLoad(tmp_path)
    write(tmp_path, 0, 0, 0)
    load.begin([77])
    write(tmp_path, 2.0, foreign, own, stolen)
    assert load.share([77]) == pytest.approx(share, abs=0.02)


@pytest.mark.usefixtures("usable")
def test_without_time_or_counters_there_is_no_answer(tmp_path: Path) -> None:
    load = ForeignLoad(tmp_path)
    assert load.share([]) is None
    load.begin([])
    assert load.share([]) is None
    write(tmp_path, 0, 0, 0)
    load.begin([])
    write(tmp_path, 0.1, 0.1, 0)
    assert load.share([]) is None


@pytest.mark.usefixtures("usable")
@pytest.mark.parametrize(
    ("share", "threads", "crowded"),
    [(0.05, 2, False), (0.2, 2, True), (0.2, 1, False), (0.6, 1, True)],
)
def test_load_matters_where_it_leaves_too_few_processors(
    share: float, threads: int, crowded: bool, tmp_path: Path
) -> None:
    load = ForeignLoad(tmp_path)
    write(tmp_path, 0, 0, 0)
    load.begin([])
    assert load.crowds(share, threads) == crowded


def test_disturbance_sums_up_what_outcomes_note() -> None:
    nothing = Disturbance()
    assert [nothing.noise, nothing.foreign_load, nothing.crowding] == [None] * 3
    assert warning(nothing.crowding) is None
    found = Disturbance()
    for load, crowded in ((0.1, False), (0.3, True), (0.5, True)):
        notes = (("foreign_load", load), ("crowded", crowded))
        found.note(Outcome("ok", 2.0, (1.9, 1.9 + load), 5, notes=notes))
    found.note(Outcome("ok", 2.0, (0.0, 9.0), 1))
    assert found.noise == pytest.approx(0.15)
    assert (found.foreign_load, found.crowding) == (0.3, 0.3)
    assert "30 % of the processors" in str(warning(found.crowding))


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc/stat here")
def test_a_program_beside_ours_is_seen_and_ours_is_not() -> None:
    """A spinning process is foreign until its number is given."""
    spinner = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
    spinner.start()
    assert spinner.pid is not None
    try:
        time.sleep(0.5)
        foreign, own = ForeignLoad(), ForeignLoad()
        foreign.begin([])
        own.begin([spinner.pid])
        time.sleep(1.0)
        pair = foreign.share([]), own.share([spinner.pid])
    finally:
        spinner.terminate()
        spinner.join()
    assert pair[0] is not None
    assert pair[1] is not None
    assert pair[0] > pair[1]


def _spin() -> None:
    while True:
        pass


class Reading(ForeignLoad):
    """Tells what it is told to."""

    def __init__(self, share: float | None, processors: int = 2) -> None:
        super().__init__(Path("/nowhere"))
        self.told, self._processors = share, processors

    def share(self, pids: Iterable[int]) -> float | None:
        return self.told


@pytest.mark.parametrize(
    ("share", "threads", "crowded"), [(0.85, 2, True), (0.05, 2, False), (0.4, 1, False)]
)
def test_outcomes_note_what_others_had(
    share: float, threads: int, crowded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("explorer.busy.SHORTEST", 0.0)
    watch = Watch(lambda: (), threads, Reading(share))
    watch.begin()
    notes = dict(watch.noted(Outcome("ok", 1.0)).notes)
    assert (notes["foreign_load"], notes["processors"]) == (share, 2)
    assert bool(notes.get("crowded")) is crowded
    assert Watch(lambda: (), 2, Reading(None)).noted(Outcome("ok")) == Outcome("ok")


def test_nobody_looks_before_there_is_something_to_tell() -> None:
    watch = Watch(lambda: (), 2, Reading(0.85))
    watch.begin()
    assert watch.noted(Outcome("ok", 1.0)) == Outcome("ok", 1.0)


@pytest.mark.usefixtures("usable")
def test_what_took_too_short_to_tell_is_looked_at_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("explorer.watch.time.sleep", slept.append)
    watch = Watch(lambda: (), 2, ForeignLoad(tmp_path))
    watch.begin()
    watch.wait()
    assert slept == []  # nothing is known of the processors: waiting would not help
    write(tmp_path, 0, 0, 0)
    watch.begin()
    watch.wait()
    assert 0.2 < slept[0] < 0.3


# --- where trials are shown ---------------------------------------------------------------------

MARK = "crowded: other programs kept 1.7 of 2 processors busy"
EXTENTS = {"m": 32, "n": 32, "k": 32}
WORDS = ("matmul", *(f"{name}={value}" for name, value in EXTENTS.items()))


def beside_others(schedule: Schedule) -> Outcome:
    outcome = by_key(schedule)
    return replace(outcome, notes=(("turns", 5), *Crowd(0.85, 2).notes))


def test_trials_beside_others_are_marked_wherever_they_are_shown(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library = Baseline("BLAS", beside_others(Schedule.of("cpu", {})))
    device = ScriptedDevice(beside_others, library=library)
    monkeypatch.setattr("explorer.search.Measurer", device)
    monkeypatch.setattr("explorer.peaks.measured_peaks", lambda *_: {"peak_flops.f32": 1.0})

    def said(*words: str) -> str:
        assert cli.invoke([*words, "--records", str(path)]) == cli.EXIT_DONE
        return capsys.readouterr().out

    tuned = said("tune", *WORDS, "--trials", "6", "--strategy", "random")
    assert f"({MARK})" in tuned
    assert "not comparable with BLAS" in tuned
    assert not re.search(r"\d x BLAS|% of the machine's peak", tuned)
    assert "no share of the machine's peak, which was measured too low" in tuned
    assert f"({MARK})" in said("top")
    explained = said("explain", *WORDS, "--schedule", "best")
    assert f"({MARK})" in next(s for s in explained.splitlines() if s.startswith("measured:"))
    assert "the schedule: not comparable with BLAS" in explained
    with Store(path) as store:
        page = render(read_story(store))
    assert "The winner: not comparable with BLAS: other programs kept 1.7 of 2" in page
    assert '"in doubt"' in page
    assert "measured too low" in page
    assert not re.search(r"of the speed of|<b>\d+%</b><span>of the machine", page)


def test_times_without_doubt_go_before_others(path: Path) -> None:
    """However often a kernel was disturbed: one quiet time says what it takes."""
    workload = Workload.of("matmul", EXTENTS)
    space = workload.space()
    first, second = (space.schedule(row) for row in space.sample(np.random.default_rng(0), 2))
    quick, slow = Outcome("ok", 1e-3, kernel_key="a"), Outcome("ok", 2e-3, kernel_key="b")
    doubted = replace(quick, seconds=9e-3, notes=Crowd(0.85, 2).notes)
    trials = [(first, quick), *[(first, doubted)] * 3, (second, slow)]
    with Store(path) as store:
        for number, (schedule, outcome) in enumerate(trials):
            store.add(to_record(workload, schedule, outcome, f"job{number}", FINAL))
        known = dict(known_trials(store, workload))
    assert (known[first].seconds, known[first].notes) == (1e-3, ())
    best = best_record(workload, path)
    assert (best.schedule, best.seconds) == (first.to_json(), 1e-3)


def test_a_library_that_nothing_disturbed_goes_before_a_newer_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job of an earlier version, whose baseline has no note, the finals tell."""
    plain = Outcome("ok", 2e-3, (2e-3, 2e-3), 9, notes=(("turns", 5),))
    device = ScriptedDevice(by_key, library=Baseline("BLAS", plain))
    monkeypatch.setattr("explorer.search.Measurer", device)
    workload = Workload.of("matmul", EXTENTS)

    def known(rule: Rule, seed: int) -> Baseline:
        device.rule = device.final = rule
        job.tune("matmul", EXTENTS, trials=2, strategy="random", store=path, seed=seed)
        with Store(path) as store:
            found = known_baseline(store, workload)
        assert found is not None
        return found

    assert known(beside_others, 0).crowd == Crowd(0.85, 2)
    assert known(by_key, 1) == Baseline("BLAS", plain)
    assert known(beside_others, 2) == Baseline("BLAS", plain)
