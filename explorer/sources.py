"""Records to read, wherever they are: a store, an export of one (.jsonl, .jsonl.xz), or results of
another tuner (.json, .json.gz, .json.xz)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from explorer.recall import Where, open_store
from ir.errors import UsageError
from records import Address
from records.documents import ENDINGS
from records.packed import Unpackable, unpacked

if TYPE_CHECKING:
    from records import Store

EXPORTS = (".jsonl", ".jsonl.xz")


@contextmanager
def opened(source: Where, operator: str | None = None) -> Iterator[Store]:
    """A store as it is, to be read, or an export read into a store of its own; raises UsageError,
    StoreError.

    `operator` says what was tuned where another tuner's file does not.
    """
    address = Address.of(source)
    if not address.there:
        raise UsageError(f"no records at {address}: name a store, or an export of one (.jsonl)")
    if address.path is None or not address.path.name.lower().endswith(EXPORTS + ENDINGS):
        with open_store(address, read_only=True) as store:
            yield store
        return
    from records import Store, import_records

    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "export.db") as store:
        plain = address.path
        if plain.name.endswith(".jsonl.xz"):
            plain = Path(folder) / "export.jsonl"
            _unpack(address.path, plain)
        import_records(store, plain, operator=operator)
        yield store


def _unpack(source: Path, goal: Path) -> None:
    try:
        with open(goal, "xb") as stream:
            stream.writelines(unpacked(source))
    except Unpackable as error:
        raise UsageError(
            f"cannot unpack {source} ({error}): fetch the file, or export the records again"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot unpack {source} ({error.strerror or error})") from None
