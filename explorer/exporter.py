"""Export: a kernel as files that need nothing of Tilewright, all of them or none.

Each target's files are its exporter's affair. Knows no search, store or target.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from explorer.errors import ExportError
from explorer.exporters.base import TableFacts, find_exporter
from explorer.exporters.library import find_linker, source_text
from ir.errors import MissingTarget, TilewrightError
from ir.kernel import Kernel, KernelTable

__all__ = ["export", "export_table", "find_linker", "refuse_name", "source_text"]


def export(
    kernel: Kernel,
    facts: Mapping[str, object],
    folder: Path,
    *,
    name: str | None = None,
    linker: str | None = None,
    cache_dir: Path | None = None,
) -> tuple[Path, ...]:
    """Write `kernel` to `folder`; returns the files.

    Files and functions are called `name`, else as the kernel is; what linkers see has a hash of
    the kernel in its name then. `facts` come from the record (schedule, seconds, hardware ...) and
    go into manifest and header.
    Raises ExportError, or MissingTarget without the target's toolchain, with nothing written.
    """
    exporter = find_exporter(kernel.target)
    symbol = name or ""
    kernel = replace(kernel, name=name) if name is not None else kernel
    exporter.check(kernel.name, symbol)
    return _written(
        folder,
        lambda room: exporter.write(
            kernel, facts, room, symbol=symbol, linker=linker, cache_dir=cache_dir
        ),
    )


def export_table(
    table: KernelTable,
    facts: TableFacts,
    folder: Path,
    *,
    name: str | None = None,
    linker: str | None = None,
    cache_dir: Path | None = None,
) -> tuple[Path, ...]:
    """Write the kernels of `table` to `folder` as one library or cubin; see `export`.

    Its function chooses the kernel by the shapes of its arrays. Raises ExportError also where they
    do not tell one from another.
    """
    exporter = find_exporter(table.first.target)
    symbol = name or ""
    table = replace(table, name=name) if name is not None else table
    exporter.check(table.name, symbol, several=True)
    return _written(
        folder,
        lambda room: exporter.write_table(
            table, facts, room, symbol=symbol, linker=linker, cache_dir=cache_dir
        ),
    )


def _written(folder: Path, write: Callable[[Path], None]) -> tuple[Path, ...]:
    """What `write` makes in an empty folder, put in its place as a whole."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as scratch:
            write(Path(scratch))
            return _move(Path(scratch), folder)
    except OSError as error:
        raise ExportError(f"{folder}: {error.strerror or error}") from None
    except MissingTarget:
        raise
    except TilewrightError as error:
        raise ExportError(str(error)) from None


def refuse_name(target: str, program: str, name: str | None = None, several: bool = False) -> None:
    """Raises ExportError if a program's kernel cannot be exported, as `name` if that is given.

    With `several`, if kernels of it cannot be exported together.
    """
    find_exporter(target).check(program if name is None else name, name or "", several)


def _move(scratch: Path, folder: Path) -> tuple[Path, ...]:
    moved = []
    for path in sorted(scratch.iterdir()):
        os.replace(path, folder / path.name)
        moved.append(folder / path.name)
    return tuple(moved)
