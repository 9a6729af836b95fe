"""Records out and in, and from store to store; which form a file has, by name or by its ending."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Unpack, cast

from records.errors import UnusableLocation
from records.files import Exported, Imported, Outgoing, Text, pour, refuse_itself
from records.rows import Selection
from records.store import Store

FORMS = {"jsonl": "records.jsonl", "parquet": "records.parquet", "t4": "records.t4"}
ENDINGS = {".jsonl": "jsonl", ".parquet": "parquet", ".json": "t4"}


def form_of(path: Path, form: str | None = None) -> str:
    """The form that is named, or that the ending stands for, else JSON Lines."""
    found = form or ENDINGS.get(path.suffix.lower(), "jsonl")
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
    return Exported(write(rows, goal, selection), tuple(rows.left_out))


def import_records(
    store: Store,
    path: str | os.PathLike[str],
    *,
    form: str | None = None,
    salvage: bool = False,
    operator: str | None = None,
) -> Imported:
    """Read an export into the store; trials that are there already are not stored again.

    A damaged file is refused whole (DamagedExport). With `salvage`, what is good of it is stored.
    `operator` says what was tuned, where a file of another tool does not.
    """
    source = Path(path)
    refuse_itself(store, source)
    read = _function(form_of(source, form), "read")
    return cast(Imported, read(store, source, salvage=salvage, operator=operator))


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
