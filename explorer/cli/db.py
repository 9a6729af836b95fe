"""tilewright db: check a record store, carry records out, in and together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.app import Format, OutputFormat, Records, app, print_json

if TYPE_CHECKING:
    from records import Store

db_app = typer.Typer(help="Look after record stores.")
app.add_typer(db_app, name="db")

File = Annotated[Path, typer.Argument(metavar="FILE", help="a JSON Lines file of records")]


def _existing(records: str | None) -> Store:
    """The store, which looking at must not make; raises UsageError."""
    from explorer.recall import open_store
    from explorer.settings import records_location
    from ir.errors import UsageError

    where = records if records is not None else records_location()
    if "://" not in where and not Path(where).exists():
        raise UsageError(f"{where}: no such store; `tilewright tune` makes one")
    return open_store(where)


@db_app.command()
def check(records: Records = None, form: OutputFormat = Format.text) -> None:
    """Read everything and compare it with its hashes."""
    with _existing(records) as store:
        count, jobs = store.check(), len(store.jobs())
        location = store.location
    if form is Format.json:
        print_json({"store": location, "trials": count, "jobs": jobs, "sound": True})
    else:
        print(f"{location}: {count} trials of {jobs} jobs, all sound")


@db_app.command()
def stats(records: Records = None, form: OutputFormat = Format.text) -> None:
    """Count trials by operator and outcome."""
    counts: Counter[tuple[str, str]] = Counter()
    with _existing(records) as store:
        for record in store.records():
            counts[record.operator, record.status] += 1
    table: dict[str, dict[str, int]] = {}
    for (operator, status), count in sorted(counts.items()):
        table.setdefault(operator, {})[status] = count
    if form is Format.json:
        print_json(table)
        return
    for operator, found in table.items():
        words = ", ".join(f"{count} {status}" for status, count in found.items())
        print(f"{operator}: {words}")


@db_app.command("export")
def export_store(
    file: File,
    records: Records = None,
    operator: Annotated[str | None, typer.Option(help="only this operator's trials")] = None,
) -> None:
    """Write records to a file that carries a checksum for every line."""
    from records import export_records

    with _existing(records) as store:
        count = (
            export_records(store, file, operator=operator)
            if operator
            else export_records(store, file)
        )
    print(f"wrote {count} trials to {file}")


@db_app.command("import")
def import_store(
    file: File,
    records: Records = None,
    salvage: Annotated[
        bool, typer.Option(help="of a damaged file, take the lines that are sound")
    ] = False,
) -> None:
    """Add the records of a file; those that are there already are passed over."""
    from explorer.recall import open_store
    from records import import_records

    with open_store(records) as store:
        done = import_records(store, file, salvage=salvage)
    lost = f"; {len(done.damaged)} damaged lines passed over" if done.damaged else ""
    print(f"read {done.read} trials, {done.added} of them new{lost}")


@db_app.command()
def merge(
    sources: Annotated[list[str], typer.Argument(metavar="STORE...", help="paths or URLs")],
    records: Records = None,
) -> None:
    """Add all records of other stores to this one; doing it twice changes nothing."""
    from explorer.recall import open_store

    with open_store(records) as store:
        for source in sources:
            with _existing(source) as other:
                read, added = _pour(other, store)
            print(f"{source}: {read} trials, {added} of them new")


def _pour(source: Store, target: Store, page: int = 500) -> tuple[int, int]:
    """(trials read, trials new); jobs come along, of two versions the newer stays."""
    read = added = 0
    batch = []
    for record in source.records():
        batch.append(record)
        if len(batch) == page:
            read, added, batch = read + len(batch), added + target.add_all(batch), []
    for job in source.jobs():
        target.put_job(job)
    return read + len(batch), added + target.add_all(batch)
