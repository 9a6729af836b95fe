"""tilewright top: the best recorded kernel of every workload."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.app import (
    Format,
    OperatorFiles,
    OutputFormat,
    Records,
    app,
    examples,
    milliseconds,
    print_json,
)
from ir.printable import printable
from records.foreign import LONG_AGO

if TYPE_CHECKING:
    from records import Record, Store


@app.command(
    epilog=examples(
        "tilewright top",
        "tilewright top matmul --format json",
    ),
)
def top(
    operator: Annotated[
        str | None, typer.Argument(metavar="[OPERATOR]", help="only workloads of this operator")
    ] = None,
    records: Records = None,
    operators: OperatorFiles = None,
    form: OutputFormat = Format.text,
) -> None:
    """List the best record of every workload, machine and code generator."""
    from records import MEMORIES

    winners = _best(operator, records, operators or ())
    found = [_row(record, count, flops) for record, count, flops in winners]
    if form is Format.json:
        print_json({"records": found})
        return
    choosing = {row["target"] for row in found if row["memory"] != MEMORIES[0]}
    for row in found:
        extents = printable(" ".join(f"{name}={v}" for name, v in row["arguments"].items()))
        rate = f", {row['gflops']:.1f} GFLOP/s" if row["gflops"] else ""
        doubt = f" (crowded: {row['crowd']})" if row["crowd"] else ""
        title = f"{row['operator']} {extents}".rstrip()
        print(f"{title}: {milliseconds(row['seconds'])}{rate}{doubt}")
        when = "" if row["created"] == LONG_AGO else f", {row['created'][:10]}"
        where = row["hardware"]
        if row["target"] in choosing:
            where += f" in {row['memory']} memory"
        print(f"  of {row['trials']} trials on {where}{when}")


def _best(
    operator: str | None, records: str | None, operators: Sequence[str]
) -> list[tuple[Record, int, float | None]]:
    """The best record of each workload, the number of its trials, and its FLOPs where its program
    is to be had; raises NothingValid."""
    from explorer.errors import NothingValid
    from explorer.recall import address_of, best_of, open_store

    where = address_of(records)
    groups: dict[tuple[str, ...], list[Record]] = {}
    found = []
    if where.there:  # looking makes no store
        with open_store(where, read_only=True) as store:
            selected = store.records(operator=operator) if operator else store.records()
            for r in selected:
                groups.setdefault(
                    (r.workload, r.target, r.hardware, r.generator, r.memory), []
                ).append(r)
            for trials in groups.values():
                if record := best_of(trials):
                    found.append((record, len(trials), _flops(store, record, operators)))
    if not found:
        what = f"of {operator} " if operator else ""
        raise NothingValid(f"{where}: no valid record {what}yet; `tilewright tune` makes some")
    return sorted(found, key=lambda pair: (pair[0].operator, pair[0].extents, pair[0].hardware))


def _row(record: Record, count: int, flops: float | None) -> dict[str, Any]:
    from explorer.disturbance import crowd_of
    from explorer.recall import noted

    arguments = json.loads(record.extents)
    crowd = crowd_of(noted(record))
    assert record.seconds is not None
    return {
        "operator": record.operator,
        "arguments": arguments,
        "seconds": record.seconds,
        "gflops": None if flops is None else flops / record.seconds / 1e9,
        "crowd": "" if crowd is None else crowd.words,
        "trials": count,
        "target": record.target,
        "hardware": record.hardware,
        "memory": record.memory,
        "generator": record.generator,
        "created": record.created,
        "schedule": json.loads(record.schedule),
    }


def _flops(store: Store, record: Record, operators: Sequence[str]) -> float | None:
    """What is computed: as the record tells, else as its program counts if that is to be had."""
    from explorer.recall import FLOPS

    told = json.loads(record.notes).get(FLOPS)
    if isinstance(told, int | float):
        return told
    from explorer.rebuilding import buildable, of_record

    workload = buildable(store, of_record(record), operators)
    return None if workload is None else workload.program.flops
