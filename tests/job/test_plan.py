"""Plans: the file's form, what is wrong in it, several jobs under one budget."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import explorer
from explorer import job
from explorer.budget import BATCH, Budget
from explorer.job import Progress
from explorer.outcome import Outcome
from explorer.plan import Plan, plan_of, read_plan
from explorer.recall import DECIDING
from explorer.workload import Workload
from ir.errors import UsageError
from ir.schedule import Schedule
from records import Store
from tests.few import few
from tests.job.device import ScriptedDevice, by_key

TEXT = """\
trials = 96
batch = 8
objective = "ratio"

[defaults]
strategy = "random"
arguments = { dtype = "f32" }

[[job]]
operator = "matmul"
arguments = { m = 64, n = 64, k = 64 }
weight = 2.5
pins = { "rows.s0" = 4 }

[[job]]
operator = "softmax"
arguments = { m = 64, n = 64 }
seed = 7
trials = 12
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.toml"
    path.write_text(TEXT)
    return path


def test_a_file_becomes_a_plan(file: Path) -> None:
    plan = read_plan(file)
    assert (plan.budget.trials, plan.budget.batch, plan.objective) == (96, 8, "ratio")
    first, second = plan.jobs
    assert dict(first.arguments) == {"dtype": "f32", "m": 64, "n": 64, "k": 64}
    assert (first.weight, dict(first.pins), first.strategy) == (2.5, {"rows.s0": 4}, "random")
    assert (second.seed, second.trials, second.title) == (7, 12, "softmax dtype=f32 m=64 n=64")
    assert Plan.from_json(plan.to_json()) == plan
    assert read_plan(file, trials=5, seconds=None).budget.trials == 5
    assert (plan.horizon(0), plan.horizon(1)) == (48, 12)


def test_a_job_may_do_without_a_baseline() -> None:
    jobs = [{"operator": "matmul"}, {"operator": "softmax", "baseline": True}]
    plan = plan_of({"defaults": {"baseline": False}, "job": jobs})
    assert [job.baseline for job in plan.jobs] == [False, True]
    assert Plan.from_json(plan.to_json()) == plan
    older = json.loads(plan.to_json())
    for stored in older["jobs"]:
        del stored["baseline"]
    assert all(job.baseline for job in Plan.from_json(json.dumps(older)).jobs)


def test_a_budget_is_what_is_said(file: Path) -> None:
    assert Budget.of("deep", seconds=3.0) == Budget(None, 3.0, BATCH)
    assert Budget.of("quick", trials=3) == Budget(3, None, BATCH)
    assert Budget.of(trials=3, seconds=3.0) == Budget(3, 3.0, BATCH)
    assert Budget.of("quick", jobs=2) == Budget(128, 60.0, BATCH)
    deep = read_plan(file, effort="deep")
    assert deep.budget == Budget(2048, None, 8)
    timed = plan_of({"seconds": 9, "job": [{"operator": "matmul"}, {"operator": "x", "trials": 5}]})
    assert (timed.horizon(0), timed.horizon(1)) == (None, 5)
    assert Plan.from_json(timed.to_json()) == timed


def test_an_effort_is_meant_for_each_job() -> None:
    jobs = {"effort": "quick", "job": [{"operator": "matmul"}, {"operator": "softmax"}]}
    budget = plan_of(jobs).budget
    assert (budget.trials, budget.seconds) == (128, 60.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trails = 3", "top level: unknown key 'trails'; the nearest is 'trials'"),
        ("[default]", "unknown key 'default'; the nearest is 'defaults'"),
        ("[defaults]\nwieght = 1", "[defaults]: unknown key 'wieght'; the nearest is 'weight'"),
        ("[[job]]\noperater = 'x'", "[[job]] 1: unknown key 'operater'; the nearest is 'operator'"),
        ("[[job]]\nweight = 2", "[[job]] 1 lacks operator"),
        ("[[job]]\noperator = 'x'\nweight = 0", "[[job]] 1: weight=0: must be above 0"),
        ("[[job]]\noperator = 'x'\ntrials = 0", "[[job]] 1: trials=0"),
        ("[[job]]\noperator = 'x'\nseed = -1", "[[job]] 1: seed=-1"),
        ("[[job]]\noperator = 'x'\nseed = 1.5", "seed=1.5 must be a whole number"),
        ("[[job]]\noperator = 3", "operator=3 must be a text"),
        ("[[job]]\noperator = 'x'\narguments = 3", "arguments=3 must be a table"),
        ("[[job]]\noperator = 'x'\narguments = {m = [1]}", "m=[1] must be a number"),
        ("[job]\noperator = 'x'", "must be an array of tables, written [[job]]"),
        ("job = [3]", "[[job]] 1 must be a table, not 3"),
        ("trials = true", "trials=True must be a whole number"),
        ("[[job]]\noperator = 'x'\nbaseline = 1", "baseline=1 must be true or false"),
        (
            "objective = 'sum'\n[[job]]\noperator = 'x'",
            "no objective 'sum'; there are total",
        ),
        ("effort = 'qick'\n[[job]]\noperator = 'x'", "no effort 'qick'"),
        ("trials = 0\n[[job]]\noperator = 'x'", "trials=0: must be at least 1"),
        ("", "no jobs: give at least one [[job]]"),
        ("trials = ", "is not TOML"),
        ("a = " + "[" * 10_000, "is not TOML: maximum recursion depth"),
        ("trials = " + "9" * 5_000, "is not TOML: Exceeds the limit"),
        ("\0", "is not TOML"),
        (f"trials = {'9' * 20}\n[[job]]\noperator = 'x'", "at most 1,000,000,000"),
        ("seconds = inf\n[[job]]\noperator = 'x'", "seconds=inf: must be above 0 and finite"),
        ("seconds = 1979-05-27\n[[job]]\noperator = 'x'", "must be a number"),
        ("[[job]]\noperator = 'x'\nweight = nan", "weight=nan: must be above 0"),
        ('[[job]]\noperator = "x"\nmodel = "a\\u0000b"', "holds a NUL"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_file(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        job.tune_all(path, store=tmp_path / "records.db")
    said = str(caught.value)
    assert message in said
    assert said.startswith(str(path))
    assert "\n" not in said
    assert not (tmp_path / "records.db").exists()


def test_a_wrong_job_is_named(tmp_path: Path) -> None:
    jobs = {"job": [{"operator": "softmax", "arguments": {"m": 4, "n": 4}}, {"operator": "matmul"}]}
    with pytest.raises(UsageError, match=r"job 2 \(matmul\): .*missing"):
        job.tune_all(jobs, store=tmp_path / "records.db")
    named = {"operator": "softmax", "arguments": {"m": 4, "n": 4}, "start_from": "gone.db"}
    with pytest.raises(UsageError, match=r"job 1 \(softmax m=4 n=4\): gone\.db: no such file"):
        job.tune_all({"job": [named, named]}, store=tmp_path / "records.db")
    assert not (tmp_path / "records.db").exists()
    with pytest.raises(UsageError, match=r"gone\.toml: No such file"):
        job.tune_all(tmp_path / "gone.toml")


def test_jobs_share_a_budget(device: ScriptedDevice, file: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int, int]] = []

    def progress(progress: Progress) -> None:
        seen.append((progress.number, progress.trial, progress.trials))

    path = tmp_path / "records.db"
    found = explorer.tune_all(file, store=path, progress=progress)
    assert found.trials == 96 == len(seen)
    assert [total for _, _, total in seen] == list(range(1, 97))
    assert [number for number, _, _ in seen[:16]] == [0] * 8 + [1] * 8
    assert Counter(number for number, _, _ in seen) == {0: 84, 1: 12}
    first, second = found.results
    assert first.best["rows.s0"] == 4
    assert second.program.name == "softmax"
    assert not found.missed
    with Store(path) as store:
        assert [known.state for known in store.jobs()] == ["done", "done"]
        assert store.count(job=second.job, strategy="random") == 12


def only_products(schedule: Schedule) -> Outcome:
    """As `by_key`, but nothing that the space of softmax offers is right."""
    product = Workload.of("matmul", {"m": 64, "n": 64, "k": 64}).space()
    names = {name for name, _ in schedule.values}
    return by_key(schedule) if names == set(product.names) else Outcome("wrong_result")


def test_a_job_without_anything_valid_does_not_spoil_the_others(
    device: ScriptedDevice, file: Path, tmp_path: Path
) -> None:
    device.rule = only_products
    found = job.tune_all(file, store=tmp_path / "records.db")
    assert [result.number for result in found.results] == [0]
    ((number, why),) = found.missed
    assert number == 1
    assert "none of 12 candidates was valid" in why


def test_a_budget_may_end_before_every_turn(
    device: ScriptedDevice, file: Path, tmp_path: Path
) -> None:
    found = job.tune_all(file, trials=8, store=tmp_path / "records.db")
    assert found.missed == ((1, "the budget was spent before its turn came"),)


@pytest.mark.parametrize("last", few([3, 8, 11, 60], [1, 3]))
def test_an_interrupted_plan_goes_on_with_all_its_jobs(
    last: int, device: ScriptedDevice, file: Path, tmp_path: Path
) -> None:
    def interrupt(progress: Progress) -> None:
        if progress.trials == last:
            raise KeyboardInterrupt

    paths = [tmp_path / "whole.db", tmp_path / "records.db"]
    whole = job.tune_all(file, store=paths[0])
    assert job.tune_all(file, store=paths[1], progress=interrupt).interrupted
    found = job.resume(store=paths[1])
    assert [result.best for result in found.results] == [result.best for result in whole.results]
    schedules = [_searched(path) for path in paths]
    assert schedules[0] == schedules[1]


def _searched(path: Path) -> list[Any]:
    with Store(path) as store:
        return [r.schedule for r in store.records() if r.strategy not in DECIDING]
