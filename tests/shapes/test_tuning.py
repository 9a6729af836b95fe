"""The search of a range on a scripted device: its budget, what it keeps, what is found then."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import explorer
from explorer import cli
from explorer.errors import NothingValid
from explorer.outcome import Outcome
from explorer.plan import plan_of
from explorer.recall import best_winner, open_store
from explorer.search import Search
from explorer.shapes.choice import Choice, choices_for
from explorer.shapes.family import Family
from explorer.shapes.family_plan import FamilyPlan
from explorer.shapes.known import OPTION
from explorer.shapes.plan import split
from explorer.shapes.result import FamilyResult, Step
from explorer.shapes.table import Table
from explorer.shapes.tuning import _Run, tune_family
from explorer.story import read_story
from ir import UsageError
from ir.schedule import Schedule
from records import Store
from tests.job.device import ScriptedDevice

GIVEN: dict[str, Any] = {"n": 32, "k": 32, "threads": 1}


@pytest.fixture(autouse=True, scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store, and devices that answer by the schedule."""
    folder = tmp_path_factory.mktemp("ranges")
    device = ScriptedDevice()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_RECORDS", str(folder / "records.db"))
        patch.setenv("TILEWRIGHT_CACHE", str(folder / "cache"))
        patch.setattr("explorer.search.Measurer", device)
        patch.setattr("explorer.shapes.tuning.Measurer", device)
        yield folder / "records.db"


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    """What the search of `found` told."""
    return []


@pytest.fixture(scope="module")
def found(place: Path, steps: list[Step]) -> FamilyResult:
    return _tune(progress=steps.append)


def _tune(trials: int = 48, **arguments: Any) -> FamilyResult:
    given = GIVEN | ({"m": range(1, 257)} | arguments)
    return explorer.tune_range("matmul", trials=trials, strategy="random", **given)


def test_a_range_has_a_schedule_for_every_extent(found: FamilyResult, steps: list[Step]) -> None:
    assert found.trials <= 48
    assert found.searched[:2] == ((256,), (1,))
    assert {step.what for step in steps} == {"searched", "compared"}
    pieces = list(found.pieces())
    assert [piece[0] for piece in pieces] == [1, *(piece[1] + 1 for piece in pieces[:-1])]
    assert pieces[-1][1] == 256
    for extent in (1, 5, 77, 256):
        winner = found.winner(m=extent)
        assert winner.workload.space().refusal(winner.schedule) is None
        assert winner.seconds > 0
    with pytest.raises(UsageError, match=r"not among matmul m=1\.\.256 n=32 k=32"):
        found.winner(m=257)


@pytest.mark.parametrize("trials", [16, 20, 23, 32, 50])
def test_a_range_has_no_more_trials_than_it_was_given(trials: int, tmp_path: Path) -> None:
    steps: list[Step] = []
    place = tmp_path / "few.db"
    found = _tune(trials, m=range(1, 301), progress=steps.append, store=place)
    assert max(step.trials for step in steps) == found.trials <= trials
    assert {row.point for row in found.table.rows} >= {(1,), (300,)}
    with Store(place) as store:
        assert store.count() == found.trials


def test_points_held_out_tell_the_regret(found: FamilyResult) -> None:
    assert found.regrets
    assert all(regret.loss >= 0 for regret in found.regrets)
    assert found.worst_regret == max(regret.loss for regret in found.regrets)
    chosen_by = {row.point for row in found.table.rows}
    assert not chosen_by & {regret.point for regret in found.regrets}


def test_records_have_the_schedule_of_an_extent_that_was_never_measured(
    found: FamilyResult,
) -> None:
    measured = {row.point[0] for row in found.table.rows} | {r.point[0] for r in found.regrets}
    extent = next(extent for extent in range(2, 256) if extent not in measured)
    workload = explorer.load("matmul", m=extent, **GIVEN)
    winner = best_winner(workload)
    assert winner.schedule == found.winner(m=extent).schedule
    assert winner.job == found.job
    for other in ({"m": 257}, {"m": extent, "k": 33}, {"m": extent, "dtype": "bf16"}):
        with pytest.raises(NothingValid):
            best_winner(explorer.load("matmul", **(GIVEN | other)))


def test_a_search_of_one_extent_goes_before_the_range(found: FamilyResult) -> None:
    searched = best_winner(found.family.workload((1,)))
    assert searched.job != found.job


def test_the_table_is_kept_and_damage_to_it_is_no_table(place: Path, found: FamilyResult) -> None:
    with Store(place) as store:
        job = store.job(found.job)
    kept = json.loads(job.options)[OPTION]
    assert Table.from_data(kept) == found.table
    for damage in ({}, kept | {"rows": []}, kept | {"rows": [[[1], 99, 1.0, 1]]}, {"rows": 3}):
        assert Table.from_data(damage) is None


def test_every_time_of_the_table_was_measured_at_its_point(
    place: Path, found: FamilyResult
) -> None:
    _refuse_strangers(place, found)


def test_so_it_is_where_time_was_up_after_the_searches(tmp_path: Path) -> None:
    """A point that was compared with nothing has the time that its search measured."""
    ticks = iter(range(10_000))
    family = Family.of("matmul", {"m": range(1, 129), "n": 32, "k": 32}, threads=1)
    plan = FamilyPlan(family, 96, seconds=3.0, strategy="random")
    place = tmp_path / "hasty.db"
    hasty = tune_family(plan, store=place, clock=lambda: float(next(ticks)))
    assert hasty.trials < 96
    assert not hasty.regrets
    assert {row.point for row in hasty.table.rows} == set(hasty.searched)
    _refuse_strangers(place, hasty)


def _refuse_strangers(place: Path, found: FamilyResult) -> None:
    """Times of a table are in the records of the workload and schedule that they stand beside."""
    with Store(place) as store:
        for one in found.table.measured:
            workload = found.family.workload(one.point)
            times = {
                record.seconds
                for record in store.records(workload=workload.program.key)
                if record.schedule == one.schedule.to_json()
            }
            assert one.seconds in times


def test_a_point_has_the_fastest_that_was_measured_there(found: FamilyResult) -> None:
    for row in found.table.rows:
        times = [one.seconds for one in found.table.measured if one.point == row.point]
        assert row.seconds <= 1.011 * min(times)
        assert found.winner(m=row.point[0]).schedule == row.schedule


def test_a_report_is_of_a_search_and_not_of_a_comparison(
    place: Path, found: FamilyResult, tmp_path: Path
) -> None:
    with Store(place) as store:
        assert read_story(store).trials
        compared = store.jobs()[-1].id
    explorer.write_report(tmp_path / "page.html", found.job, store=place)
    with pytest.raises(UsageError, match="has no trials of a search"):
        explorer.write_report(tmp_path / "none.html", compared, store=place)


def test_several_arguments_may_vary() -> None:
    several = _tune(24, m=[8, 64], n=range(16, 33))
    assert several.family.names == ("m", "n")
    assert several.winner(m=8, n=17).schedule.target == "cpu"
    with pytest.raises(UsageError, match="boundaries are told of one argument"):
        list(several.pieces())


def test_a_range_needs_some_trials_and_two_extents() -> None:
    with pytest.raises(UsageError, match="trials=8: a range takes 16 at least"):
        _tune(8)
    with pytest.raises(UsageError, match="one workload alone"):
        _tune(48, m="7..7")


def test_ranges_of_a_file_have_their_share() -> None:
    jobs = [
        {"operator": "matmul", "arguments": {"m": "1..64", "n": 8, "k": 8}, "trials": 40},
        {"operator": "softmax", "arguments": {"m": 8, "n": 8}},
    ]
    parts = split(plan_of({"trials": 100, "job": jobs}))
    assert [family.trials for family in parts.families] == [40]
    assert parts.plan is not None
    assert parts.plan.budget.trials == 60
    with pytest.raises(UsageError, match="nothing is left for the other jobs"):
        split(plan_of({"trials": 40, "job": jobs}))


def test_the_command_tells_pieces_and_regret(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", "matmul", "m=1..8", "n=16", "k=16", "--threads", "1", "--trials", "24"]
    assert cli.invoke([*words, "--strategy", "random"]) == cli.EXIT_DONE
    said = capsys.readouterr().out
    assert "m=8: searched, best" in said
    assert "\nm=1.." in said
    assert "regret" in said
    assert cli.invoke([*words, "--strategy", "random", "--format", "json"]) == cli.EXIT_DONE
    assert json.loads(capsys.readouterr().out)["table"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tune", "matmul", "m=8..1", "n=4", "k=4"), "m=8..1: the range is empty"),
        (("tune", "matmul", "m=1..x", "n=4", "k=4"), "'x' is no whole number"),
        (("tune", "matmul", "m=1..4", "m=8..9", "n=4", "k=4"), "'m' is given twice"),
        (("tune", "matmul", "mm=1..4", "n=4", "k=4"), "did you mean 'm'"),
        (("tune", "matmul", "m=1..4", "n=4", "k=4", "--out", "x"), "--out cannot be given here"),
        (("export", "matmul", "m=1..999", "n=4", "k=4"), "999 kernels in one library, 256 at most"),
        (
            ("export", "matmul", "m=1,2", "n=4", "k=4", "--schedule", "{}"),
            "--schedule is for one k",
        ),
        (("run", "matmul", "m=1,2", "n=4", "k=4"), "'1,2' is not a whole number"),
    ],
)
def test_what_is_wrong_is_one_line(
    words: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = tmp_path / "none.db"
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(place))
    assert cli.invoke(list(words)) == cli.EXIT_USAGE
    heard = capsys.readouterr().err
    assert said in heard
    assert heard.count("\n") == 1
    assert not place.exists()


def test_what_is_doubted_keeps_no_likely_schedule_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time from afar may be told much too low, and is told with much doubt."""
    far = Schedule.of("cpu", {"tile.m.0": 8})
    likely: list[list[Schedule]] = []
    begun: list[tuple[Schedule, ...]] = []

    def told(*arguments: Any) -> list[Choice]:
        found = choices_for(*arguments)
        likely.append([choice.schedule for choice in found[:2]])
        row = found[0].row
        return [*found, Choice(far, row, found[0].seconds / 100, found[-1].doubted * 10)]

    def search(*arguments: Any, seeds: tuple[Schedule, ...], **options: Any) -> Search:
        if far in seeds:
            begun.append(seeds)
        seeds = tuple(seed for seed in seeds if seed != far)
        return Search(*arguments, seeds=seeds, **options)

    def measured(run: Any, point: Any, schedules: list[Schedule]) -> dict[Schedule, float]:
        run._trials += len(schedules)
        return dict.fromkeys(schedules, 1e-3)

    family = Family.of("matmul", {"m": range(1, 129), "n": 32, "k": 32}, threads=1)
    plan = FamilyPlan(family, 48, strategy="random")
    monkeypatch.setattr("explorer.shapes.tuning.choices_for", told)
    monkeypatch.setattr("explorer.shapes.tuning.Search", search)
    monkeypatch.setattr("explorer.shapes.tuning._Run._measure", measured)
    tune_family(plan, store=tmp_path / "records.db")
    assert begun
    assert all(set(ours) <= set(seeds) for ours, seeds in zip(likely, begun, strict=False))


def test_every_point_of_the_grid_is_searched_from_what_others_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ends begin from nothing and have twice the trials; each other search has seeds. Behind
    them some points are searched again."""
    begun: dict[str, list[tuple[int, int]]] = {}

    def search(workload: Any, *arguments: Any, seeds: Any, trials: int, **options: Any) -> Search:
        begun.setdefault(workload.extents_json, []).append((len(seeds), trials))
        return Search(workload, *arguments, seeds=seeds, trials=trials, **options)

    family = Family.of("matmul", {"m": range(1, 257), "n": 32, "k": 32}, threads=1)
    plan = FamilyPlan(family, 200, strategy="random")
    monkeypatch.setattr("explorer.shapes.tuning.Search", search)
    found = tune_family(plan, store=tmp_path / "records.db")
    assert found.trials <= 200
    assert len(found.searched) == plan.points == len(begun)
    (none, most), (few, also), *others = (first for first, *_ in begun.values())
    assert none == 0
    assert few > 0
    assert most == also
    assert all(seeds > 0 and trials < most for seeds, trials in others)
    again = sum(len(searches) - 1 for searches in begun.values())
    assert again >= 2


def test_the_table_has_what_searches_measured_of_what_it_keeps(tmp_path: Path) -> None:
    """A schedule that a search found slow is known to be, though no comparison had it there."""
    family = Family.of("matmul", {"m": range(1, 129), "n": 32, "k": 32}, threads=1)
    one, other = (Schedule.of("cpu", {"tile.m.0": tile}) for tile in (1, 8))
    with open_store(tmp_path / "records.db") as store:
        run = _Run(FamilyPlan(family, 48), store, lambda _: None, time.monotonic)
        run._times = {(1,): {one: 1e-6}, (128,): {other: 1e-4}}
        run._tried = {(1,): {one: 1e-6}, (128,): {other: 1e-4, one: 3e-4}}
        table = run._settled()
    assert [(row.point, row.schedule) for row in table.rows] == [((1,), one), ((128,), other)]
    assert [(row.point, row.schedule, row.seconds) for row in table.others] == [((128,), one, 3e-4)]


def test_what_a_model_expects_between_points_is_kept(found: FamilyResult, place: Path) -> None:
    table = found.table
    measured = {row.point for row in table.rows}
    assert table.expected
    assert not measured & {one.point for one in table.expected}
    for one in table.expected:
        space = found.family.workload(one.point).space()
        assert space.refusal(one.schedule) is None


def test_what_was_found_elsewhere_later_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The point that was searched first is searched again from what is expected to beat its best;
    what was measured there is not measured again, and all of its times are kept."""
    begun: list[tuple[Schedule, ...]] = []
    better: list[Schedule] = []

    def told(table: Table, point: tuple[int, ...], *arguments: Any) -> list[Choice]:
        found = choices_for(table, point, *arguments)
        mine = {one.schedule for one in table.measured if one.point == point}
        if point != (128,) or not mine:
            return found
        strange = [choice for choice in found if choice.schedule not in mine]
        better.extend(choice.schedule for choice in strange[:1])
        return [Choice(one.schedule, one.row, 1e-12, 1e-12) for one in strange[:1]]

    def search(workload: Any, *arguments: Any, seeds: Any, **options: Any) -> Search:
        if dict(workload.arguments)["m"] == 128:
            begun.append(seeds)
        return Search(workload, *arguments, seeds=seeds, **options)

    family = Family.of("matmul", {"m": range(1, 129), "n": 32, "k": 32}, threads=1)
    monkeypatch.setattr("explorer.shapes.tuning.choices_for", told)
    monkeypatch.setattr("explorer.shapes.tuning.Search", search)
    monkeypatch.setattr("explorer.shapes.tuning.Effort.most", lambda *_: (128,))
    place = tmp_path / "records.db"
    found = tune_family(FamilyPlan(family, 96, strategy="random"), store=place)
    assert len(begun) >= 2
    assert better
    assert better[0] in begun[1]
    assert found.searched.count((128,)) == 1
    with Store(place) as store:
        searched = [
            record.schedule_key for record in store.records(operator="matmul")
            if json.loads(record.extents)["m"] == 128 and record.strategy == "random"
        ]  # fmt: skip
    assert len(searched) == len(set(searched))


class _Barren(ScriptedDevice):
    """No search finds a valid kernel at some extents."""

    def __init__(self, *extents: int) -> None:
        super().__init__()
        self._extents = extents

    def __call__(self, program: Any, *arguments: Any, **options: Any) -> _Barren:
        made = super().__call__(program, *arguments, **options)
        if program.axes["m"] in self._extents:
            made.rule = lambda schedule: Outcome("illegal", detail="too large")
        return made


def test_a_point_where_a_search_finds_nothing_has_what_others_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("explorer.search.Measurer", _Barren(1, 7))
    monkeypatch.setattr("explorer.shapes.tuning.Measurer", ScriptedDevice())
    family = Family.of("matmul", {"m": [1, 7, 64, 128], "n": 32, "k": 32}, threads=1)
    found = tune_family(FamilyPlan(family, 96, strategy="random"), store=tmp_path / "some.db")
    assert {(1,), (7,)} <= set(found.searched)
    for extent in (1, 7, 64):
        assert found.winner(m=extent).seconds > 0
    monkeypatch.setattr("explorer.search.Measurer", _Barren(128))
    with pytest.raises(NothingValid):
        tune_family(FamilyPlan(family, 96, strategy="random"), store=tmp_path / "none.db")
