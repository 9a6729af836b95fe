"""What an exporter is to the rest, which one a target has, and the words that all of them use."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Protocol

from explorer.errors import ExportError
from ir.kernel import Kernel

MANIFEST_SCHEMA = 1  # raised when a manifest loses an entry, or one changes its meaning


class Exporter(Protocol):
    """Writes the files of one kernel."""

    def check(self, kernel: Kernel) -> None:
        """Raises ExportError if the kernel cannot be named as it is."""
        ...

    def write(
        self,
        kernel: Kernel,
        facts: Mapping[str, object],
        folder: Path,
        *,
        linker: str | None,
        cache_dir: Path | None,
    ) -> None:
        """Write all files to `folder`, which is empty; raises TilewrightError.

        `linker` is a C compiler's path for those that link, None for the system's.
        """
        ...


_ANY = "explorer.exporters.library:LibraryExporter"  # on what `Backend.standalone` gives
_EXPORTERS = {"cpu": _ANY, "cuda": "explorer.exporters.cuda:CudaExporter"}


def find_exporter(target: str) -> Exporter:
    """The exporter of `target`: a shared library's unless the target has its own."""
    module, _, attribute = _EXPORTERS.get(target, _ANY).partition(":")
    exporter: Exporter = getattr(import_module(module), attribute)()
    return exporter


def refuse_name(name: str, reserved: str) -> None:
    """Raises ExportError unless `name` is a Python name; `reserved` says what it is to be."""
    if not name.isidentifier() or iskeyword(name):
        raise ExportError(f"{name!r} cannot be the name of {reserved}")


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
