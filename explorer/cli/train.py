"""tilewright train: a cost model from recorded trials, written to a file."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.app import Format, OperatorFiles, OutputFormat, app, examples, print_json
from explorer.cli.places import refuse_unwritable_file
from ir.errors import UsageError

if TYPE_CHECKING:
    from costmodel.dataset import Group
    from costmodel.shelf import Shelf

Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--records",
        help="a store or an export; may be given several times; default: the record store",
    ),
]
OneTarget = Annotated[str | None, typer.Option(help="only records of this target")]


@app.command(
    epilog=examples(
        "tilewright train --out model.json.xz",
        "tilewright train --records records.db --records more.jsonl --out model.json",
    ),
)
def train(
    out: Annotated[Path, typer.Option(help="file to write; .xz compresses it")],
    records: Sources = None,
    target: OneTarget = None,
    operators: OperatorFiles = None,
    seed: Annotated[int, typer.Option(min=0, help="of the trees' random choices")] = 0,
    ram: Annotated[
        str, typer.Option(metavar="SIZE", help="features beyond it stay on the disk: 500MB, 4GB")
    ] = "1GB",
    form: OutputFormat = Format.text,
) -> None:
    """Learn from recorded trials how schedules rank, what they take and which fail."""
    from costmodel.dataset import train as fit
    from costmodel.shelf import Shelf
    from explorer.settings import size_of

    refuse_unwritable_file("--out", out)
    most = size_of("--ram ", ram)
    with tempfile.TemporaryDirectory() as folder:
        shelf = Shelf(Path(folder))
        groups = one_target(records, target, operators or (), shelf)
        trained = fit(groups, seed=seed, shelf=shelf, ram=most)
    trained.save(out)
    if form is Format.json:
        facts = {"target": trained.target, "features": trained.schema, "file": str(out)}
        print_json({**facts, "data": dict(trained.data), "versions": dict(trained.versions)})
        return
    data = trained.data
    print(
        f"{data['trials']} kernels ({data['valid']} valid) of {data['workloads']} workloads, "
        f"{len(data['operators'])} operators, target {trained.target}, schema {trained.schema}"
    )
    if data["memories"]:
        print(", ".join(f"{count} in {kind} memory" for kind, count in data["memories"].items()))
    print(f"wrote {out}")


def one_target(
    records: list[str] | None,
    target: str | None,
    operators: Sequence[str] = (),
    shelf: Shelf | None = None,
) -> list[Group]:
    """The groups of records of a single target; raises UsageError where there are several."""
    from explorer.settings import records_location
    from explorer.training import by_target, read_groups

    found = by_target(read_groups(records or (records_location(),), target, operators, shelf))
    if len(found) > 1:
        raise UsageError(f"the records are of targets {', '.join(found)}: name one with --target")
    return next(iter(found.values()))
