"""Operators given as themselves: wherever a name is taken, from wherever they were defined."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pytest

import explorer
from explorer.job import JobResult
from explorer.plan import Plan, plan_of
from explorer.winner import Winner
from explorer.workload import Workload
from ir import Graph, Operator, Program, UsageError, load_operator, operator
from ir.kernel import Kernel
from ir.schedule import Schedule
from ir.sources import OperatorLike, find_source
from records import Store

ONE: dict[str, Any] = {"trials": 1, "baseline": False}


@operator
def tripled(g: Graph, m: int, dtype: str = "f32") -> None:
    """Y = 3 X."""
    rows = g.axis("m", m)
    g.output("Y", g.input("X", (rows,), dtype) * 3.0, dtype)


def scaled(factor: float) -> Operator:
    """An operator that only its closure knows."""

    @operator
    def scaled_inside(g: Graph, m: int) -> None:
        rows = g.axis("m", m)
        g.output("Y", g.input("X", (rows,), "f32") * factor)

    return scaled_inside


def returning(m: int) -> Program:
    return tripled.build(m=m)


GIVEN: dict[str, tuple[OperatorLike, dict[str, Any]]] = {
    "an operator": (tripled, {"m": 64}),
    "a number of numpy": (tripled, {"m": np.int64(64)}),
    "a closure's": (scaled(3.0), {"m": 64}),
    "a program": (tripled.build(m=64), {}),
    "a function": (returning, {"m": 64}),
    "a lambda": (lambda m: tripled.build(m=m), {"m": 64}),
    "an operator of a lambda": (operator(lambda g, m: _fill(g, m)), {"m": 64}),
}


def _fill(g: Graph, m: int) -> None:
    rows = g.axis("m", m)
    g.output("Y", g.input("X", (rows,), "f32") * 3.0)


@pytest.mark.parametrize("case", GIVEN)
def test_whatever_builds_a_program_is_a_workload(case: str) -> None:
    given, arguments = GIVEN[case]
    workload = explorer.load(given, **arguments)
    assert workload.program.axes == {"m": 64}
    assert dict(workload.arguments) == {"m": 64}
    assert workload.operator == workload.program.name
    assert json.loads(workload.extents_json) == {"m": 64}
    assert workload.given is workload.program
    assert find_source(given).name.isidentifier()


def test_names_that_others_find_stay_names() -> None:
    for given in ("matmul", load_operator("matmul")):
        workload = explorer.load(given, m=8, n=8, k=8)
        assert (workload.operator, workload.given) == ("matmul", None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, "3 is no operator: give a name, an @operator, a Program"),
        (None, "None is no operator"),
        (tripled.function, "tripled fills a graph: decorate it with @operator"),
        (lambda m: m, "returned int, not a Program"),
        (lambda n: None, "unknown argument 'm'; it takes n"),
        (dict, "is no operator"),
        (lambda m: 1 / 0, "ZeroDivisionError: division by zero ("),
        (lambda m: sys.exit(5), "SystemExit: 5 ("),
    ],
)
def test_what_is_no_operator_is_refused(given: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        explorer.load(given, m=4)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_results_are_typed_and_called(tmp_path: Path) -> None:
    store = tmp_path / "records.db"
    x = np.arange(64, dtype=np.float32)
    result = explorer.tune(tripled, m=64, store=store, **ONE)
    assert_type(result, JobResult)
    assert_type(result.best, Schedule)
    np.testing.assert_array_equal(result(x), 3 * x)

    best = explorer.best(tripled, m=64, store=store)
    assert_type(best, Winner)
    assert_type(best.schedule, Schedule)
    assert (best.schedule, best.seconds, best.job) == (result.best, result.seconds, result.job)
    assert best.gflops == result.gflops
    kernel = explorer.load(tripled, m=64).kernel(best.schedule)
    assert_type(kernel, Kernel)
    assert kernel == best.kernel()
    written = explorer.export(tripled, tmp_path / "kernel", m=64, store=store)
    assert sorted(written) == sorted(result.export(tmp_path / "kernel"))
    out = np.empty_like(x)
    assert best(x, Y=out) is out


def test_a_recorded_kernel_is_checked_before_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from explorer.errors import NothingValid
    from explorer.outcome import Outcome

    result = explorer.tune(scaled(5.0), m=32, store=tmp_path / "records.db", **ONE)
    best = explorer.best(scaled(5.0), m=32, store=tmp_path / "records.db")
    wrong = Outcome("wrong_result", detail="Y[0] is off")
    monkeypatch.setattr("explorer.job.run_schedule", lambda *_: wrong)
    with pytest.raises(NothingValid, match=r"not right here \(wrong_result: Y\[0\] is off\)"):
        best(np.ones(32, np.float32))
    assert result.winner.checked


def test_a_kernel_of_another_machine_is_not_called(tmp_path: Path) -> None:
    from dataclasses import replace

    workload = explorer.load(tripled, m=32)
    elsewhere = replace(workload, machine=replace(workload.hardware, name="another"))
    space = workload.space()
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    with pytest.raises(UsageError, match=r"another.*tune it here"):
        Winner(elsewhere, schedule, 1.0, checked=True)(np.ones(32, np.float32))


def test_a_job_goes_on_without_the_operator_that_it_was_given(tmp_path: Path) -> None:
    store = tmp_path / "records.db"

    def stop(progress: explorer.Progress) -> None:
        if progress.trial == 2:
            raise KeyboardInterrupt

    first = explorer.tune(scaled(7.0), m=64, trials=3, store=store, baseline=False, progress=stop)
    with Store(store) as records:
        plan = Plan.from_json(json.dumps(json.loads(records.jobs()[0].options)["plan"]))
    assert plan.jobs[0].program == first.program
    (result,) = explorer.resume(store=store).results
    assert (result.program, result.trials) == (first.program, 3)


def test_plans_take_operators() -> None:
    jobs = [{"operator": tripled, "arguments": {"m": 16}}, {"operator": tripled.build(m=8)}]
    plan = plan_of({"job": jobs})
    assert [job.title for job in plan.jobs] == ["tripled m=16", "tripled m=8"]
    assert Plan.from_json(plan.to_json()) == plan
    assert [job.workload().program.axes["m"] for job in plan.jobs] == [16, 8]


def test_a_search_by_hand_takes_an_operator_or_a_workload(tmp_path: Path) -> None:
    with Store(tmp_path / "records.db") as store:
        with explorer.explore(tripled, store, m=16, strategy="random") as search:
            assert len(list(search.step(2))) == 2
        workload = explorer.load(tripled, m=16)
        with explorer.explore(workload, store, strategy="random") as search:
            assert search.known == 2
        with pytest.raises(UsageError, match="give them to `load`"):
            explorer.explore(workload, store, m=16)


NOTEBOOK = """
from ir import Graph, operator
import explorer

@operator
def noted(g: Graph, m: int) -> None:
    rows = g.axis("m", m)
    g.output("Y", g.input("X", (rows,), "f32") * 2.0)

by_name = explorer.load("noted", m=32)
assert by_name == explorer.load(noted, m=32)
result = explorer.tune("noted", m=32, trials=1, baseline=False, store="records.db")
import numpy
assert result(numpy.ones(32, "f4"))[0] == 2
assert explorer.best(noted, m=32, store="records.db").schedule == result.best
print(result.workload.operator)
"""


def test_an_operator_without_a_file(tmp_path: Path) -> None:
    """As in a notebook, `__main__` has no file; and workers have never heard of it."""
    done = subprocess.run(
        [sys.executable, "-"],
        input=NOTEBOOK, capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("noted\n", "")


def test_the_surface_names_its_types() -> None:
    maker: Callable[..., Workload] = explorer.load
    assert maker is explorer.load
    assert {"JobResult", "PlanResult", "Progress", "Winner", "Workload"} <= set(explorer.__all__)
