"""tilewright jobs: the jobs of a store, a line each; `jobs show JOB` tells one in full."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.app import (
    Format,
    OutputFormat,
    Records,
    examples,
    group,
    milliseconds,
    print_json,
)

if TYPE_CHECKING:
    from explorer.ledger import JobLine

jobs_app = group("jobs", "List jobs, or tell one.", invoke_without_command=True)


class State(StrEnum):
    """Where a job may be."""

    running = "running"
    done = "done"
    stopped = "stopped"
    failed = "failed"


OneState = Annotated[State | None, typer.Option(help="only jobs in this state")]


@jobs_app.callback(
    epilog=examples(
        "tilewright jobs",
        "tilewright jobs --state stopped",
        "tilewright jobs --format json",
    )
)
def jobs(
    context: typer.Context,
    state: OneState = None,
    records: Records = None,
    form: OutputFormat = Format.text,
) -> None:
    """List jobs with their state, workload, target, trials and best, the newest last.

    A stopped job, and a running one whose process is gone, can be gone on with: `tune --resume`.
    """
    if context.invoked_subcommand is not None:
        return
    from explorer.ledger import job_lines
    from explorer.recall import open_store, store_exists

    lines: tuple[JobLine, ...] = ()
    if store_exists(records):  # looking makes no store
        with open_store(records, read_only=True) as store:
            lines = job_lines(store, None if state is None else state.value)
    if form is Format.json:
        print_json({"jobs": [_row(line) for line in lines]})
        return
    for line in lines:
        print(_text(line))
    if not lines:
        print("no job yet; `tilewright tune` makes one" if state is None else f"no {state} job")


@jobs_app.command(
    epilog=examples("tilewright jobs show JOB", "tilewright jobs show JOB --format json")
)
def show(
    job: Annotated[str, typer.Argument(metavar="JOB", help="identifier or its first letters")],
    records: Records = None,
    form: OutputFormat = Format.text,
) -> None:
    """Tell what a job was asked, how it stands and what it found."""
    from explorer.ledger import job_line
    from explorer.recall import existing_store

    with existing_store(records) as store:
        line = job_line(store, job)
    if form is Format.json:
        print_json(_row(line) | _whole(line))
    else:
        _print_whole(line)


def _words(line: JobLine) -> str:
    """Operator and arguments as the command line takes them."""
    told = (
        f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in line.arguments.items()
    )
    return " ".join((line.job.operator, *told))


def _text(line: JobLine) -> str:
    seconds, rate = _seconds(line), line.gflops
    best = "nothing valid" if seconds is None else f"best {milliseconds(seconds)}"
    told = "" if rate is None else f", {rate:.1f} GFLOP/s"
    job = line.job
    moment = job.created[:16].replace("T", " ")
    return (
        f"{job.id}  {job.state:7}  {moment}  {_words(line)} on {job.target}: "
        f"{line.trials} trials, {best}{told}"
    )


def _seconds(line: JobLine) -> float | None:
    return None if line.best is None else line.best.seconds


def _row(line: JobLine) -> dict[str, Any]:
    job = line.job
    return {
        "job": job.id,
        "state": job.state,
        "operator": job.operator,
        "arguments": line.arguments,
        "target": job.target,
        "trials": line.trials,
        "outcomes": dict(line.outcomes),
        "best_seconds": _seconds(line),
        "settled": line.settled,
        "gflops": line.gflops,
        "created": job.created,
        "updated": job.updated,
    }


def _whole(line: JobLine) -> dict[str, Any]:
    """What the list does not tell."""
    best = line.best
    return {
        "options": line.options,
        "schedule": None if best is None else json.loads(best.schedule),
        "hardware": best.hardware if best is not None else line.options.get("hardware"),
    }


def _print_whole(line: JobLine) -> None:
    job, options, best = line.job, line.options, line.best
    print(_text(line))
    counts = ", ".join(f"{count} {status}" for status, count in line.outcomes)
    rows = {
        "outcomes": counts or "none",
        "machine": best.hardware if best is not None else options.get("hardware", ""),
        "strategy": f"{options.get('strategy', 'not told')}, seed {options.get('seed', 0)}",
        "budget": f"{options.get('trials', 'not told')} trials",
        "pins": json.dumps(options["pins"]) if options.get("pins") else "",
        "last seen": job.updated[:19].replace("T", " "),
        "schedule": "" if best is None else best.schedule,
    }
    for name, value in rows.items():
        if value:
            print(f"  {name:9}  {value}")
    if job.state in (State.stopped, State.running):
        print(f"  go on with `tilewright tune --resume {job.id}`")
