"""Who runs in the finals: the fastest, and those unlike them; none that is hopeless."""

from __future__ import annotations

import json

import numpy as np
import pytest

from explorer.finals import (
    HEAT_SIZE,
    LEAST,
    ROUNDS,
    SECONDS,
    WITHIN,
    allowed,
    chosen_finalists,
    finals_size,
    heat,
)
from explorer.recall import FINAL, HEAT, best_of
from ir.columns import Decision
from ir.schedule import Schedule
from ir.space import Space
from records import Record, utc_now

SPACE = Space(
    "toy",
    tuple(Decision(name, tuple(range(8)), "tile", "a", "test") for name in "abcd"),
)  # fmt: skip


def schedule(*values: int) -> Schedule:
    return Schedule("toy", tuple(zip("abcd", values, strict=True)))


def test_a_heat_has_candidates_unlike_the_fastest() -> None:
    """Forty near copies of the best do not keep out another kind that is little slower."""
    copies = [(1e-3 * (1 + n / 1000), schedule(1, 2, n % 8, n // 8)) for n in range(40)]
    others = [(1.05e-3, schedule(5, 6, 7, 7)), (1.2e-3, schedule(3, 0, 6, 6))]
    ranked = sorted(copies + others, key=lambda pair: pair[0])
    chosen = heat(SPACE, ranked)
    assert len(chosen) == HEAT_SIZE == len(set(chosen))
    assert chosen[0] == ranked[0][1]
    assert {one for _, one in others} <= set(chosen)


def test_hopeless_candidates_are_left_out() -> None:
    ranked = [(1e-3 * (1 + n / 10), schedule(n, 0, 0, 0)) for n in range(8)]
    ranked += [(1e-3, schedule(0, n, 1, 1)) for n in range(8)]
    ranked.sort(key=lambda pair: pair[0])
    times = {one: seconds for seconds, one in ranked}
    assert max(times[one] for one in heat(SPACE, ranked)) <= WITHIN * 1e-3


@pytest.mark.parametrize(("count", "seconds"), [(6, 1e-4), (40, 0.5)])
def test_no_heat_where_all_are_finalists_or_kernels_are_slow(count: int, seconds: float) -> None:
    rng = np.random.default_rng(0)
    rows = {tuple(row) for row in rng.integers(0, 8, (count, 4)).tolist()}
    assert not heat(SPACE, [(seconds, schedule(*row)) for row in rows])


def test_slow_kernels_have_few_turns() -> None:
    assert finals_size(1e-5) == (6, 5)
    assert finals_size(1.0) == (2, 2)


def test_kernels_whose_outputs_take_long_to_judge_have_few_turns() -> None:
    assert finals_size(1e-5, beside=0.01) == (6, 5)
    assert finals_size(1e-2, beside=0.6) == (6, 2)
    assert finals_size(1e-2, beside=3.0) == (2, 2)
    rng = np.random.default_rng(0)
    rows = {tuple(row) for row in rng.integers(0, 8, (40, 4)).tolist()}
    ranked = [(1e-2, schedule(*row)) for row in rows]
    assert len(heat(SPACE, ranked)) > len(heat(SPACE, ranked, beside=0.3)) > 0
    assert not heat(SPACE, ranked, beside=2.0)


def test_finals_of_short_searches_are_short() -> None:
    assert allowed(0.1) == LEAST
    assert allowed(8.0) == 4.0
    assert allowed(3600.0) == SECONDS
    assert finals_size(1e-3, beside=0.1, within=4.0) == (6, 5)
    assert finals_size(1e-3, beside=0.2, within=4.0) == (6, 3)
    rng = np.random.default_rng(0)
    rows = {tuple(row) for row in rng.integers(0, 8, (40, 4)).tolist()}
    ranked = [(1e-3, schedule(*row)) for row in rows]
    assert len(heat(SPACE, ranked, 0.1)) > len(heat(SPACE, ranked, 0.1, within=4.0)) > 0


def test_hopeless_candidates_have_no_turn_in_the_finals() -> None:
    """However few there are; but the fastest has one beside it, since its time may be luck."""
    times = (1e-4, 1.9e-4, 2.1e-4, 5e-4)
    ranked = [(seconds, schedule(n, 0, 0, 0)) for n, seconds in enumerate(times)]
    assert len(chosen_finalists(SPACE, ranked, lambda schedules: [])[0]) == 2
    assert len(chosen_finalists(SPACE, ranked[2:], lambda schedules: [])[0]) == 2
    assert len(chosen_finalists(SPACE, ranked[:1], lambda schedules: [])[0]) == 1


def trial(name: str, seconds: float, strategy: str) -> Record:
    return Record(
        workload="w", operator="toy", extents="{}", target="toy", hardware="h", generator="1",
        schedule=json.dumps({"name": name}), kernel_key=name, status="ok", seconds=seconds,
        created=utc_now(), strategy=strategy,
    )  # fmt: skip


def test_a_loser_of_the_heat_is_not_the_best_for_its_lucky_time() -> None:
    searched = [trial("lucky", 1.0, "random"), trial("steady", 1.2, "random")]
    heated = [trial("lucky", 1.5, HEAT), trial("steady", 1.2, HEAT)]
    decided = [*searched, *heated, trial("steady", 1.21, FINAL)]
    best = best_of(decided)
    assert best is not None
    assert best.kernel_key == "steady"


def test_a_job_that_ended_in_its_heat_has_a_best() -> None:
    best = best_of([trial("one", 1.0, "random"), trial("one", 1.1, HEAT)])
    assert best is not None
    assert best.kernel_key == "one"


@pytest.mark.parametrize("seed", range(20))
def test_the_best_on_record_is_the_job_s_own(seed: int) -> None:
    """Also where a heat left some out that were faster in the search than all finalists."""
    rng = np.random.default_rng(seed)
    rows = {tuple(row) for row in rng.integers(0, 8, (40, 4)).tolist()}
    truth = {schedule(*row): float(rng.uniform(1e-4, 1.2e-4)) for row in rows}
    kept: list[Record] = []

    def measured(schedules: list[Schedule], strategy: str) -> list[tuple[float, Schedule]]:
        times = sorted((truth[one] * float(rng.uniform(0.95, 1.1)), one) for one in schedules)
        kept.extend(trial(one.key, seconds, strategy) for seconds, one in times)
        return times

    found = measured(list(truth), "random")
    finalists, _ = chosen_finalists(SPACE, found, lambda tried: measured(tried, HEAT), 0.2, 4)
    ended = measured(finalists, FINAL)
    best = best_of(kept)
    assert best is not None
    assert best.kernel_key == ended[0][1].key


def test_a_candidate_of_a_later_job_may_be_faster_than_all_finalists() -> None:
    known = [trial("old", 1.0, "random"), trial("old", 1.0, FINAL), trial("new", 0.5, "random")]
    best = best_of(known)
    assert best is not None
    assert best.kernel_key == "new"


def test_a_lucky_time_does_not_decide() -> None:
    """The heat throws the lucky and what fails out; the finals are for the fastest of the rest."""
    ranked = [(1e-4 * (1 + n / 1000), schedule(n % 8, n // 8, 0, 0)) for n in range(30)]

    def again(schedules: list[Schedule]) -> list[tuple[float, Schedule]]:
        truth = [(2e-4 if s == ranked[0][1] else 1e-4 + int(s["a"]) * 1e-6, s) for s in schedules]
        return sorted((pair for pair in truth if pair[1]["a"] != 0), key=lambda pair: pair[0])

    found, rounds = chosen_finalists(SPACE, ranked, again)
    assert rounds == ROUNDS
    assert found[0]["a"] == 1
    assert ranked[0][1] not in found


def test_if_all_of_a_heat_fail_the_fastest_of_the_search_run_the_finals() -> None:
    ranked = [(1e-4, schedule(n % 8, n // 8, 0, 0)) for n in range(30)]
    found, _ = chosen_finalists(SPACE, ranked, lambda schedules: [])
    assert found == [chosen for _, chosen in ranked[: finals_size(1e-4)[0]]]
