"""What a search of one job or several found, as lines for people and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from explorer.cli.app import milliseconds, print_json
from explorer.cli.baseline import result_facts, result_lines
from explorer.cli.replayed import rank_words, recorded_facts

if TYPE_CHECKING:
    from explorer.replay import Recording
    from explorer.result import JobResult, PlanResult


def print_text(found: PlanResult, result: JobResult, recording: Recording | None) -> None:
    """One job's result in lines."""
    from explorer.cli.progress import crowded, speed

    counts = ", ".join(f"{n} {status}" for status, n in result.outcomes)
    known = f"; {result.known} were known before" if result.known else ""
    outcomes = f" ({counts})" if counts else ""
    if len(found.plan.jobs) > 1:
        print(f"{found.plan.jobs[result.number].title}: {result.trials} trials{outcomes}{known}")
    else:
        print(f"{result.trials} trials in {result.elapsed:.1f} s{outcomes}{known}")
    noise = "" if result.noise is None else f", quartiles {100 * result.noise:.1f} % apart"
    print(f"{speed(result.seconds, result.program)}{noise}{crowded(result.crowd)}")
    for line in (*_placed(result), *result_lines(result)):
        print(line)
    if recording is not None:
        print(rank_words(recording, result.seconds))
    print(f"schedule {result.best.to_json()}", flush=True)
    if recording is None:  # a replay leaves no job that a name could be used for
        print(f"job {result.job}", flush=True)


def _placed(result: JobResult) -> tuple[str, ...]:
    """What was timed: calls or the kernel alone, and what the operands lay in."""
    placed = result.workload.placed
    if result.kernel_seconds is None:
        return (f"the kernel alone, in {placed}",) if placed else ()
    alone = milliseconds(result.kernel_seconds)
    return (f"as its export is called, in {placed}; the kernel alone {alone}",)


def print_end(found: PlanResult, files: dict[int, tuple[str, ...]]) -> None:
    """What several jobs share, what was written, and which found nothing."""
    if len(found.plan.jobs) > 1:
        print(f"{found.trials} trials in {found.elapsed:.1f} s")
    for name in (name for names in files.values() for name in names):
        print(f"wrote {name}")
    for number, why in found.missed:
        print(f"tilewright: {found.plan.jobs[number].title}: {why}", file=sys.stderr)


def print_interrupted(
    found: PlanResult, records: str | None, workers: str | None, resumable: bool
) -> None:
    """That it ended early, and how it is gone on with."""
    where = f" --records {records}" if records else ""
    where += f" --workers {workers}" if workers else ""
    again = f"`tilewright tune --resume {found.results[0].job}{where}` goes on from it"
    kept = f"; what was measured is kept, {again}" if resumable else ""
    print(f"tilewright: interrupted{kept}", file=sys.stderr)


def print_found(
    found: PlanResult, files: dict[int, tuple[str, ...]], recordings: Sequence[Recording]
) -> None:
    """One job's result as it stands; of several a list, with what they share."""
    rows = [_row(result, files[result.number]) for result in found.results]
    for row, result in zip(rows, found.results, strict=True) if recordings else ():
        row["recorded"] = recorded_facts(recordings[result.number], result.seconds)
    if len(found.plan.jobs) == 1:
        print_json(rows[0])
        return
    missed = [{"job": found.plan.jobs[number].title, "why": why} for number, why in found.missed]
    shared = {"trials": found.trials, "elapsed": found.elapsed, "interrupted": found.interrupted}
    print_json({"jobs": rows, "missed": missed} | shared)


def _row(result: JobResult, files: tuple[str, ...]) -> dict[str, Any]:
    return {
        "job": result.job,
        "program": result.program.name,
        "seconds": result.seconds,
        "kernel_seconds": result.kernel_seconds,
        "memory": result.workload.memory,
        "gflops": result.gflops,
        "trials": result.trials,
        "known": result.known,
        "resumed": result.resumed,
        "outcomes": dict(result.outcomes),
        "noise": result.noise,
        "foreign_load": result.foreign_load,
        "crowded": result.crowd is not None,
        "elapsed": result.elapsed,
        "interrupted": result.interrupted,
        "schedule": json.loads(result.best.to_json()),
        "model": asdict(result.model),
        "files": files,
    } | result_facts(result)
