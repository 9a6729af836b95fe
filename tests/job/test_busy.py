"""Foreign load from counters of the operating system: made up ones, and the real ones."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from explorer.busy import ForeignLoad
from explorer.disturbance import Disturbance, warning
from explorer.outcome import Outcome

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
