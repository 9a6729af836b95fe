"""tilewright db: check a record store, carry records out and in, prune it, save a damaged one."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.app import Format, OutputFormat, Records, examples, group, print_json
from explorer.cli.places import refuse_unwritable_file
from explorer.cli.share import keygen, publish, pull, pulled

if TYPE_CHECKING:
    from records import Store
    from records.rows import Selection

db_app = group("db", "Look after record stores.")


class Form(StrEnum):
    """The forms of exported files."""

    jsonl = "jsonl"
    parquet = "parquet"
    t4 = "t4"


class ForeignForm(StrEnum):
    """Forms that are read: those exported, and those of other tuners."""

    jsonl = "jsonl"
    parquet = "parquet"
    t4 = "t4"
    kernel_tuner = "kernel-tuner"
    ktt = "ktt"


File = Annotated[
    Path, typer.Argument(metavar="FILE", help="exported records: .jsonl, .parquet or .json (T4)")
]
Incoming = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="exported records, or another tuner's .json[.gz|.xz]: T4, Kernel Tuner's cache, KTT",
    ),
]
FileForm = Annotated[
    Form | None, typer.Option("--format", help="form of the file; default: what its ending says")
]
IncomingForm = Annotated[
    ForeignForm | None,
    typer.Option("--format", help="form of the file; default: what its ending and content say"),
]
_AGE = re.compile(r"(\d{1,6})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


def _existing(records: str | None) -> Store:
    """The store, to be read; looking at it must not make it. Raises UsageError."""
    from explorer.recall import existing_store

    return existing_store(records)


@db_app.command(
    epilog=examples(
        "tilewright db check",
        "tilewright db check --records records.db --format json",
    ),
)
def check(records: Records = None, form: OutputFormat = Format.text) -> None:
    """Read everything and compare it with its hashes."""
    with _existing(records) as store:
        found = store.examine()
        location, older = store.location, store.older
    if form is Format.json:
        told = asdict(found)
        told["tables"] = told.pop("schema")  # the store's version, beside that of what is printed
        print_json({"store": location, "sound": True, "older": older} | told)
        return
    print(f"{location}: {found.trials} trials of {found.jobs} jobs, all sound")
    if older:
        print(f"schema {found.schema}: older, without hashes of jobs; a verb that writes adds them")
    elif store.is_file and not found.sealed:
        print("not sealed (in use, or a writer was killed): only what holds data was checked")


@db_app.command(
    epilog=examples(
        "tilewright db stats",
        "tilewright db stats --workloads",
    ),
)
def stats(
    records: Records = None,
    workloads: Annotated[
        bool, typer.Option("--workloads", help="by workload and machine, with their keys")
    ] = False,
    form: OutputFormat = Format.text,
) -> None:
    """Count trials by operator and outcome."""
    with _existing(records) as store:
        if workloads:
            _print_workloads(store, form)
        else:
            _print_outcomes(store, form)


def _print_outcomes(store: Store, form: Format) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for record in store.records():
        counts[record.operator, record.status] += 1
    table: dict[str, dict[str, int]] = {}
    for (operator, status), count in sorted(counts.items()):
        table.setdefault(operator, {})[status] = count
    if form is Format.json:
        print_json({"operators": table})
        return
    for operator, found in table.items():
        words = ", ".join(f"{count} {status}" for status, count in found.items())
        print(f"{operator}: {words}")


def _print_workloads(store: Store, form: Format) -> None:
    found = store.workloads()
    if form is Format.json:
        print_json({"workloads": [row._asdict() for row in found]})
        return
    for row in found:
        where = f"{row.target}, {row.hardware}"
        print(f"{row.workload[:12]} {row.operator} {row.extents} on {where}: {row.trials}")


@db_app.command(
    "export",
    epilog=examples(
        "tilewright db export records.jsonl",
        "tilewright db export matmul.jsonl --operator matmul",
    ),
)
def export_store(
    file: File,
    records: Records = None,
    form: FileForm = None,
    operator: Annotated[str | None, typer.Option(help="only this operator's trials")] = None,
    workload: Annotated[
        str | None, typer.Option(help="only this workload's: its key, or the key's beginning")
    ] = None,
    salvage: Annotated[
        bool, typer.Option(help="of a damaged store, write what is sound of it")
    ] = False,
) -> None:
    """Write records to a file that carries checksums."""
    from records import export_records, export_sound

    refuse_unwritable_file("FILE", file)
    selection: Selection = {}
    with _existing(records) as store:
        if operator:
            selection["operator"] = operator
        if workload:
            selection["workload"] = _workload(store, workload)
        if salvage:
            done = export_sound(store, file, form=form, **selection)
            for damage in done.left_out:
                typer.echo(f"left out: {damage}", err=True)
            count = done.trials
        else:
            count = export_records(store, file, form=form, **selection)
    print(f"wrote {count} trials to {file}")


def _workload(store: Store, beginning: str) -> str:
    """The only workload whose key begins so; raises UsageError."""
    from ir.errors import UsageError

    keys = {row.workload for row in store.workloads() if row.workload.startswith(beginning)}
    if len(keys) != 1:
        found = f"{len(keys)} workloads begin" if keys else "no workload begins"
        raise UsageError(f"--workload {beginning}: {found} so; `db stats --workloads` lists them")
    return keys.pop()


@db_app.command(
    "import",
    epilog=examples(
        "tilewright db import records.jsonl --records other.db",
    ),
)
def import_store(
    file: Incoming,
    records: Records = None,
    form: IncomingForm = None,
    operator: Annotated[
        str | None,
        typer.Option(
            help="what was tuned, if another tuner's file does not say; default: its name"
        ),
    ] = None,
    card: Annotated[
        str | None,
        typer.Option(help="on what it ran, if another tuner's file does not say"),
    ] = None,
    salvage: Annotated[
        bool, typer.Option(help="of a damaged file, take what is sound of it")
    ] = False,
) -> None:
    """Add the records of a file; those that are there already are passed over."""
    from explorer.recall import open_store
    from records import import_records

    with open_store(records) as store:
        done = import_records(store, file, form=form, salvage=salvage, operator=operator, card=card)
    lost = f"; {len(done.damaged)} damaged ones passed over" if done.damaged else ""
    print(f"read {done.read} trials, {done.added} of them new{lost}")


@db_app.command(
    epilog=examples(
        "tilewright db merge other.db",
    ),
)
def merge(
    sources: Annotated[list[str], typer.Argument(metavar="STORE...", help="paths or URLs")],
    records: Records = None,
    form: OutputFormat = Format.text,
) -> None:
    """Add all records of other stores to this one; doing it twice changes nothing."""
    import records as library
    from explorer.recall import existing_address, open_store

    places = [existing_address(source) for source in sources]
    rows = []
    with open_store(records) as store:
        for place in places:
            with open_store(place, read_only=True) as other:
                done = library.merge(other, store)
            row = {"store": str(place), "read": done.read, "added": done.added, "jobs": done.jobs}
            rows.append(row | {"damaged": len(done.damaged)})
            if form is Format.text:
                lost = f"; {len(done.damaged)} damaged ones left out" if done.damaged else ""
                print(f"{place}: {done.read} trials, {done.added} of them new{lost}")
    if form is Format.json:
        print_json({"stores": rows})


@db_app.command(
    epilog=examples(
        "tilewright db prune --older-than 30d --keep-best 20",
        "tilewright db prune --keep-best 20 --yes",
    ),
)
def prune(
    records: Records = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="AGE", help="untried for so long: 12h, 30d, 8w")
    ] = None,
    keep_best: Annotated[
        int | None, typer.Option(min=0, help="keep so many best candidates of every workload")
    ] = None,
    generator: Annotated[
        str | None, typer.Option(help="of this version of the code generator")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="delete; without it, only count")] = False,
    form: OutputFormat = Format.text,
) -> None:
    """Delete candidates that meet every condition given, with all their trials."""
    from explorer.recall import FINAL, existing_address, open_store
    from ir.errors import UsageError
    from records import Pruning

    if older_than is None and keep_best is None and generator is None:
        raise UsageError("prune needs a condition: --older-than, --keep-best or --generator")
    before = None if older_than is None else _moment_before(older_than)
    what = Pruning(before=before, keep_best=keep_best, generator=generator, finals=FINAL)
    with open_store(existing_address(records), read_only=not yes) as store:
        done = store.prune(what, dry_run=not yes)
        if yes and done.trials:
            _compact(store)
    if form is Format.json:
        print_json(asdict(done) | {"operators": dict(done.operators), "deleted": yes})
        return
    operators = ", ".join(f"{name} {count}" for name, count in done.operators)
    listed = f" ({operators})" if operators else ""
    verb = "deleted" if yes else "would delete"
    print(f"{verb} {done.trials} trials of {done.candidates} candidates{listed}, keeps {done.kept}")
    if not yes:
        print("nothing is deleted yet: --yes does it")


def _moment_before(age: str) -> str:
    from ir.errors import UsageError

    found = _AGE.fullmatch(age)
    if not found:
        raise UsageError(f"--older-than {age!r}: give hours, days or weeks: 12h, 30d, 8w")
    try:
        moment = datetime.now(UTC) - timedelta(hours=int(found[1]) * _HOURS[found[2]])
    except OverflowError:
        raise UsageError(f"--older-than {age}: longer ago than there are dates") from None
    return moment.isoformat(timespec="microseconds")


def _compact(store: Store) -> None:
    """The trials are gone; the file may keep its size while others use it, or the disk is full."""
    from records.errors import FullStore, LockedStore

    try:
        store.compact()
    except (FullStore, LockedStore) as error:
        typer.echo(f"the file keeps its size: {error}", err=True)


@db_app.command(
    epilog=examples(
        "tilewright db repair saved.db --records records.db",
    ),
)
def repair(
    new: Annotated[Path, typer.Argument(metavar="NEW", help="file for what can be saved")],
    records: Records = None,
    form: OutputFormat = Format.text,
) -> None:
    """Save what can be read of a damaged store into a new one; the damaged one stays as it is."""
    import records as library
    from explorer.recall import existing_address

    where = existing_address(records)
    done = library.repair(where, new)
    if form is Format.json:
        print_json(asdict(done) | {"store": str(where), "new": str(new)})
        return
    print(f"saved {done.trials} trials and {done.jobs} jobs of {where} in {new}")
    lost = f"lost: {done.unreadable} trials that cannot be read, {done.altered} that are altered"
    print(f"{lost}; {done.factless} trials are saved without the facts of their hardware")


db_app.command(epilog=examples("tilewright db keygen bundle.key"))(keygen)
db_app.command(
    epilog=examples(
        "tilewright db publish matmul.bundle --key mine.key --workload matmul",
    )
)(publish)
db_app.command(
    epilog=examples(
        "tilewright db pull other.bundle --trust mine.key.pub",
        "tilewright db pull other.bundle --trust mine.key.pub --target cpu --format json",
    )
)(pull)
db_app.command(epilog=examples("tilewright db pulled"))(pulled)
