"""What an exporter is to the rest, which one a target has, and the words that all of them use."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Protocol

from explorer.errors import ExportError
from ir.kernel import Kernel, KernelTable

MANIFEST_SCHEMA = 1  # raised when a manifest loses an entry, or one changes its meaning


class Exporter(Protocol):
    """Writes the files of one kernel, or of a table of them."""

    def check(self, name: str, symbol: str, several: bool = False) -> None:
        """Raises ExportError if a kernel, or a table of `several`, cannot be called `name`.

        `symbol` is the name for linkers that the user asks for, if any.
        """
        ...

    def write(
        self,
        kernel: Kernel,
        facts: Mapping[str, object],
        folder: Path,
        *,
        symbol: str,
        linker: str | None,
        cache_dir: Path | None,
    ) -> None:
        """Write all files to `folder`, which is empty; raises TilewrightError.

        `linker` is a C compiler's path for those that link, None for the system's.
        """
        ...

    def write_table(
        self,
        table: KernelTable,
        facts: TableFacts,
        folder: Path,
        *,
        symbol: str,
        linker: str | None,
        cache_dir: Path | None,
    ) -> None:
        """As `write`, the files of several kernels in one; raises ExportError where one target's
        cannot be put together."""
        ...


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What manifest and headers tell of several kernels: of all, and of each in the table's order.

    Raises ValueError unless there is one of each.
    """

    common: Mapping[str, object]
    each: tuple[Mapping[str, object], ...]

    def rows(self, table: KernelTable) -> list[dict[str, object]]:
        """The table of a manifest: extents, arguments and facts of every kernel."""
        return [
            {
                "extents": dict(zip(table.varying, extents, strict=True)),
                "arguments": argument_rows(kernel),
                "kernel_key": kernel.key,
                "threads": kernel.threads,
                "facts": dict(facts),
                "notes": dict(kernel.notes),
            }
            for (extents, kernel), facts in zip(table.rows, self.each, strict=True)
        ]


def refuse_alike(table: KernelTable) -> None:
    """Raises ExportError where arrays do not tell which kernel is meant."""
    pair = table.alike()
    if pair is not None:
        one, other = map(table.words, pair)
        raise ExportError(
            f"{table.name}: inputs have the same shapes with {one} and with {other}, so arrays do "
            "not tell which kernel is meant; export each by itself, with a --name of its own"
        )


_ANY = "explorer.exporters.library:LibraryExporter"  # on what `Backend.standalone` gives
_EXPORTERS = {"cpu": _ANY, "cuda": "explorer.exporters.cuda:CudaExporter"}

TORCH_DEVICES = {"cuda": "cuda"}  # where a target's kernels run, in torch's words: else "cpu"

CHOOSE = "choose another with --name"


def find_exporter(target: str) -> Exporter:
    """The exporter of `target`: a shared library's unless the target has its own."""
    module, _, attribute = _EXPORTERS.get(target, _ANY).partition(":")
    exporter: Exporter = getattr(import_module(module), attribute)()
    return exporter


def refuse_name(name: str, reserved: str, imported: Collection[str]) -> None:
    """Raises ExportError unless `name` is a Python name; `reserved` says what it is to be.

    `imported` are the packages that the exported module may meet.
    """
    if not name.isidentifier() or iskeyword(name):
        raise ExportError(f"{name!r} cannot be the name of {reserved}; {CHOOSE}")
    if name in imported or name in sys.stdlib_module_names:
        raise ExportError(f"{name!r} would hide the Python module of that name; {CHOOSE}")


def names_in(source: str) -> frozenset[str]:
    """Every name that a Python text reads, binds or imports."""
    nodes = list(ast.walk(ast.parse(source)))
    found = {node.id for node in nodes if isinstance(node, ast.Name)}
    found |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return frozenset(found | {n.asname or n.name for n in nodes if isinstance(n, ast.alias)})


def flat(value: object) -> str:
    """One line for a comment in C."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text.replace("*/", "* /").replace("\n", " ")


def described(facts: Mapping[str, object]) -> str:
    """The facts as lines of a Python docstring."""
    lines = (f"{key}: {flat(value)}" for key, value in facts.items())
    return "\n".join(lines).replace("\\", "/").replace('"""', "'''")


def argument_rows(kernel: Kernel) -> list[dict[str, object]]:
    """The kernel's arguments as a manifest tells them."""
    return [
        {"name": a.name, "shape": a.shape, "dtype": a.dtype, "role": a.role}
        for a in kernel.arguments
    ]


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of every file in `folder`, by name."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def parameter_names(tensors: Sequence[str], taken: Sequence[str] = ()) -> dict[str, str]:
    """A Python parameter for each tensor: its own name wherever Python and `taken` allow it."""
    names: dict[str, str] = {}
    for tensor in tensors:
        name = re.sub(r"\W", "_", tensor)
        if not name.isidentifier() or iskeyword(name):
            name = f"{name}_" if name[:1].isidentifier() else f"_{name}"
        while name in names.values() or name in taken:
            name += "_"
        names[tensor] = name
    return names
