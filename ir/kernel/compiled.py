"""A kernel: the text that a target generated for one (program, schedule), and how to launch it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from ir.dtypes import dtype_of


@dataclass(frozen=True, slots=True)
class Argument:
    """One pointer argument. `role` is "input", "output" or "workspace"; shape in elements.

    Bytes of u8 may each hold several elements of a type that `packs` names.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str
    packs: str = ""

    @property
    def holds(self) -> str:
        """The dtype, in words."""
        return f"{self.dtype} of packed {self.packs}" if self.packs else self.dtype

    @property
    def bytes(self) -> int:
        size = dtype_of(self.dtype).bytes
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True, slots=True)
class Kernel:
    """Generated code. `texts` holds (language, source) pairs; `notes` facts for the manifest."""

    name: str
    target: str
    arguments: tuple[Argument, ...]
    texts: tuple[tuple[str, str], ...]
    entry: str
    threads: int
    notes: tuple[tuple[str, str | int | float | bool], ...] = ()

    def text(self, language: str) -> str:
        """The source in `language`; raises KeyError."""
        return dict(self.texts)[language]

    @property
    def key(self) -> str:
        """Content hash over the first text, the arguments and the thread count."""
        arguments = [(a.name, a.shape, a.dtype, a.role) for a in self.arguments]
        facts = json.dumps([self.target, self.entry, self.threads, arguments])
        return hashlib.sha256((facts + self.texts[0][1]).encode()).hexdigest()

    @property
    def symbol(self) -> str:
        """A name for linkers that differs between kernels of one name that do different things."""
        return f"{self.name}_{self.key[:12]}"


@dataclass(frozen=True, slots=True)
class Standalone:
    """A kernel that runs without Tilewright: whole source in `language`, and its plain entry.

    `symbol` is the entry's name, `header` declares it, if the language has such a thing. `texts`
    join the kernel's first text in one object file, in which the last one's definitions alone are
    visible; `build` is the command that makes a shared library of the source.
    """

    language: str
    symbol: str
    signature: str
    header: str
    source: str
    texts: tuple[str, ...]
    build: str
