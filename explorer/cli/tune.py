"""tilewright tune: a search job with progress lines, ending in the best schedule, exported."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli import EXIT_DONE, EXIT_INTERRUPTED
from explorer.cli.app import (
    Format,
    OperatorName,
    OutputFormat,
    Pins,
    Records,
    Target,
    Threads,
    Words,
    app,
    milliseconds,
    pairs,
    print_json,
)
from ir.errors import UsageError

if TYPE_CHECKING:
    from explorer.job import JobResult, Progress

LINE_EVERY = 32
TERA = 10_000  # GFLOP/s from which they are told in thousands
Seconds = Annotated[float | None, typer.Option(help="wall-clock budget of the search")]
Effort = Annotated[str, typer.Option(help="budget by name: quick, standard or deep")]
Strategy = Annotated[str, typer.Option(help="evolutionary, annealing, random or exhaustive")]
Model = Annotated[
    str | None, typer.Option(help="cost model to start with: a file, or none; default: our own")
]
Out = Annotated[Path | None, typer.Option(help="folder to export the best kernel to")]


@app.command()
def tune(
    operator: OperatorName,
    words: Words = None,
    target: Target = "cpu",
    trials: Annotated[int | None, typer.Option(help="candidates to measure")] = None,
    seconds: Seconds = None,
    effort: Effort = "standard",
    threads: Threads = None,
    pin: Pins = None,
    strategy: Strategy = "evolutionary",
    seed: Annotated[int, typer.Option(min=0, help="of the search's random choices")] = 0,
    model: Model = None,
    records: Records = None,
    out: Out = None,
    form: OutputFormat = Format.text,
) -> int:
    """Search for the fastest kernel of an operator.

    Every trial is recorded before it is shown. The same command goes on where an earlier one
    ended; Ctrl-C keeps what is measured.
    """
    from explorer import job
    from explorer.workload import Workload

    _refuse_folder(out)
    arguments = pairs(words)
    text = form is Format.text
    result = job.tune(
        operator,
        arguments,
        target=target,
        trials=trials,
        seconds=seconds,
        effort=effort,
        threads=threads,
        store=records,
        pins=pairs(pin, "pin"),
        strategy=strategy,
        seed=seed,
        model=model,
        progress=_Lines(job.Budget.of(effort, trials, seconds, 1).trials).show if text else None,
    )
    if text:
        _print_text(result)
    files: tuple[str, ...] = ()
    if out is not None:
        workload = Workload.of(operator, arguments, target, threads)
        written = job.export_best(workload, out, schedule=result.best, seconds=result.seconds)
        files = tuple(str(path) for path in written)
    if text:
        _print_end(files, result.interrupted)
    else:
        _print_json(result, files)
    return EXIT_INTERRUPTED if result.interrupted else EXIT_DONE


def _refuse_folder(out: Path | None) -> None:
    """Raises UsageError now for what would fail after the search."""
    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"--out {out}: a file is in the way; name a folder")


class _Lines:
    """A line when the best improves, and every few trials."""

    def __init__(self, trials: int) -> None:
        self._trials = trials
        self._best: float | None = None
        self._failed: Counter[str] = Counter()

    def show(self, progress: Progress) -> None:
        if not progress.outcome.ok:
            self._failed[progress.outcome.status] += 1
        best = progress.best_seconds
        improved = best is not None and (self._best is None or best < self._best)
        if improved or progress.trial % LINE_EVERY == 0:
            self._best = best
            print(
                f"{progress.elapsed:6.1f} s  trial {progress.trial:4d} of {self._trials}  "
                f"{_speed(best, progress.flops)}{self._failures()}",
                flush=True,
            )

    def _failures(self) -> str:
        counts = ", ".join(f"{n} {status}" for status, n in self._failed.most_common())
        return f"  ({counts})" if counts else ""


def _speed(seconds: float | None, flops: int) -> str:
    if seconds is None:
        return "nothing valid yet"
    rate = flops / seconds / 1e9
    shown = f"{rate / 1e3:.1f} TFLOP/s" if rate >= TERA else f"{rate:.1f} GFLOP/s"
    return f"best {milliseconds(seconds)}, {shown}"


def _print_text(result: JobResult) -> None:
    counts = ", ".join(f"{n} {status}" for status, n in result.outcomes)
    known = f"; {result.known} were known before" if result.known else ""
    outcomes = f" ({counts})" if counts else ""
    print(f"{result.trials} trials in {result.elapsed:.1f} s{outcomes}{known}")
    print(_speed(result.seconds, result.program.flops))
    print(f"schedule {result.best.to_json()}", flush=True)


def _print_end(files: tuple[str, ...], interrupted: bool) -> None:
    for name in files:
        print(f"wrote {name}")
    if interrupted:
        again = "what was measured is kept, and the same command goes on from it"
        print(f"tilewright: interrupted; {again}", file=sys.stderr)


def _print_json(result: JobResult, files: tuple[str, ...]) -> None:
    print_json(
        {
            "job": result.job,
            "program": result.program.name,
            "seconds": result.seconds,
            "gflops": result.gflops,
            "trials": result.trials,
            "known": result.known,
            "outcomes": dict(result.outcomes),
            "elapsed": result.elapsed,
            "interrupted": result.interrupted,
            "schedule": json.loads(result.best.to_json()),
            "files": files,
        }
    )
