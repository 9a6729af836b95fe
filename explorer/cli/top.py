"""tilewright top: the best recorded kernel of every workload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.app import Format, OutputFormat, Records, app, milliseconds, print_json

if TYPE_CHECKING:
    from records import Record


@app.command()
def top(
    operator: Annotated[
        str | None, typer.Argument(metavar="[OPERATOR]", help="only workloads of this operator")
    ] = None,
    records: Records = None,
    form: OutputFormat = Format.text,
) -> None:
    """List the best record of every workload, machine and code generator."""
    found = [_row(record, count) for record, count in _best(operator, records)]
    if form is Format.json:
        print_json(found)
        return
    for row in found:
        extents = " ".join(f"{name}={value}" for name, value in row["arguments"].items())
        rate = f", {row['gflops']:.1f} GFLOP/s" if row["gflops"] else ""
        doubt = f" (crowded: {row['crowd']})" if row["crowd"] else ""
        print(f"{row['operator']} {extents}: {milliseconds(row['seconds'])}{rate}{doubt}")
        print(f"  of {row['trials']} trials on {row['hardware']}, {row['created'][:10]}")


def _best(operator: str | None, records: str | None) -> list[tuple[Record, int]]:
    """The best record of each workload with the number of its trials; raises NothingValid."""
    from explorer.errors import NothingValid
    from explorer.recall import best_of, open_store
    from explorer.settings import records_location

    where = records if records is not None else records_location()
    groups: dict[tuple[str, ...], list[Record]] = {}
    if "://" in where or Path(where).exists():  # looking makes no store
        with open_store(where, read_only=True) as store:
            selected = store.records(operator=operator) if operator else store.records()
            for r in selected:
                groups.setdefault((r.workload, r.target, r.hardware, r.generator), []).append(r)
    winners = [(best_of(trials), len(trials)) for trials in groups.values()]
    found = [(record, count) for record, count in winners if record is not None]
    if not found:
        what = f"of {operator} " if operator else ""
        raise NothingValid(f"{where}: no valid record {what}yet; `tilewright tune` makes some")
    return sorted(found, key=lambda pair: (pair[0].operator, pair[0].extents, pair[0].hardware))


def _row(record: Record, count: int) -> dict[str, Any]:
    from explorer.disturbance import crowd_of
    from explorer.recall import noted

    arguments = json.loads(record.extents)
    crowd = crowd_of(noted(record))
    assert record.seconds is not None
    return {
        "operator": record.operator,
        "arguments": arguments,
        "seconds": record.seconds,
        "gflops": _gflops(record, arguments),
        "crowd": "" if crowd is None else crowd.words,
        "trials": count,
        "target": record.target,
        "hardware": record.hardware,
        "generator": record.generator,
        "created": record.created,
        "schedule": json.loads(record.schedule),
    }


def _gflops(record: Record, arguments: dict[str, Any]) -> float | None:
    """The rate, where the operator can still be built."""
    from explorer.workload import Workload
    from ir.errors import TilewrightError

    try:
        program = Workload.of(record.operator, arguments, record.target).program
    except (TilewrightError, OSError):
        return None
    assert record.seconds is not None
    return program.flops / record.seconds / 1e9
