"""Which schedule an extent between measured ones has, on tables of made-up times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import explorer
from explorer.shapes.choice import choice_for, choices_for
from explorer.shapes.extents import Extents
from explorer.shapes.fitted import fitted
from explorer.shapes.learnt import Told
from explorer.shapes.members import Members
from explorer.shapes.table import Settled, Table
from explorer.workload import Workload
from ir.schedule import Schedule
from tests.targets.cuda_cases import HARDWARE

VARYING = (("m", Extents(1, 8192)),)


def _member(point: tuple[int, ...]) -> Workload:
    given: dict[str, Any] = {"n": 1024, "k": 512, "dtype": "bf16", "tb": True}
    return replace(explorer.load("matmul", target="cuda", m=point[0], **given), machine=HARDWARE)


def _schedules(count: int) -> list[Schedule]:
    """Some that mean the same at every extent of a few hundred."""
    space = _member((256,)).space()
    rows = space.sample(np.random.default_rng(3), 40)
    drawn = [space.schedule(row) for row in rows]
    same = [s for s in drawn if all(fitted(_member((m,)), s) == s for m in (128, 200, 400, 512))]
    return list(dict.fromkeys(same))[:count]


def _table(rows: list[Settled], others: list[Settled]) -> Table:
    return Table(VARYING, (), tuple(rows), tuple(others))


def work_of(workload: Workload, schedule: Schedule) -> float:
    told = Members(lambda _: workload).work((), schedule)
    assert told is not None
    return told


def _timed(m: int, schedule: Schedule, seconds: float) -> Settled:
    return Settled((m,), schedule, seconds, 1)


def test_a_measured_point_has_its_own_schedule_and_time() -> None:
    one, other = _schedules(2)
    table = _table([_timed(128, one, 1e-5), _timed(200, other, 9e-6)], [_timed(512, one, 1e-9)])
    choice = choice_for(table, (200,), Members(_member))
    assert choice is not None
    assert (choice.schedule, choice.seconds) == (other, 9e-6)


def test_between_two_points_the_schedule_that_is_good_at_both_is_chosen() -> None:
    """The nearest row's is the best there by chance, and bad on the other side."""
    lucky, steady = _schedules(2)
    works = {s: {m: work_of(_member((m,)), s) for m in (128, 400)} for s in (lucky, steady)}
    times = {
        s: {m: 10 * work * (1.0 if s is steady else {128: 0.97, 400: 3.0}[m])
            for m, work in works[s].items()}
        for s in (lucky, steady)
    }  # fmt: skip
    scale = times[steady][128] / times[lucky][128]
    near = _timed(128, lucky, 0.97 * scale * times[lucky][128])
    table = _table(
        [near, _timed(400, steady, times[steady][400])],
        [_timed(128, steady, times[steady][128]), _timed(400, lucky, 3.0 * times[steady][400])],
    )
    choice = choice_for(table, (200,), Members(_member))
    assert choice is not None
    assert choice.schedule == steady


def test_a_time_between_is_that_of_the_schedules_own_work() -> None:
    """Of tiles and waves at that extent, as the backend estimates them."""
    (one,) = _schedules(1)
    work = {m: work_of(_member((m,)), one) for m in (128, 200, 512)}
    table = _table([_timed(128, one, 3 * work[128]), _timed(512, one, 3 * work[512])], [])
    choice = choice_for(table, (200,), Members(_member))
    assert choice is not None
    assert choice.seconds == pytest.approx(3 * work[200])
    assert choice.doubted > choice.seconds


def test_what_has_to_be_fitted_anew_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, changed, became = _schedules(3)

    def fit(workload: Workload, schedule: Schedule, pins: object = None) -> Schedule | None:
        here = workload.program.axes == _member((150,)).program.axes
        return became if here and schedule == changed else schedule

    monkeypatch.setattr("explorer.shapes.members.fitted", fit)
    monkeypatch.setattr(Members, "rescaled", lambda *_: None)
    works = {s: work_of(_member((128,)), s) for s in (kept, changed)}
    here = {s: work_of(_member((150,)), s) for s in (kept, became)}
    table = _table(
        [_timed(128, changed, works[changed] / here[became])],
        [_timed(128, kept, 1.05 * works[kept] / here[kept])],
    )
    first, second = choices_for(table, (150,), Members(_member))
    assert first.schedule == kept
    assert second.schedule == became
    assert second.doubted > 1.5 * second.seconds


def test_what_has_to_be_fitted_anew_gains_nothing_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates say that it is ten times as fast as what it was fitted from."""
    changed, became = _schedules(2)
    monkeypatch.setattr(Members, "work", lambda _, __, s: 0.1 if s == became else 1.0)
    monkeypatch.setattr(Members, "least", lambda members, point: members(point).program.flops)

    def fit(workload: Workload, schedule: Schedule, pins: object = None) -> Schedule | None:
        here = workload.program.axes == _member((256,)).program.axes
        return became if here and schedule == changed else schedule

    monkeypatch.setattr("explorer.shapes.members.fitted", fit)
    monkeypatch.setattr(Members, "rescaled", lambda *_: None)
    (choice,) = choices_for(_table([_timed(128, changed, 1e-5)], []), (256,), Members(_member))
    assert choice.seconds == pytest.approx(2e-5)


def test_far_times_are_doubted_more_than_near_ones() -> None:
    near, far = _schedules(2)
    work = {s: {m: work_of(_member((m,)), s) for m in (128, 180, 8192)} for s in (near, far)}
    table = _table(
        [_timed(180, near, work[near][180] / work[near][128])],
        [_timed(8192, far, 0.9 * work[far][8192] / work[far][128])],
    )
    choice = choice_for(table, (128,), Members(_member))
    assert choice is not None
    assert choice.schedule == near


def test_a_schedule_is_carried_with_as_many_tiles_as_well() -> None:
    """Two tiles of 160 of 320 rows are two of 104 of 200."""
    space = _member((320,)).space({"engine": "wgmma", "tile.m": 160})
    one = space.schedule(space.sample(np.random.default_rng(1), 1)[0])
    choices = choices_for(_table([_timed(320, one, 1e-5)], []), (200,), Members(_member))
    tiles = {choice.schedule["tile.m"]: choice for choice in choices}
    assert set(tiles) == {160, 104}
    assert tiles[104].doubted / tiles[104].seconds > tiles[160].doubted / tiles[160].seconds
    assert Members(_member).rescaled((320,), one, (320,)) is None


class _Told:
    """A model that knows one schedule's time."""

    def __init__(self, seconds: dict[Schedule, float], doubt: float = 0.1) -> None:
        self._told = {schedule: Told(value, doubt) for schedule, value in seconds.items()}

    def told(self, point: object, schedules: object) -> dict[Schedule, Told]:
        return self._told


def test_what_a_model_tells_counts_more_the_farther_away_a_time_was_measured() -> None:
    (one,) = _schedules(1)
    members, said = Members(_member), []
    for m in (128, 190, 200):
        table = _table([_timed(m, one, 1e-5)], [])
        plain = choice_for(table, (200,), members)
        assert plain is not None
        model: Any = _Told({one: 2.0 * plain.seconds})
        choices = choices_for(table, (200,), members, model)
        led = next(choice for choice in choices if choice.schedule == one)
        said.append(led.seconds / plain.seconds)
    assert 2.0 > said[0] > said[1] > said[2]
    assert said[2] == pytest.approx(1.0)


def test_what_is_expected_between_is_chosen_by_whoever_has_the_table_alone() -> None:
    drawn = _schedules(8)
    tables = [_table([_timed(128, one, 1e-5), _timed(512, one, 4e-5)], []) for one in drawn]
    choices = [choice_for(table, (201,), Members(_member)) for table in tables]
    near, table = next(  # not one of which another number of tiles is thought better there
        (one, table)
        for one, table, choice in zip(drawn, tables, choices, strict=True)
        if choice is not None and choice.schedule == one
    )
    better = next(one for one in drawn if one != near)
    expected = replace(table, expected=(_timed(200, better, 1e-6),))
    assert Table.from_data(expected.to_data()) == expected
    for found, schedule in ((table, near), (expected, better)):
        choice = choice_for(found, (201,), Members(_member))
        assert choice is not None
        assert choice.schedule == schedule


def test_models_that_are_apart_are_believed_less() -> None:
    (one,) = _schedules(1)
    members, said = Members(_member), []
    table = _table([_timed(128, one, 1e-5)], [])
    for doubt in (0.1, 0.4):
        model: Any = _Told({one: 1e-6}, doubt)
        choices = choices_for(table, (200,), members, model)
        said.append(next(choice for choice in choices if choice.schedule == one))
    sure, unsure = said
    assert unsure.seconds > sure.seconds
    assert unsure.doubted / unsure.seconds > sure.doubted / sure.seconds


def test_what_is_expected_between_is_doubted_as_much_as_it_was() -> None:
    """So that the least of many expectations does not keep out what was measured."""
    near, better = _schedules(2)
    measured = [_timed(199, near, 1e-5), _timed(512, near, 4e-5)]
    for doubt, schedule in ((0.0, better), (0.2, near)):
        expected = (Settled((200,), better, 0.95e-5, 1, doubt),)
        table = replace(_table(measured, []), expected=expected)
        choice = choice_for(table, (200,), Members(_member))
        assert choice is not None
        assert choice.schedule == schedule
        assert Table.from_data(table.to_data()) == table


def test_a_time_from_afar_is_told_no_shorter_than_that_of_a_nearer_point() -> None:
    """What is good elsewhere was tried at the nearer point, however fast it is told to be."""
    near, far = _schedules(2)
    table = _table([_timed(210, near, 1e-5), _timed(2000, far, 1e-9)], [])
    first, *others = choices_for(table, (200,), Members(_member))
    assert first.schedule == near
    assert all(one.seconds >= first.seconds for one in others)


def test_what_is_expected_says_nothing_behind_a_measured_point() -> None:
    near, other = _schedules(2)
    table = _table([_timed(210, near, 1e-5), _timed(512, near, 2e-5)], [])
    for m, told in ((203, True), (230, False)):
        expected = Settled((m,), other, 1e-6, 1, 0.01)
        found = choices_for(replace(table, expected=(expected,)), (200,), Members(_member))
        assert any(one.row == expected for one in found) == told
