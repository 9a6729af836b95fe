"""Searches over records: as reproducible as the records, without a device, and storing nothing."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import explorer
from explorer import cli, job
from explorer.job import Progress
from explorer.outcome import Outcome
from explorer.rebuilding import machine_of
from explorer.recall import to_record
from explorer.replay import Recording, Replayer, seeds_from
from explorer.uncommitted import Uncommitted
from explorer.workload import Workload
from ir.errors import UsageError
from ir.schedule import Schedule
from records import Record, Store, export_records
from tests.job.device import ScriptedDevice, by_key

EXTENTS: dict[str, Any] = {"m": 64, "n": 64, "k": 64}
FREE = ("rows.s0", "vectors.s0", "unroll.s0", "prefetch.s0")


def _workload() -> Workload:
    return Workload.of("matmul", EXTENTS, "cpu", 2)


def _schedules(workload: Workload) -> list[Schedule]:
    """All legal schedules of a small part of the space."""
    whole = workload.space()
    seed = whole.schedule(whole.seed_rows(np.random.default_rng(0))[0])
    space = workload.space({name: value for name, value in seed.values if name not in FREE})
    return [space.schedule(row) for chunk in space.exhaustive() for row in chunk]


def _records(workload: Workload, schedules: Sequence[Schedule]) -> list[Record]:
    return [to_record(workload, each, by_key(each), "", "exhaustive") for each in schedules]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of such a part, measured on a machine that is not this one."""
    path = tmp_path_factory.mktemp("recorded") / "elsewhere.db"
    workload = _workload()
    elsewhere = replace(workload.hardware, name="elsewhere")
    with Store(path) as store:
        store.add_all(_records(replace(workload, machine=elsewhere), _schedules(workload)))
    return path


def test_a_replayed_search_finds_the_best_record_without_measuring(
    recorded: Path, device: ScriptedDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWRIGHT_RECORDS", str(tmp_path / "mine.db"))
    options: dict[str, Any] = {"replay": recorded, "strategy": "exhaustive", "trials": 10_000}
    result = job.tune("matmul", EXTENTS, **options)
    schedules = _schedules(_workload())
    assert result.trials == len(schedules)
    assert result.best == min(schedules, key=lambda schedule: by_key(schedule).seconds or 0.0)
    assert dict(result.outcomes) == {"ok": len(schedules)}
    assert not device.measured
    assert not (tmp_path / "mine.db").exists()


@pytest.mark.parametrize("strategy", ["evolutionary", "random", "annealing"])
def test_a_replayed_search_is_the_same_every_time(strategy: str, recorded: Path) -> None:
    courses: list[list[tuple[str, float | None]]] = [[], []]
    for course in courses:

        def note(progress: Progress, course: list[tuple[str, float | None]] = course) -> None:
            course.append((progress.schedule.key, progress.best_seconds))

        explorer.tune(
            "matmul", replay=recorded, strategy=strategy, trials=40, progress=note, **EXTENTS
        )
    assert courses[0] == courses[1]
    assert len(courses[0]) == 40


def test_when_trials_are_stored_changes_nothing_that_is_told(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait for a commit are told later, with the best time as it was behind each."""
    courses: list[list[tuple[str, float | None]]] = [[], []]
    for course, due in zip(courses, (True, False), strict=True):
        monkeypatch.setattr(Uncommitted, "due", due)

        def note(progress: Progress, course: list[tuple[str, float | None]] = course) -> None:
            course.append((progress.schedule.key, progress.best_seconds))

        explorer.tune(
            "matmul", replay=recorded, strategy="random", trials=40, progress=note, **EXTENTS
        )
    assert courses[0] == courses[1]
    assert len({best for _, best in courses[0]}) > 1


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.xz"])
def test_an_export_replays_like_its_store(suffix: str, recorded: Path, tmp_path: Path) -> None:
    plain = tmp_path / "records.jsonl"
    with Store(recorded) as store:
        export_records(store, plain)
    path = tmp_path / f"records{suffix}"
    if suffix.endswith(".xz"):
        path.write_bytes(lzma.compress(plain.read_bytes()))
    workload = _workload()
    assert Recording.load(workload, path).outcomes == Recording.load(workload, recorded).outcomes


def test_what_the_records_agree_on_is_pinned(recorded: Path) -> None:
    recording = Recording.load(_workload(), recorded)
    space = recording.space()
    free = {decision.name for decision in space.decisions if decision.name not in space.pinned}
    assert free <= set(FREE)
    assert sum(map(len, space.exhaustive())) == len(recording.outcomes)
    narrower = recording.space({"unroll.s0": 2})
    assert narrower.pinned == space.pinned | {"unroll.s0": 2}


def test_the_recorded_machine_is_the_one_searched_for(recorded: Path) -> None:
    workload = _workload()
    with Store(recorded) as store:
        there = machine_of(next(iter(store.records())))
    assert there.key == workload.hardware.key.replace(workload.hardware.name, "elsewhere")
    assert there.isa == workload.hardware.isa
    assert dict(there.facts) == dict(workload.hardware.facts)
    assert Recording.load(workload, recorded).workload.hardware == there


def _answers(recording: Recording, schedules: list[Schedule]) -> list[Outcome]:
    replayer = Replayer(recording)
    replayer.begin(schedules)
    ended = list(iter(replayer.ended, None))
    assert [schedule for schedule, _ in ended] == schedules
    return [outcome for _, outcome in ended]


def test_a_schedule_that_was_not_recorded_is_refused(recorded: Path) -> None:
    recording = Recording.load(_workload(), recorded)
    inside = next(iter(recording.outcomes))
    outside = _workload().space().sample(np.random.default_rng(3), 1)[0]
    missing = _workload().space().schedule(outside)
    known, missed = _answers(recording, [inside, missing])
    assert known == recording.outcomes[inside]
    assert missed.status == "illegal"
    assert f"none of the {len(recording.outcomes)}" in missed.detail


def test_schedules_of_one_kernel_are_answered_once(recorded: Path) -> None:
    recording = Recording.load(_workload(), recorded)
    first, second = list(recording.outcomes)[:2]
    same = {first: Outcome("ok", 1e-3, kernel_key="k"), second: Outcome("ok", 2e-3, kernel_key="k")}
    answers = _answers(replace(recording, outcomes=same), [first, second])
    assert [(o.seconds, o.copied) for o in answers] == [(1e-3, False), (1e-3, True)]


def test_replay_measures_recorded_schedules_again_fastest_first(
    recorded: Path, device: ScriptedDevice, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.db"
    job.tune("matmul", EXTENTS, start_from=recorded, strategy="replay", trials=9, store=mine)
    order = sorted(_schedules(_workload()), key=lambda schedule: by_key(schedule).seconds or 0.0)
    assert device.measured == order[:9]


def test_a_search_starts_from_records_within_its_pins(
    recorded: Path, device: ScriptedDevice, tmp_path: Path
) -> None:
    job.tune(
        "matmul",
        EXTENTS,
        start_from=recorded,
        strategy="random",
        trials=30,
        pins={"unroll.s0": 2},
        store=tmp_path / "mine.db",
    )
    order = sorted(_schedules(_workload()), key=lambda schedule: by_key(schedule).seconds or 0.0)
    within = [schedule for schedule in order if schedule["unroll.s0"] == 2]
    assert device.measured[:24] == within[:24]
    assert len(device.measured) == 30


def test_what_cannot_be_replayed_is_said(
    recorded: Path, device: ScriptedDevice, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="no such file"):
        job.tune("matmul", EXTENTS, replay=tmp_path / "none.db")
    with pytest.raises(UsageError, match=r"\"m\": 65.*there is matmul .*\"m\":64"):
        job.tune("matmul", EXTENTS | {"m": 65}, replay=recorded)
    with pytest.raises(UsageError, match="on 3 threads"):
        job.tune("matmul", EXTENTS, replay=recorded, threads=3)
    with pytest.raises(UsageError, match="stores nothing"):
        job.tune("matmul", EXTENTS, replay=recorded, store=tmp_path / "mine.db")
    with pytest.raises(UsageError, match="name records with --start-from"):
        job.tune("matmul", EXTENTS, strategy="replay", store=tmp_path / "mine.db")
    assert not (tmp_path / "mine.db").exists()
    with pytest.raises(UsageError, match=r"none of \d+ recorded schedules is legal here"):
        seeds_from(_workload(), recorded, {"chunk": "dynamic"})
    torn = tmp_path / "torn.jsonl.xz"
    torn.write_bytes(b"no such thing")
    with pytest.raises(UsageError, match="export the records again"):
        job.tune("matmul", EXTENTS, replay=torn)


def test_records_of_another_generator_are_refused(tmp_path: Path) -> None:
    workload = _workload()
    old = Schedule.of("cpu", {"tile": 4})
    record = to_record(workload, old, by_key(old), "", "random")
    path = tmp_path / "old.db"
    with Store(path) as store:
        store.add(replace(record, generator="cpu-0"))
    with pytest.raises(UsageError, match="recorded by code generator cpu-0"):
        Recording.load(workload, path)


def test_an_interrupted_replay_offers_no_resumption(
    recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, given = Replayer.ended, count()

    def cut(self: Replayer, alarm: int | None = None) -> tuple[Schedule, Outcome] | None:
        if next(given) == 3:
            raise KeyboardInterrupt
        return ended(self, alarm)

    monkeypatch.setattr(Replayer, "ended", cut)
    words = ["tune", "matmul", "m=64", "n=64", "k=64", "--replay", str(recorded)]
    assert cli.invoke(words) == cli.EXIT_INTERRUPTED
    assert capsys.readouterr().err == "tilewright: interrupted\n"


def test_the_command_replays(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", "matmul", "m=64", "n=64", "k=64", "--trials", "20"]
    assert cli.invoke([*words, "--replay", str(recorded)]) == cli.EXIT_DONE
    assert "20 trials" in capsys.readouterr().out
    assert cli.invoke([*words, "--replay", "nowhere.db"]) == cli.EXIT_USAGE
    assert "nowhere.db: no such file" in capsys.readouterr().err


def test_records_of_another_form_of_the_program_are_told_from_none(tmp_path: Path) -> None:
    workload = _workload()
    schedule = next(iter(_schedules(workload)))
    record = to_record(workload, schedule, by_key(schedule), "", "random")
    path = tmp_path / "other.db"
    with Store(path) as store:
        store.add(replace(record, workload="0" * 64))
    with pytest.raises(UsageError, match=r"another form of it than this version.*record it again"):
        Recording.load(workload, path)
