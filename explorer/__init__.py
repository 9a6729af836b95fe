"""Search jobs from Python: tune, resume, explore, explain, report, best, export.

Nothing heavy loads with the package. Extents and options of an operator are keywords:
`tune("matmul", m=512, n=512, k=512)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from explorer.explanation import Explanation
    from explorer.result import JobResult, PlanResult, Progress
    from explorer.search import Search
    from explorer.workload import Workload
    from ir.schedule import Schedule
    from records import Record, Store

__all__ = [
    "best",
    "explain",
    "explore",
    "export",
    "load",
    "resume",
    "tune",
    "tune_all",
    "write_report",
]


def tune(
    operator: str,
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
    model: str | Path | None = None,
    start_from: str | Path | None = None,
    replay: str | Path | None = None,
    baseline: bool = True,
    progress: Callable[[Progress], None] | None = None,
    **arguments: Any,
) -> JobResult:
    """Find the fastest schedule of an operator, on this machine or among recorded measurements."""
    from explorer import job

    return job.tune(
        operator,
        arguments,
        target=target,
        trials=trials,
        seconds=seconds,
        effort=effort,
        threads=threads,
        store=store,
        pins=pins,
        strategy=strategy,
        seed=seed,
        model=model,
        start_from=start_from,
        replay=replay,
        baseline=baseline,
        progress=progress,
    )


def tune_all(
    jobs: str | Path | Mapping[str, object],
    *,
    trials: int | None = None,
    seconds: float | None = None,
    effort: str | None = None,
    store: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> PlanResult:
    """Find the fastest schedules of several workloads under one budget.

    `jobs` is a TOML file or a mapping of the same form (docs/jobs.md).
    """
    from explorer import job

    return job.tune_all(
        jobs, trials=trials, seconds=seconds, effort=effort, store=store, progress=progress
    )


def resume(
    job: str | None = None,
    *,
    store: str | Path | None = None,
    operators: Sequence[str] = (),
    progress: Callable[[Progress], None] | None = None,
) -> PlanResult:
    """Go on with an interrupted job (by default the newest) as if nothing had happened.

    `operators` are files with the operators of records of older versions, which kept no programs.
    """
    from explorer.job import resume

    return resume(job, store=store, operators=operators, progress=progress)


def load(
    operator: str, *, target: str = "cpu", threads: int | None = None, **arguments: Any
) -> Workload:
    """A workload: its `program`, `space()` and `kernel(schedule)`."""
    from explorer.workload import Workload

    return Workload.of(operator, arguments, target, threads)


def explore(workload: Workload, store: Store, **options: Any) -> Search:
    """A search by hand, as a context: `step(n)` measures and records, `finals()` decides."""
    from explorer.search import Search

    return Search(workload, store, **options)


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
) -> None:
    """Write a self-contained HTML page about a job (by default the newest).

    `operators` as for `resume`.
    """
    from explorer.recall import existing_store
    from explorer.report.page import render
    from explorer.story import read_story

    with existing_store(store) as records:
        page = render(read_story(records, job, operators))
    Path(path).write_text(page, encoding="utf-8")


def best(
    operator: str,
    *,
    target: str = "cpu",
    threads: int | None = None,
    store: str | Path | None = None,
    **arguments: Any,
) -> Record:
    """The best record of a workload on this machine; raises NothingValid."""
    from explorer.recall import best_record

    return best_record(load(operator, target=target, threads=threads, **arguments), store)


def export(
    operator: str,
    folder: str | Path,
    *,
    target: str = "cpu",
    threads: int | None = None,
    store: str | Path | None = None,
    name: str | None = None,
    **arguments: Any,
) -> Sequence[Path]:
    """Export the best record of a workload as files that need no Tilewright; returns them.

    Files and the function in them are called `name`, by default as the operator is. Linkers see
    that name, or the operator's with a hash of the kernel.
    """
    from explorer.job import export_best

    workload = load(operator, target=target, threads=threads, **arguments)
    return export_best(workload, Path(folder), store=store, name=name)
