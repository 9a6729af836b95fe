"""Verbs of tilewright db for records that people share: keys, signed bundles out and in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.app import Format, OutputFormat, Records, print_json
from explorer.cli.places import refuse_unwritable_file

if TYPE_CHECKING:
    from records.bundles import Part

OfWorkload = Annotated[
    str | None,
    typer.Option(
        "--workload", help="only this workload: its key or how that begins, or an operator"
    ),
]
OfDevice = Annotated[
    str | None,
    typer.Option("--device", help="only this machine: its key, or a part of its name"),
]
OfTarget = Annotated[str | None, typer.Option("--target", help="only this target")]


def keygen(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="for the private key: keep it")],
) -> None:
    """Make a key to sign bundles with; the public one, FILE.pub, is for those who trust you."""
    from records.signing import PUBLIC, make_key

    public = make_key(file)
    print(f"wrote {file} (private: whoever has it signs as you) and {file}{PUBLIC}")
    print(public)


def publish(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the bundle to write")],
    key: Annotated[Path, typer.Option(metavar="KEY", help="private key that `db keygen` made")],
    workload: OfWorkload = None,
    device: OfDevice = None,
    target: OfTarget = None,
    records: Records = None,
    form: OutputFormat = Format.text,
) -> None:
    """Write records as a signed bundle that others can pull; jobs and their options stay here."""
    from explorer.recall import existing_store
    from records import Wanted
    from records import publish as write

    refuse_unwritable_file("FILE", file)
    with existing_store(records) as store:
        done = write(store, file, key, Wanted(workload, device, target))
    if form is Format.json:
        told = asdict(done)
        told["tables"] = told.pop("schema")  # the store's version, beside that of what is printed
        print_json({"file": str(file)} | told)
        return
    _print_parts(done.parts)
    print(f"wrote {done.trials} trials to {file}, signed by {done.signer}")


def pull(
    source: Annotated[
        str, typer.Argument(metavar="FILE_OR_URL", help="a bundle, here or at http(s)://...")
    ],
    trust: Annotated[
        list[str],
        typer.Option(metavar="KEY", help="public key (file, or ed25519:...); may be repeated"),
    ],
    workload: OfWorkload = None,
    device: OfDevice = None,
    target: OfTarget = None,
    records: Records = None,
    form: OutputFormat = Format.text,
) -> None:
    """Add the records of a bundle, if somebody who is trusted has signed it as it is.

    Nothing is stored before all of it is verified; pulling it twice changes nothing.
    """
    from explorer.recall import open_store
    from records import Wanted
    from records import pull as read
    from records.signing import public_key

    keys = [public_key(given) for given in trust]
    with _here(source) as path, open_store(records) as store:
        done = read(store, path, keys, Wanted(workload, device, target))
    if form is Format.json:
        print_json({**asdict(done), "source": source})
        return
    _print_parts(done.parts)
    print(f"read {done.read} trials, {done.added} of them new, signed by {done.signer}")


def pulled(records: Records = None, form: OutputFormat = Format.text) -> None:
    """List the bundles that a store has records of, with their signers."""
    from explorer.recall import existing_store
    from records import origins

    with existing_store(records) as store:
        found = origins(store)
    if form is Format.json:
        rows = [
            {"signer": whole.signer, "created": whole.created, "parts": list(map(asdict, parts))}
            for whole, parts in found
        ]
        print_json({"bundles": rows})
        return
    for whole, parts in found:
        print(f"{whole.created[:19].replace('T', ' ')} UTC, signed by {whole.signer}")
        _print_parts(parts)
    if not found:
        print("no bundle was pulled")


@contextmanager
def _here(source: str) -> Iterator[Path]:
    """The bundle as a file; one from elsewhere is fetched, and goes afterwards."""
    from records.bundles import LARGEST
    from records.fetching import fetch, is_address

    if not is_address(source):
        yield Path(source)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fetched.bundle"
        fetch(source, path, LARGEST)
        yield path


def _print_parts(parts: tuple[Part, ...]) -> None:
    from ir.printable import printable

    for part in parts:
        what = f"{part.operator} {part.extents} on {part.target}, {part.device}"
        print(f"  {printable(what)}: {part.trials} trials")
