"""Whole jobs: tune one operator or several under one budget, go on with an interrupted run.

The one-call surface over plans, runs, measuring and export; no operator and no target.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack, cast

from explorer.baseline import Baseline
from explorer.budget import BATCH, Budget
from explorer.devices import FIRST
from explorer.errors import NothingValid
from explorer.finals import ROUNDS
from explorer.interrupted import Interrupted, find_interrupted
from explorer.measure import Measurer
from explorer.measuring import Machines
from explorer.outcome import Outcome
from explorer.peaks import kept_peaks
from explorer.plan import JobPlan, Plan, Scalar, plan_of, read_plan, start_of
from explorer.recall import best_winner, existing_store, open_store
from explorer.result import JobResult, PlanResult, Progress
from explorer.runtime.process import boot
from explorer.search import drop_early
from explorer.settings import cache_dir
from explorer.turns import Callback, Clock, Run, prepare
from explorer.workload import Workload
from ir.errors import UsageError
from ir.schedule import Schedule
from ir.sources import OperatorLike

if TYPE_CHECKING:
    from explorer.replay import Recording

MEMORY = ":memory:"  # a store that nothing outlives


class Options(TypedDict, total=False):
    """What a plan of one job may say besides what is to be tuned, as `plan_one` has it."""

    target: str
    threads: int | None
    pins: Mapping[str, object] | None
    strategy: str
    seed: int
    model: str | Path | None
    start_from: str | Path | None
    baseline: bool
    devices: str
    memory: str | None


__all__ = [
    "JobResult",
    "PlanResult",
    "Progress",
    "export_best",
    "interrupted_run",
    "plan_one",
    "plan_replay",
    "resume",
    "run_beside_library",
    "run_plan",
    "run_schedule",
    "single",
    "tune",
    "tune_all",
]


def tune(
    operator: OperatorLike,
    arguments: Mapping[str, object],
    *,
    target: str = "cpu",
    trials: int | None = None,
    seconds: float | None = None,
    effort: str = "standard",
    threads: int | None = None,
    store: str | Path | None = None,
    pins: Mapping[str, object] | None = None,
    strategy: str = "evolutionary",
    seed: int = 0,
    batch: int = BATCH,
    model: str | Path | None = None,
    start_from: str | Path | None = None,
    replay: str | Path | None = None,
    baseline: bool = True,
    devices: str = FIRST,
    memory: str | None = None,
    workers: str | None = None,
    progress: Callback | None = None,
    clock: Clock = time.monotonic,
) -> JobResult:
    """Search for the fastest schedule of an operator on this machine.

    Stops after `trials` candidates or `seconds` of wall clock, with both whichever is first;
    without either as `effort` says ("quick", "standard" or "deep"). Every trial is committed to
    `store` before `progress` hears of it. `model` is a trained cost model to start with, "none", or
    (None) the one that the package ships for the target. The fastest schedules of the records in
    `start_from` are measured first. Unless `baseline` is false, the program is also measured in
    the target's array library, and again in turns with the finalists. `devices` names those that
    measure at a time, as "0,1" or "all"; `memory` is what operands lie in: "plain" (as numpy and
    torch allocate) or "huge". With `replay`, records answer instead of this machine, and nothing is
    stored; `operator` may then be the name of a kernel that another tuner recorded, or "-".
    With `workers`, the address of a Dask scheduler, its workers measure (docs/farm.md); of several
    kinds of them each is a job of its own, and the result is that of the fastest.
    A KeyboardInterrupt ends the search and keeps what is measured.
    Raises UsageError for wrong names and values, NothingValid, DeviceLost, StoreError, NoFarm.
    """
    budget = Budget.of(effort, trials, seconds, batch)
    plan, recordings = plan_replay(
        operator, arguments, budget, replay, target=target, threads=threads, pins=pins,
        strategy=strategy, seed=seed, model=model, start_from=start_from, baseline=baseline,
        devices=devices,
        memory=memory,
    )  # fmt: skip
    with machines_at(workers) as machines:
        found = run_plan(
            placed(plan, machines), store=store, progress=progress, clock=clock,
            recordings=recordings, machines=machines,
        )  # fmt: skip
    return single(found)


def tune_all(
    jobs: str | Path | Mapping[str, object],
    *,
    trials: int | None = None,
    seconds: float | None = None,
    effort: str | None = None,
    store: str | Path | None = None,
    workers: str | None = None,
    progress: Callback | None = None,
    clock: Clock = time.monotonic,
) -> PlanResult:
    """Search for the fastest schedules of several workloads under one budget.

    `jobs` is a TOML file or a mapping of the same form; numbers given here override its own. Each
    batch goes to the job that is expected to gain most (`explorer.allocation`). Raises as `tune`
    does, except that a job without a valid candidate stands among `missed`. With `workers`, as
    `tune` has it, each job becomes one for each kind of them.
    """
    given = {"trials": trials, "seconds": seconds, "effort": effort}
    plan = plan_of(jobs, **given) if isinstance(jobs, Mapping) else read_plan(Path(jobs), **given)
    with machines_at(workers) as machines:
        plan = placed(plan, machines)
        return run_plan(plan, store=store, progress=progress, clock=clock, machines=machines)


def resume(
    job: str | None = None,
    *,
    store: str | Path | None = None,
    operators: Sequence[str] = (),
    workers: str | None = None,
    progress: Callback | None = None,
    clock: Clock = time.monotonic,
) -> PlanResult:
    """Go on with the run that `job` (default: the newest interrupted one) belongs to.

    The search continues as if it had not been interrupted; its budget is what was left. Its
    programs are those that the store has; `operators` are files for jobs of older versions, which
    kept none. Raises UsageError where there is nothing to go on with, UnknownJob, and as `tune_all`
    does.
    """
    past = interrupted_run(job, store, operators)
    with machines_at(workers) as machines:
        return run_plan(
            past.plan, store=store, progress=progress, clock=clock, past=past, machines=machines
        )


@contextmanager
def machines_at(workers: str | None) -> Iterator[Machines | None]:
    """The farm at an address for as long as the context lasts; None without one. Raises NoFarm."""
    if workers is None:
        yield None
        return
    from explorer.farm.farm import Farm

    with Farm(workers) as farm:
        yield farm


def placed(plan: Plan, machines: Machines | None) -> Plan:
    """The plan as it is on these machines; raises NoFarm."""
    return plan if machines is None else machines.placed(plan)


def plan_one(
    operator: OperatorLike,
    arguments: Mapping[str, object],
    budget: Budget,
    *,
    target: str = "cpu",
    threads: int | None = None,
    pins: Mapping[str, object] | None = None,
    strategy: str = "evolutionary",
    seed: int = 0,
    model: str | Path | None = None,
    start_from: str | Path | None = None,
    baseline: bool = True,
    devices: str = FIRST,
    memory: str | None = None,
) -> Plan:
    """The plan of one job; raises UsageError for wrong names and values."""
    workload = Workload.of(operator, arguments, target, threads, memory)
    fixed = cast("tuple[tuple[str, Scalar], ...]", tuple((pins or {}).items()))
    job = JobPlan(
        workload.operator, workload.arguments, target, threads, fixed, strategy, seed,
        model=None if model is None else str(model),
        start_from=start_of(start_from),
        baseline=baseline,
        devices=devices,
        program=workload.given,
        memory=workload.memory,
    )  # fmt: skip
    return Plan((job,), budget)


def plan_replay(
    operator: OperatorLike | None,
    arguments: Mapping[str, object],
    budget: Budget,
    source: str | Path | None,
    **options: Unpack[Options],
) -> tuple[Plan, tuple[Recording, ...]]:
    """As `plan_one`, within what `source` holds of the workload, and what it holds, for `run_plan`.

    Of a kernel that another tuner recorded `operator` is the name, or "-", and `arguments` choose
    among several. What the records of a workload agree on is pinned. Without a source there is
    nothing recorded. Raises as `Recording.load` does.
    """
    recording = None
    if source is not None and (operator is None or isinstance(operator, str)):
        from explorer.recorded import recording_of

        recording = recording_of(operator, arguments, source)
    if recording is not None:
        return _plan_recorded(recording, budget, options)
    if operator is None:
        raise UsageError("Missing argument 'OPERATOR': these records are of operators; name one")
    plan = plan_one(operator, arguments, budget, **options)
    if source is None:
        return plan, ()
    from explorer.replay import Recording

    (job,) = plan.jobs
    recording = Recording.load(job.workload(), source)
    pins = {**recording.pins, **dict(job.pins)}
    return replace(plan, jobs=(replace(job, pins=tuple(pins.items())),)), (recording,)


def _plan_recorded(
    recording: Recording, budget: Budget, options: Options
) -> tuple[Plan, tuple[Recording, ...]]:
    """The plan of a kernel that no operator of ours is behind."""
    workload = recording.workload
    given = cast("dict[str, Scalar]", dict(options.get("pins") or {}))
    pins = {**recording.pins, **given}
    model = options.get("model")
    job = JobPlan(
        workload.operator, workload.arguments, workload.target, pins=tuple(pins.items()),
        strategy=options.get("strategy", "evolutionary"), seed=options.get("seed", 0),
        model=None if model is None else str(model),
        start_from=start_of(options.get("start_from")),
        baseline=False,
        program=workload.given,
    )  # fmt: skip
    return Plan((job,), budget), (recording,)


def interrupted_run(
    job: str | None, store: str | Path | None = None, operators: Sequence[str] = ()
) -> Interrupted:
    """What the store has of the run that `job` (default: the newest interrupted) belongs to."""
    with existing_store(store) as records:
        return find_interrupted(records, job, operators)


def run_plan(
    plan: Plan,
    *,
    store: str | Path | None = None,
    progress: Callback | None = None,
    clock: Clock = time.monotonic,
    past: Interrupted | None = None,
    peaks: Sequence[Mapping[str, float]] = (),
    recordings: Sequence[Recording] = (),
    workloads: Sequence[Workload] = (),
    machines: Machines | None = None,
) -> PlanResult:
    """Do what a plan says, or with `past` go on with it; raises as `tune_all` does.

    `workloads` are those of the plan where they were prepared before. `peaks` (of the machine, for
    each job) are kept with the jobs for reports. `recordings` (one for each job, see
    `plan_replay`) answer instead of this machine; then nothing is stored. With `machines` it is
    these that measure.
    """
    if recordings and machines is not None:
        raise UsageError("a replayed search measures nothing: name no workers, or do not replay")
    if recordings and (store is not None or past is not None):
        raise UsageError("a replayed search stores nothing: name no store, or do not replay")
    if not recordings and machines is None:
        for target in {job.target for job in plan.jobs}:
            boot(target, cache_dir())  # beside what follows here
    # What is wrong is said before the store is touched.
    found = tuple(workloads) or prepare(plan, recordings, past, machines)
    try:
        with open_store(MEMORY if recordings else store) as records:
            run = Run(plan, found, records, progress, clock, past, peaks, recordings, machines)
            told = run.result()
        if not recordings and machines is None:
            leave_ready(told)
        return told
    finally:
        drop_early()


def leave_ready(found: PlanResult) -> None:
    """Have what was found in the cache, loaded in milliseconds by whoever asks for it."""
    with suppress(KeyboardInterrupt):  # what was found is told all the same
        for result in found.results if not found.interrupted else ():
            result.winner.keep()


def single(found: PlanResult) -> JobResult:
    """The result of a plan's only workload, on the fastest machines; raises NothingValid if there
    is none."""
    if not found.results:
        raise NothingValid(found.missed[0][1])
    return min(found.results, key=lambda result: result.seconds)


def run_schedule(workload: Workload, schedule: Schedule, *, cache: Path | None = None) -> Outcome:
    """Rebuild, check and time one schedule; its hot-loop spills are noted as `spills`."""
    return _run(workload, schedule, cache, False)[0]


def run_beside_library(
    workload: Workload, schedule: Schedule, *, cache: Path | None = None
) -> tuple[Outcome, Baseline]:
    """As `run_schedule`, in turns with the target's array library."""
    outcome, baseline = _run(workload, schedule, cache, True)
    return outcome, baseline or Baseline(why="there was no turn for it")


def _run(
    workload: Workload, schedule: Schedule, cache: Path | None, library: bool
) -> tuple[Outcome, Baseline | None]:
    from explorer.runtime.once import spills_once

    workload.refuse_illegal(schedule)
    workload.refuse_unmeasurable()
    where = cache or cache_dir()
    program, hardware = workload.program, workload.hardware
    peaks = kept_peaks(hardware, where)
    with Measurer(
        program, workload.target, hardware, cache_dir=where, library=library, peaks=peaks,
        memory=workload.memory,
    ) as measurer:  # fmt: skip
        (outcome,) = measurer.compete([schedule], ROUNDS, library=library)
        baseline = measurer.baseline
    if outcome.ok:
        kernel = workload.backend.lower(program, schedule, hardware)
        spills = spills_once(kernel, cache_dir=where)
        outcome = replace(outcome, notes=(*outcome.notes, ("spills", spills)))
    return outcome, baseline


def export_best(
    workload: Workload,
    folder: Path,
    *,
    schedule: Schedule | None = None,
    seconds: float | None = None,
    store: str | Path | None = None,
    name: str | None = None,
) -> Sequence[Path]:
    """Export a schedule (by default the best record's) to `folder`; returns the files."""
    from explorer.exporter import export, refuse_name

    workload.program.refuse_void()
    refuse_name(workload.target, workload.program.name, name)

    if schedule is None:
        winner = best_winner(workload, store)
        schedule, seconds = winner.schedule, winner.seconds
    workload.refuse_illegal(schedule)
    facts = {
        "operator": workload.operator,
        "arguments": dict(workload.arguments),
        "schedule": json.loads(schedule.to_json()),
        "seconds": seconds,
        "hardware": workload.hardware.key,
        "memory": workload.memory,
        "isa": list(workload.hardware.isa),
        "generator": workload.backend.generator,
    }
    kernel = workload.kernel(schedule)
    return export(kernel, facts, folder, name=name, cache_dir=cache_dir())
