"""Records out and in, and from store to store; which form a file has, by name or by its ending.

JSON documents are told apart by what is in them: T4 of ours and of others, Kernel Tuner's caches,
KTT's results.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Unpack, cast

from records.documents import form_in, is_document, load
from records.errors import InvalidRecord, UnusableLocation
from records.files import Exported, Imported, Outgoing, Text, pour, refuse_itself
from records.foreign import FOREIGN, records_of
from records.record import Record
from records.refused import damaged
from records.rows import Selection
from records.store import Store

FORMS = {"jsonl": "records.jsonl", "parquet": "records.parquet", "t4": "records.t4"}
READERS = {"t4": "records.t4", "kernel-tuner": "records.kernel_tuner", "ktt": "records.ktt"}
ENDINGS = {".jsonl": "jsonl", ".parquet": "parquet", ".json": "t4"}


def form_of(path: Path, form: str | None = None) -> str:
    """The form that is named, or that the ending stands for, else JSON Lines."""
    found = form or ("t4" if is_document(path) else ENDINGS.get(path.suffix.lower(), "jsonl"))
    if found not in FORMS:
        raise UnusableLocation(f"no form {found!r} of export; there are {', '.join(FORMS)}")
    return found


def export_records(
    store: Store,
    path: str | os.PathLike[str],
    *,
    form: str | None = None,
    **selection: Unpack[Selection],
) -> int:
    """Write the selected trials, and every job, to a file; returns how many trials.

    The form is "jsonl" (JSON Lines), "parquet" or "t4", by default what the file's ending says.
    Raises StoreError subclasses (DamagedStore where a selected trial or a job is damaged); a file
    of that name is replaced only once the new one is whole.
    """
    return _export(Outgoing(store, salvage=False), store, path, form, selection).trials


def export_sound(
    store: Store,
    path: str | os.PathLike[str],
    *,
    form: str | None = None,
    **selection: Unpack[Selection],
) -> Exported:
    """As `export_records`, but what is damaged is left out and told."""
    return _export(Outgoing(store, salvage=True), store, path, form, selection)


def _export(
    rows: Outgoing,
    store: Store,
    path: str | os.PathLike[str],
    form: str | None,
    selection: Selection,
) -> Exported:
    goal = Path(path)
    refuse_itself(store, goal)
    write = _function(form_of(goal, form), "write")
    if is_document(goal) and goal.suffix.lower() != ".json":
        raise UnusableLocation(f"{goal}: exports are not packed: name it .json, and pack that")
    return Exported(write(rows, goal, selection), tuple(rows.left_out))


def import_records(
    store: Store,
    path: str | os.PathLike[str],
    *,
    form: str | None = None,
    salvage: bool = False,
    operator: str | None = None,
    card: str | None = None,
) -> Imported:
    """Read an export into the store; trials that are there already are not stored again.

    A damaged file is refused whole (DamagedExport). With `salvage`, what is good of it is stored.
    `operator` says what was tuned, and `card` on what, where a file of another tool does not.
    """
    source = Path(path)
    refuse_itself(store, source)
    if form in FOREIGN or (form is None and is_document(source)):
        return _import_document(store, source, form, salvage, operator, card)
    read = _function(form_of(source, form), "read")
    return cast(Imported, read(store, source, salvage=salvage))


def foreign_records(
    path: str | os.PathLike[str], *, operator: str | None = None, card: str | None = None
) -> list[Record] | None:
    """The trials of another tuner's file, as `import_records` takes them; None for one of ours.

    Raises DamagedExport, StoreUnavailable.
    """
    source = Path(path)
    data = load(source)
    if _is_ours(form_in(source, data), data):
        return None
    return _foreign(source, data, False, operator, card)[0]


def _import_document(
    store: Store,
    path: Path,
    form: str | None,
    salvage: bool,
    operator: str | None,
    card: str | None,
) -> Imported:
    """Store what a JSON document holds. All of it is understood before anything is stored."""
    from records.t4 import texts

    data = load(path)
    if _is_ours(form_in(path, data, form), data):
        records, bad = _ours(path, data, salvage)
        return replace(pour(store, [*texts(path, data), *records]), damaged=bad)
    records, bad = _foreign(path, data, salvage, operator, card)
    return replace(pour(store, records), damaged=bad)


def _is_ours(form: str, data: dict[str, Any]) -> bool:
    from records.t4 import is_ours

    return form == "t4" and is_ours(data)


def _foreign(
    path: Path, data: dict[str, Any], salvage: bool, operator: str | None, card: str | None
) -> tuple[list[Record], tuple[int, ...]]:
    """The records of another tuner's document, and the numbers of those passed over."""
    told = import_module(READERS[form_in(path, data)]).tell(path, data)
    return records_of(path, told, salvage=salvage, operator=operator, card=card)


def _ours(path: Path, data: dict[str, Any], salvage: bool) -> tuple[list[Record], tuple[int, ...]]:
    """The records that a document of ours carries, and the numbers of those passed over."""
    from records import t4

    if not isinstance(data["results"], list):
        raise damaged(path, "results", "it lacks results: they are no list")
    found, bad = [], []
    for number, result in enumerate(data["results"], start=1):
        try:
            found.append(t4.ours(result))
        except InvalidRecord as error:
            if not salvage:
                raise damaged(path, f"result {number}", str(error)) from None
            bad.append(number)
    return found, tuple(bad)


def merge(source: Store, target: Store) -> Imported:
    """Add what is new in `source`: its texts and jobs first, so that no trial is without its own.

    What is damaged is left out, and damaged trials are told by number. After an interruption, the
    same again adds the rest.
    """
    rows = Outgoing(source, salvage=True)
    jobs = pour(target, (*map(Text, rows.texts()), *rows.jobs())).jobs
    done = pour(target, rows.records())
    damaged = tuple(int(found.name) for found in rows.left_out if found.kind == "trial")
    return Imported(done.read, done.added, jobs, damaged)


def _function(form: str, name: str) -> Callable[..., Any]:
    return cast("Callable[..., Any]", getattr(import_module(FORMS[form]), name))
