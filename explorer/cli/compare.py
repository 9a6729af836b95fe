"""tilewright compare: two schedules, jobs or exports, by their decisions and by their times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.app import (
    Format,
    Memory,
    OutputFormat,
    Records,
    Target,
    Threads,
    Words,
    app,
    arguments_of,
    examples,
    milliseconds,
    operator_starts,
    print_json,
)

if TYPE_CHECKING:
    from explorer.contrast import Change, Contrast, Side
    from explorer.outcome import Outcome
    from explorer.workload import Workload

_WHAT = "a job, the folder of an export, a schedule as JSON or @FILE, or best"
First = Annotated[str, typer.Argument(metavar="A", help=_WHAT)]
Second = Annotated[str, typer.Argument(metavar="B", help="what to compare it with, as A")]
Operator = Annotated[
    str | None,
    typer.Argument(
        metavar="[OPERATOR]", help="of what A or B are schedules", autocompletion=operator_starts
    ),
]
Measured = Annotated[
    bool | None,
    typer.Option(
        "--measure/--no-measure",
        help="time both in turns on this machine; default: unless A or B is a job",
    ),
]


@app.command(
    epilog=examples(
        "tilewright compare JOB JOB",
        "tilewright compare kernel other",
        "tilewright compare best @schedule.json matmul m=512 n=512 k=512",
        "tilewright compare kernel JOB --measure",
    )
)
def compare(
    first: First,
    second: Second,
    operator: Operator = None,
    words: Words = None,
    measure: Measured = None,
    target: Target = "cpu",
    threads: Threads = None,
    memory: Memory = None,
    records: Records = None,
    form: OutputFormat = Format.text,
) -> None:
    """Tell how two schedules, jobs or exports differ, and which is faster.

    Exports and schedules of one workload are built again and measured in turns on this machine; of
    jobs the records are compared. Ends with 0 whichever is faster, with 3 if a kernel is not right.
    """
    from explorer.contrast import contrast, find_side, in_turns

    workload = _workload(operator, words, target, threads, memory)
    one, other = (find_side(name, workload, records) for name in (first, second))
    wanted = "job" not in (one.kind, other.kind) if measure is None else measure
    found = contrast(one, other, in_turns if wanted else None)
    if form is Format.json:
        print_json(_as_json(found))
    else:
        _print_text(found)


def _workload(
    operator: str | None,
    words: list[str] | None,
    target: str,
    threads: int | None,
    memory: str | None,
) -> Workload | None:
    from explorer.workload import Workload

    where = (target, threads, memory)
    if operator is None:
        return None
    return Workload.of(operator, arguments_of(operator, words), *where)


def _print_text(found: Contrast) -> None:
    for letter, side in (("A", found.first), ("B", found.second)):
        print(f"{letter}  {side.name}: {_words(side.workload)}; {_recorded(side)}")
    for what, rows in (("asked", found.asked), ("decisions", found.decisions)):
        if rows:
            print(f"{what} that differ" if what == "decisions" else "asked differently")
            for row in rows:
                print(f"  {_change(row)}")
    if not found.decisions:
        print("the same schedule")
    if found.measured is not None:
        for letter, outcome in zip("AB", found.measured, strict=True):
            print(f"{letter}  measured in turns: {_time(outcome)}")
        for line in _doubts(found):
            print(f"warning: {line}")
    print(_verdict(found))


def _doubts(found: Contrast) -> Iterator[str]:
    """What stands between what was measured and what was asked for."""
    from explorer.disturbance import crowding, warning

    for side in (found.first, found.second):
        wrote, here = dict(side.asked).get("generator"), side.workload.backend.generator
        if wrote not in (None, here):
            yield f"{side.name} was made by generator {wrote}; measured is what {here} makes of it"
    shares = [crowding(outcome) for outcome in found.measured or ()]
    said = warning(max((share for share in shares if share is not None), default=None))
    if said:
        yield said


def _words(workload: Workload) -> str:
    """The workload as the command line takes it."""
    told = (f"{name}={json.dumps(value).strip(chr(34))}" for name, value in workload.arguments)
    return " ".join((workload.operator, *told, "on", workload.target))


def _recorded(side: Side) -> str:
    outcome, record = side.recorded, side.record
    if outcome is None or record is None:
        return "no record of it"
    return f"{_time(outcome)} on record, {record.created[:10]}, {record.hardware}"


def _time(outcome: Outcome) -> str:
    """A median and its noise."""
    seconds = outcome.seconds or 0.0
    if outcome.quartiles is None:
        return milliseconds(seconds)
    low, high = outcome.quartiles
    return f"{milliseconds(seconds)}, quartiles {100 * (high - low) / seconds:.1f} % apart"


def _change(row: Change) -> str:
    name, first, second = row
    return f"{name}: A {_shown(first)}, B {_shown(second)}"


def _shown(value: object) -> str:
    """None is what one of them does not have; "" is a decision that chooses nothing."""
    return "has none" if value is None else json.dumps(value)


def _verdict(found: Contrast) -> str:
    if found.verdict is None:
        why = "no records of both on one machine" if found.alike else "different workloads"
        return f"which is faster is not known: {why}"
    return f"A is {found.verdict.words}"


def _as_json(found: Contrast) -> dict[str, Any]:
    verdict = found.verdict
    return {
        "a": _side(found.first),
        "b": _side(found.second),
        "decisions": [_row(row) for row in found.decisions],
        "asked": [_row(row) for row in found.asked],
        "measured": None
        if found.measured is None
        else [json.loads(outcome.to_json()) for outcome in found.measured],
        "verdict": None if verdict is None else verdict.to_facts(),
    }


def _side(side: Side) -> dict[str, Any]:
    outcome = side.recorded
    return {
        "name": side.name,
        "kind": side.kind,
        "operator": side.workload.operator,
        "arguments": dict(side.workload.arguments),
        "target": side.workload.target,
        "schedule": json.loads(side.schedule.to_json()),
        "recorded": None if outcome is None else json.loads(outcome.to_json()),
    }


def _row(row: Change) -> dict[str, object]:
    name, first, second = row
    return {"name": name, "a": first, "b": second}
