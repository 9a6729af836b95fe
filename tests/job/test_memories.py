"""What operands lie in: asked for, recorded, never mixed, and the same when it is timed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from explorer.errors import NothingValid
from explorer.interrupted import outcome_of
from explorer.outcome import CALL, KERNEL, Outcome
from explorer.plan import Plan, plan_of
from explorer.recall import FINAL, best_record, known_trials, settled_trials, to_record
from explorer.replay import Recording
from explorer.runtime.memory import GIVEN, HUGE, PAGE, aligned_empty, plain_copy
from explorer.samples import merged
from explorer.training import read_groups
from explorer.workload import Workload
from ir.errors import UsageError
from ir.schedule import Schedule
from records import Store

SIZES = {"m": 8, "n": 8}


def workload(memory: str | None = None) -> Workload:
    return Workload.of("softmax", SIZES, "cpu", 1, memory)


def schedules(count: int) -> list[Schedule]:
    space = workload().space()
    return [space.schedule(row) for row in space.sample(np.random.default_rng(0), count)]


def test_a_cpus_operands_lie_in_plain_memory_unless_asked() -> None:
    assert workload().memory == "plain"
    assert workload("huge").memory == "huge"
    assert workload("huge").placed == "huge memory"
    with pytest.raises(UsageError, match="no memory 'cold'; operands lie in one of plain, huge"):
        workload("cold")


def test_a_target_with_one_kind_takes_no_other() -> None:
    elsewhere = Workload.of("softmax", SIZES, "cuda")
    assert (elsewhere.memory, elsewhere.placed) == ("huge", "")
    with pytest.raises(UsageError, match="target cuda has one kind of memory; give none"):
        Workload.of("softmax", SIZES, "cuda", memory="plain")


def test_plans_keep_it_and_old_ones_are_of_huge_pages() -> None:
    plan = plan_of({"job": [{"operator": "softmax", "arguments": SIZES, "memory": "huge"}]})
    assert plan.jobs[0].workload().memory == "huge"
    assert Plan.from_json(plan.to_json()) == plan
    told = json.loads(plan.to_json())
    del told["jobs"][0]["memory"]
    assert Plan.from_json(json.dumps(told)).jobs[0].workload().memory == "huge"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Two schedules in huge pages, the second of them in plain memory too."""
    path = tmp_path / "records.db"
    first, second = schedules(2)
    with Store(path) as kept:
        for memory, schedule, seconds in (
            ("huge", first, 1e-3), ("huge", second, 2e-3), ("plain", second, 4e-3),
        ):  # fmt: skip
            outcome = Outcome("ok", seconds, repeats=3, kernel_key=schedule.key)
            kept.add(to_record(workload(memory), schedule, outcome, "job", "random"))
    return path


def test_kinds_are_not_mixed(store: Path) -> None:
    assert best_record(workload("huge"), store).seconds == 1e-3
    assert best_record(workload(), store).seconds == 4e-3
    with Store(store) as kept:
        assert len(known_trials(kept, workload())) == 1
        assert len(known_trials(kept, workload("huge"))) == 2
    assert sorted(len(group.seconds) for group in read_groups([store])) == [1, 2]
    assert len(Recording.load(workload(), store).outcomes) == 1
    assert Recording.load(workload("huge"), store).workload.memory == "huge"


def test_only_the_other_kind_is_said_so(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "huge.db"
    with Store(store) as kept, Store(other) as huge:
        huge.add_all(kept.records(memory="huge"))
    with pytest.raises(NothingValid, match=r"in plain memory .*one in huge memory: --memory huge"):
        best_record(workload(), other)
    assert Recording.load(workload(), other).workload.memory == "huge"


def test_a_final_tells_the_call_and_a_search_learns_from_the_kernel(tmp_path: Path) -> None:
    (schedule,) = schedules(1)
    turns = [Outcome("ok", 9e-6 + n * 1e-6, notes=((KERNEL, 5e-6 + n * 1e-6),)) for n in range(3)]
    final = merged(turns)
    assert final.seconds == 10e-6
    assert dict(final.notes)[KERNEL] == 6e-6
    with Store(tmp_path / "records.db") as store:
        for outcome, strategy in ((Outcome("ok", 6.2e-6), "random"), (final, FINAL)):
            store.add(to_record(workload(), schedule, outcome, "job", strategy))
        assert outcome_of(next(store.records(strategy=FINAL))).seconds == 10e-6
        ((_, known),) = known_trials(store, workload())
        ((_, settled),) = settled_trials(store, workload())
    assert known.seconds == pytest.approx(6.1e-6)
    assert (settled.seconds, dict(settled.notes)[CALL]) == (6e-6, 10e-6)
    assert best_record(workload(), tmp_path / "records.db").seconds == 10e-6


def test_plain_memory_is_no_better_than_that_of_callers() -> None:
    for shape in ((3,), (1 << 20,), ()):
        copy = plain_copy(np.ones(shape, np.float32))
        assert copy.ctypes.data % PAGE == GIVEN
        assert copy.flags.writeable
        assert (copy == 1).all()


@pytest.mark.skipif(
    not any(
        word in Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
        for word in ("[always]", "[madvise]")
    )
    if Path("/sys/kernel/mm/transparent_hugepage/enabled").exists()
    else True,
    reason="no huge pages to ask for",
)
def test_huge_memory_is_on_huge_pages() -> None:
    array = aligned_empty((4 * HUGE,), "u8")
    before = _huge_kib()
    array[...] = 1
    assert _huge_kib() - before >= 3 * HUGE >> 10


def _huge_kib() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))


def test_a_machine_may_be_named_with_a_kind(store: Path) -> None:
    there = replace(workload(), machine=workload().hardware, memory="huge")
    assert there.memory == "huge"
