"""Search jobs from Python: tune, resume, explore, explain, report, best, kernel, export.

Nothing heavy loads with the package. An operator is given by its name, as itself, as a program or
as a function that returns one; its extents and options are keywords:
`tune("matmul", m=512, n=512, k=512)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from explorer.explanation import Explanation
    from explorer.result import JobResult, PlanResult, Progress
    from explorer.search import Search
    from explorer.serving import ServedKernel
    from explorer.shapes.result import FamilyResult, Step
    from explorer.torch_export import Backward
    from explorer.winner import Winner
    from explorer.workload import Workload
    from ir.schedule import Schedule
    from ir.sources import OperatorLike
    from records import Store

__all__ = [
    "Backward",
    "Explanation",
    "FamilyResult",
    "JobResult",
    "OperatorLike",
    "PlanResult",
    "Progress",
    "Search",
    "ServedKernel",
    "Winner",
    "Workload",
    "ask_with",
    "best",
    "explain",
    "explore",
    "export",
    "export_torch",
    "kernel",
    "load",
    "resume",
    "tune",
    "tune_all",
    "tune_range",
    "write_report",
]

_HOMES = {
    "Backward": "explorer.torch_export",
    "Explanation": "explorer.explanation",
    "FamilyResult": "explorer.shapes.result",
    "JobResult": "explorer.result",
    "OperatorLike": "ir.sources",
    "PlanResult": "explorer.result",
    "Progress": "explorer.result",
    "Search": "explorer.search",
    "ServedKernel": "explorer.serving",
    "Winner": "explorer.winner",
    "Workload": "explorer.workload",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'explorer' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def tune(
    operator: OperatorLike,
    *,
    target: str = "cpu",
    trials: int | None = None,
    seconds: float | None = None,
    effort: str = "standard",
    threads: int | None = None,
    memory: str | None = None,
    store: str | Path | None = None,
    pins: Mapping[str, object] | None = None,
    strategy: str = "evolutionary",
    seed: int = 0,
    model: str | Path | None = None,
    start_from: str | Path | None = None,
    replay: str | Path | None = None,
    baseline: bool = True,
    workers: str | None = None,
    progress: Callable[[Progress], None] | None = None,
    **arguments: Any,
) -> JobResult:
    """Find the fastest schedule of an operator, on this machine or among recorded measurements.

    `arguments` are the operator's own: extents, dtypes, options. The budget is `trials` candidates,
    `seconds` of wall clock, whichever is spent first, or else what `effort` stands for: "quick"
    (64 trials or 30 seconds), "standard" (256 trials), "deep" (1024). The result is called as the
    kernel that it has found: `result(a, b)`; its `seconds` are a median.

    `threads` are the kernel's (default: all that are allowed). `memory` is what operands lie in:
    "plain" (on a CPU the default: as numpy and torch allocate) or "huge". `store` is a path or a
    URL of records; `pins` fix decisions by name; `model` is a file with a cost model, or "none";
    `start_from` names records of the operator, whose best are measured first; `replay` a file of
    measurements that answers in place of the machine. `baseline` times the array library beside
    the winner. `progress` is called after every trial; a KeyboardInterrupt in it ends the search,
    which can be resumed. `workers` is the address of a Dask scheduler whose workers measure
    instead of this machine (docs/farm.md).

    Raises UsageError for arguments that do not fit, NothingValid where no candidate was right.
    """
    from explorer import job

    return job.tune(
        operator, arguments, target=target, trials=trials, seconds=seconds, effort=effort,
        threads=threads, memory=memory, store=store, pins=pins, strategy=strategy, seed=seed,
        model=model, start_from=start_from, replay=replay, baseline=baseline, workers=workers,
        progress=progress,
    )  # fmt: skip


def tune_range(
    operator: OperatorLike,
    *,
    target: str = "cpu",
    trials: int | None = None,
    seconds: float | None = None,
    effort: str = "standard",
    threads: int | None = None,
    memory: str | None = None,
    store: str | Path | None = None,
    pins: Mapping[str, object] | None = None,
    strategy: str = "evolutionary",
    seed: int = 0,
    model: str | Path | None = None,
    progress: Callable[[Step], None] | None = None,
    **arguments: Any,
) -> FamilyResult:
    """Find few schedules for all extents of a range: `tune_range("matmul", m=range(1, 2049), ...)`.

    A range may also be "1..2048", or a list of values. The trials are those of all extents that are
    measured. Afterwards `kernel`, `best` and `export` have a kernel for any extent in the range.
    """
    from explorer.budget import Budget
    from explorer.shapes.family import Family
    from explorer.shapes.plan import plan_family
    from explorer.shapes.tuning import tune_family

    family = Family.of(operator, arguments, target, threads, memory)
    plan = plan_family(
        family, Budget.of(effort, trials, seconds), strategy=strategy, seed=seed, pins=pins,
        model=model,
    )  # fmt: skip
    return tune_family(plan, store=store, tell=progress)


def tune_all(
    jobs: str | Path | Mapping[str, object],
    *,
    trials: int | None = None,
    seconds: float | None = None,
    effort: str | None = None,
    store: str | Path | None = None,
    workers: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> PlanResult:
    """Find the fastest schedules of several workloads under one budget.

    `jobs` is a TOML file or a mapping of the same form (docs/jobs.md), whose operators may be
    given as to `tune`, and so may `workers`. What is said here of `trials`, `seconds` and `effort`
    comes before what the file says. A job that found nothing is among the result's `missed`, with
    the reason. Raises UsageError for a file that is not of this form.
    """
    from explorer import job

    return job.tune_all(
        jobs,
        trials=trials,
        seconds=seconds,
        effort=effort,
        store=store,
        workers=workers,
        progress=progress,
    )


def resume(
    job: str | None = None,
    *,
    store: str | Path | None = None,
    operators: Sequence[str] = (),
    workers: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> PlanResult:
    """Go on with an interrupted job (by default the newest) as if nothing had happened.

    `operators` are files with the operators of records of older versions, which kept no programs.
    `workers` as for `tune`: those of the job's hardware go on with it.
    """
    from explorer.job import resume

    return resume(job, store=store, operators=operators, workers=workers, progress=progress)


def load(
    operator: OperatorLike,
    *,
    target: str = "cpu",
    threads: int | None = None,
    memory: str | None = None,
    **arguments: Any,
) -> Workload:
    """A workload: its `program`, `space()` and `kernel(schedule)`. Nothing is searched.

    Raises UsageError for arguments that the operator does not take, or that do not fit.
    """
    from explorer.workload import Workload

    return Workload.of(operator, arguments, target, threads, memory)


def explore(
    operator: OperatorLike | Workload,
    store: Store,
    *,
    target: str = "cpu",
    threads: int | None = None,
    strategy: str = "evolutionary",
    trials: int | None = 256,
    pins: Mapping[str, object] | None = None,
    seed: int = 0,
    model: str | Path | None = None,
    baseline: bool = False,
    **arguments: Any,
) -> Search:
    """A search by hand, as a context: `step(n)` measures and records, `finals()` decides.

    Of an operator with its arguments, or of a workload that `load` gave. `trials` is what the
    strategy may count on; it ends nothing.
    """
    from explorer.search import Search
    from explorer.workload import Workload
    from ir.errors import UsageError

    if not isinstance(operator, Workload):
        operator = Workload.of(operator, arguments, target, threads)
    elif arguments or threads is not None or target not in ("cpu", operator.target):
        raise UsageError("a workload has its target, threads and arguments: give them to `load`")
    return Search(
        operator, store, strategy=strategy, trials=trials, pins=pins, seed=seed, model=model,
        baseline=baseline,
    )  # fmt: skip


def explain(
    workload: Workload, schedule: Schedule, *, store: str | Path | None = None
) -> Explanation:
    """What a schedule's decisions mean, why it is refused, how it did beside its neighbours."""
    from explorer.explanation import explain_known

    return explain_known(workload, schedule, store)


def write_report(
    path: str | Path,
    job: str | None = None,
    *,
    store: str | Path | None = None,
    operators: Sequence[str] = (),
    run: bool = False,
    disassembly: bool = True,
) -> None:
    """Write a self-contained HTML page about a job (by default the newest), or about its whole
    `run`.

    `operators` as for `resume`. With `disassembly` the best kernel's machine code is on the page,
    if this machine can make it again.
    """
    from explorer.recall import existing_store
    from explorer.report.disassembly import disassembled
    from explorer.report.page import render, render_run
    from explorer.story import read_story, run_stories

    with existing_store(store) as records:
        if run:
            stories = run_stories(records, job, operators)
        else:
            stories = [read_story(records, job, operators)]
    told = [(story, disassembled(story) if disassembly else None) for story in stories]
    page = render_run(told) if run else render(*told[0])
    Path(path).write_text(page, encoding="utf-8")


def best(
    operator: OperatorLike,
    *,
    target: str = "cpu",
    threads: int | None = None,
    memory: str | None = None,
    store: str | Path | None = None,
    **arguments: Any,
) -> Winner:
    """The best kernel that is recorded of a workload on this machine; raises NothingValid.

    It has the `schedule` and its `seconds`, a median, and is called as the kernel. Records count
    that were made on hardware of this kind, with as many threads and the same kind of memory.
    """
    from explorer.recall import best_winner

    return best_winner(
        load(operator, target=target, threads=threads, memory=memory, **arguments), store
    )


def kernel(
    operator: OperatorLike,
    *arrays: Any,
    missing: str | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    effort: str | None = None,
    target: str | None = None,
    threads: int | None = None,
    memory: str | None = None,
    store: str | Path | None = None,
    refresh: bool = False,
    **arguments: Any,
) -> ServedKernel:
    """The best recorded kernel of a workload as a function of arrays, loaded within milliseconds.

    `kernel("matmul", m=512, n=512, k=512)(a, b)`, or by example: `kernel("matmul", a, b)` finds
    extents and dtypes that fit the inputs. It is looked up once in a process; `refresh` takes what
    was recorded since. Where nothing is recorded, `missing` says what to do: "error" raises
    NothingValid with the command that would tune it; "tune" tunes it now, with the budget of
    `trials`, `seconds` or `effort`; "background" tunes it in another process, while the cheapest
    seed, checked, serves, and takes its place when that is done. What is not said is as `ask_with`
    has it. Threads may ask and call at the same time.
    """
    from explorer import serving

    return serving.kernel(
        operator,
        arrays,
        arguments,
        refresh=refresh,
        missing=missing,
        trials=trials,
        seconds=seconds,
        effort=effort,
        target=target,
        threads=threads,
        memory=memory,
        store=store,
    )


def ask_with(
    *,
    missing: str = "error",
    trials: int | None = None,
    seconds: float | None = None,
    effort: str = "standard",
    target: str | None = None,
    threads: int | None = None,
    memory: str | None = None,
    store: str | Path | None = None,
) -> AbstractContextManager[None]:
    """How kernels are asked for from now on, in all threads, where nothing else is said.

    For `kernel`, and for operators that are called on arrays. As a context, until it ends.
    """
    from explorer import serving

    return serving.ask_with(
        missing=missing,
        trials=trials,
        seconds=seconds,
        effort=effort,
        target=target,
        threads=threads,
        memory=memory,
        store=store,
    )


def export(
    operator: OperatorLike,
    folder: str | Path,
    *,
    target: str = "cpu",
    threads: int | None = None,
    memory: str | None = None,
    store: str | Path | None = None,
    name: str | None = None,
    **arguments: Any,
) -> Sequence[Path]:
    """Export the best recorded kernel as files that need no Tilewright; returns them.

    Files and the function in them are called `name`, by default as the operator is. Linkers see
    that name, or the operator's with a hash of the kernel. An argument with several values, as
    `m=[64, 128]`, `m=range(1, 9)` or "1..8", makes one library with the kernel of each. Raises
    NothingValid where nothing is recorded, ExportError where the folder cannot be written; files
    appear together or not at all.
    """
    from explorer.job import export_best
    from explorer.shapes.extents import parted

    if parted(arguments)[1]:
        from explorer.shapes.exporting import export_family
        from explorer.shapes.family import Family

        family = Family.of(operator, arguments, target, threads, memory)
        return export_family(family, Path(folder), store=store, name=name)

    workload = load(operator, target=target, threads=threads, memory=memory, **arguments)
    return export_best(workload, Path(folder), store=store, name=name)


def export_torch(
    operator: OperatorLike,
    folder: str | Path,
    *,
    backward: Sequence[Backward] = (),
    target: str = "cpu",
    threads: int | None = None,
    memory: str | None = None,
    store: str | Path | None = None,
    name: str | None = None,
    build: bool = False,
    **arguments: Any,
) -> Sequence[Path]:
    """Export the best recorded kernel as a package whose function is an operator of torch.

    `backward` are the operators that compute its gradients, of whose kernels the best recorded go
    along. An argument with several values makes one operator with the kernel of each, as in
    `export`. The package needs torch and no Tilewright; returns its files. With `build` its
    operators are built in C++ at once, for the torch of this Python. Raises NothingValid where
    nothing is recorded of one of them, ExportError where their tensors do not fit together, or
    where they cannot be built.
    """
    from explorer.shapes.extents import parted
    from explorer.torch_export import export_package, export_package_family

    if parted(arguments)[1]:
        from explorer.shapes.family import Family

        family = Family.of(operator, arguments, target, threads, memory)
        return export_package_family(
            family, Path(folder), backward=backward, store=store, name=name, build=build
        )
    workload = load(operator, target=target, threads=threads, memory=memory, **arguments)
    return export_package(
        workload, Path(folder), backward=backward, store=store, name=name, build=build
    )
