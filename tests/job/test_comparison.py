"""Which of two results is faster: joint noise, the incumbent's right to stay."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from explorer.baseline import Baseline
from explorer.comparison import CHOSEN, INCUMBENT, NOTCH, compare, half_interval, settle
from explorer.disturbance import Crowd, crowd_of, quiet
from explorer.outcome import Outcome
from ir.schedule import Schedule

ONE, TWO, THREE = (Schedule.of("cpu", {"x": n}) for n in (1, 2, 3))


def timed(seconds: float, noise: float = 0.01, turns: int = 4) -> Outcome:
    """An outcome of turns whose interval reaches `noise` of its time to either side."""
    half = noise * seconds * turns**0.5 / NOTCH / 2
    notes = (("turns", turns),) if turns else ()
    return Outcome("ok", seconds, (seconds - half, seconds + half), 9 * turns, notes=notes)


def test_intervals_shrink_with_the_root_of_the_turns() -> None:
    few = Outcome("ok", 1.0, (0.9, 1.1), 5, notes=(("turns", 4),))
    many = Outcome("ok", 1.0, (0.9, 1.1), 5, notes=(("turns", 16),))
    assert half_interval(few) == pytest.approx(NOTCH * 0.2 / 2)
    assert half_interval(many) == pytest.approx(half_interval(few) / 2)


@pytest.mark.parametrize(
    ("other", "within"), [(1.015, True), (1.03, False), (0.985, True), (0.97, False)]
)
def test_only_a_gap_larger_than_the_joint_noise_counts(other: float, within: bool) -> None:
    found = compare("cuBLAS", timed(1.0), timed(other))
    assert found.noise == pytest.approx(0.02)
    assert found.ratio == pytest.approx(other)
    assert found.within_noise is within
    assert ("within noise" in found.words) is within
    assert "joint noise 2.0 %" in found.words


def test_few_quiet_turns_claim_no_perfect_clock() -> None:
    assert compare("x", timed(1.0, 0.0), timed(1.0, 0.0)).noise == pytest.approx(0.002)


def test_what_was_not_measured_in_turns_has_a_ratio_alone() -> None:
    found = compare("numpy", timed(1.0), timed(50.0, turns=0))
    assert found.noise is None
    assert not found.within_noise
    assert found.words == "50.00x numpy, not measured in turns"
    assert json.loads(json.dumps(found.to_facts()))["ratio"] == 50.0


def test_the_incumbent_stays_within_the_noise() -> None:
    pairs = [(ONE, timed(1.0)), (TWO, timed(1.01)), (THREE, timed(0.999))]
    settled = settle(pairs, TWO, None)
    assert settled is not None
    assert (settled.schedule, settled.kept) == (TWO, True)
    assert settled.outcome.seconds == 1.01
    assert settled.beside_incumbent is not None
    assert settled.beside_incumbent.ratio == pytest.approx(1.01 / 0.999)


def test_the_incumbent_goes_when_it_is_clearly_slower() -> None:
    settled = settle([(ONE, timed(1.0)), (TWO, timed(1.1))], TWO, None)
    assert settled is not None
    assert (settled.schedule, settled.kept) == (ONE, False)
    roles = {s: {name for name, _ in o.notes} - {"turns"} for s, o in settled.finalists}
    assert roles == {ONE: {CHOSEN}, TWO: {INCUMBENT}}
    assert settled.beside_incumbent is not None
    assert settled.beside_incumbent.words == "1.10x the best before, joint noise 2.0 %"


@pytest.mark.parametrize("incumbent", [None, THREE])
def test_without_an_incumbent_in_the_finals_the_fastest_wins(incumbent: Schedule | None) -> None:
    settled = settle([(ONE, timed(1.0)), (TWO, timed(1.001))], incumbent, None)
    assert settled is not None
    assert (settled.schedule, settled.kept, settled.beside_incumbent) == (ONE, False, None)


def test_failed_finalists_neither_win_nor_compare() -> None:
    crash = Outcome("crash")
    settled = settle([(ONE, crash), (TWO, timed(1.0))], ONE, Baseline(why="none here"))
    assert settled is not None
    assert (settled.schedule, settled.beside_incumbent, settled.beside_baseline) == (
        TWO,
        None,
        None,
    )
    assert settled.finalists[0][1].status == "crash"
    assert settle([(ONE, crash)], ONE, None) is None


def test_the_winner_stands_beside_the_library() -> None:
    baseline = Baseline("cuBLAS (CuPy 14.2)", timed(1.08, 0.003))
    settled = settle([(ONE, timed(1.0, 0.003))], None, baseline)
    assert settled is not None
    assert settled.beside_baseline is not None
    assert settled.beside_baseline.words == "1.08x cuBLAS (CuPy 14.2), joint noise 0.6 %"


# --- beside other programs ----------------------------------------------------------------------


def beside_others(outcome: Outcome, share: float = 0.85) -> Outcome:
    return replace(outcome, notes=(*outcome.notes, *Crowd(share, 2).notes))


@pytest.mark.parametrize("ours", [True, False])
def test_a_ratio_is_none_where_one_side_shared_its_processors(ours: bool) -> None:
    """Turns that agree well say nothing then: all of them were disturbed alike."""
    pair = timed(1.0), timed(284.67)
    first, second = (beside_others(pair[0]), pair[1]) if ours else (pair[0], beside_others(pair[1]))
    found = compare("OpenBLAS", first, second)
    expected = "not comparable with OpenBLAS: other programs kept 1.7 of 2 processors busy"
    assert found.words == expected
    facts = json.loads(json.dumps(found.to_facts()))
    assert (facts["ratio"], facts["seconds"]) == (None, 284.67)
    assert facts["crowd"] == {"share": 0.85, "processors": 2}


@pytest.mark.parametrize(("gap", "kept"), [(1.3, True), (1.6, False)])
def test_beside_others_only_a_wide_gap_unseats_the_incumbent(gap: float, kept: bool) -> None:
    """With a third of the processors gone a kernel takes half as long again."""
    pairs = [(ONE, beside_others(timed(1.0), 1 / 3)), (TWO, beside_others(timed(gap), 1 / 3))]
    settled = settle(pairs, TWO, None)
    assert settled is not None
    assert settled.kept is kept


def test_a_crowd_without_a_number_of_processors() -> None:
    """Records of earlier versions do not have it."""
    old = replace(timed(1.0), notes=(("foreign_load", 0.4), ("crowded", True)))
    crowd = crowd_of(old)
    assert crowd is not None
    assert crowd.words == "other programs had 40 % of the processors"
    assert crowd_of(replace(old, notes=crowd.notes)) == crowd
    assert Crowd(1.0).noise == pytest.approx(19.0)
    assert crowd_of(old.as_copy()) == crowd
    assert replace(old, notes=(("foreign_load", 0.4),)).as_copy().notes == ()
    assert quiet([old, timed(1.0)]) == [timed(1.0)]
    assert quiet([old]) == [old]
