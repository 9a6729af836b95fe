"""tilewright run: rebuild one schedule's very kernel, check it and time it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli import EXIT_DONE, EXIT_NOTHING
from explorer.cli.app import (
    Format,
    Memory,
    OperatorName,
    OutputFormat,
    Records,
    ScheduleText,
    Target,
    Threads,
    Words,
    app,
    examples,
    milliseconds,
    print_json,
    read_schedule,
    workload_of,
)
from explorer.cli.baseline import beside_words

if TYPE_CHECKING:
    from explorer.outcome import Outcome
    from ir.program import Program


@app.command(
    epilog=examples(
        "tilewright run matmul m=512 n=512 k=512",
        "tilewright run matmul m=512 n=512 k=512 --baseline",
        "tilewright run matmul m=512 n=512 k=512 --schedule @schedule.json",
    ),
)
def run(
    operator: OperatorName,
    words: Words = None,
    schedule: ScheduleText = "",
    target: Target = "cpu",
    threads: Threads = None,
    memory: Memory = None,
    records: Records = None,
    baseline: Annotated[
        bool, typer.Option("--baseline", help="time the target's array library in turns with it")
    ] = False,
    form: OutputFormat = Format.text,
) -> int:
    """Rebuild, check and time one schedule.

    Counts register spills in hot loops too. Ends with code 3 if the kernel is not right.
    """
    from explorer.job import run_beside_library, run_schedule
    from explorer.recall import best_winner

    workload = workload_of(operator, words, target, threads, records, "run", memory)
    chosen = read_schedule(schedule) if schedule else best_winner(workload, records).schedule
    if baseline:
        outcome, library = run_beside_library(workload, chosen)
    else:
        outcome, library = run_schedule(workload, chosen), None
    if form is Format.json:
        found = json.loads(outcome.to_json()) | {"schedule": json.loads(chosen.to_json())}
        print_json(found | ({} if library is None else {"baseline": library.to_facts()}))
    else:
        _print_text(outcome, workload.program)
        if library is not None and outcome.ok:
            print(beside_words(outcome, library))
    return EXIT_DONE if outcome.ok else EXIT_NOTHING


def _print_text(outcome: Outcome, program: Program) -> None:
    from explorer.cli.progress import crowded, rate
    from explorer.disturbance import crowd_of
    from explorer.outcome import KERNEL

    if outcome.seconds is None or not outcome.ok:
        print(f"{outcome.status}: {outcome.detail}")
        return
    low, high = outcome.quartiles or (outcome.seconds, outcome.seconds)
    print(
        f"ok: {milliseconds(outcome.seconds)} (quartiles {milliseconds(low)} and "
        f"{milliseconds(high)}), {rate(outcome.seconds, program)}{crowded(crowd_of(outcome))}"
    )
    alone = dict(outcome.notes).get(KERNEL)
    if alone is not None:
        print(f"as its export is called; the kernel alone {milliseconds(float(alone))}")
    total = sum(seconds for _, seconds in outcome.parts)
    for name, seconds in outcome.parts:
        print(f"  {name}: {milliseconds(seconds)}, {seconds / total:.0%}")
    print(f"register spills in hot loops: {dict(outcome.notes).get('spills', 'not known')}")
