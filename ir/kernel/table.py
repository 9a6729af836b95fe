"""Kernels of one operator at several extents, and the extents by which one of them is chosen.

Knows neither what the kernels say nor in what language.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from ir.kernel.compiled import Argument, Kernel

Extents = tuple[int, ...]
Branches = dict[int, "Branches | int"]  # by the first extent, the next ..., the row's number


@dataclass(frozen=True, slots=True)
class KernelTable:
    """Kernels called `name`, whose arguments differ in extents alone.

    `varying` are the operator's arguments whose values differ, `rows` their values with the kernel
    of each, in ascending order. Raises ValueError for a table that does not say which is which.
    """

    name: str
    varying: tuple[str, ...]
    rows: tuple[tuple[Extents, Kernel], ...]

    def __post_init__(self) -> None:
        if not self.rows or any(len(extents) != len(self.varying) for extents, _ in self.rows):
            raise ValueError("a table has rows, each with a value for every argument that varies")
        if len({extents for extents, _ in self.rows}) != len(self.rows):
            raise ValueError("two kernels of a table have the same extents")
        object.__setattr__(self, "rows", tuple(sorted(self.rows, key=lambda row: row[0])))

    @property
    def first(self) -> Kernel:
        """One of them, for what all have in common: names, dtypes and roles of arguments."""
        return self.rows[0][1]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(kernel for _, kernel in self.rows)

    @property
    def key(self) -> str:
        """Content hash over extents and kernels."""
        facts = [(extents, kernel.key) for extents, kernel in self.rows]
        return hashlib.sha256(json.dumps([self.varying, facts]).encode()).hexdigest()

    @property
    def symbol(self) -> str:
        """A name for linkers that differs between tables of one name that do different things."""
        return f"{self.name}_{self.key[:12]}"

    def operands(self, kernel: Kernel) -> tuple[Argument, ...]:
        """What callers give a kernel, in its order."""
        return tuple(argument for argument in kernel.arguments if argument.role != "workspace")

    def shapes(self, kernel: Kernel) -> tuple[Extents, ...]:
        """Of a kernel's inputs."""
        return tuple(a.shape for a in self.operands(kernel) if a.role == "input")

    def dims(self, place: int) -> tuple[Extents, ...]:
        """For each dimension of an operand the extents that it has, one where it does not vary."""
        shapes = [self.operands(kernel)[place].shape for kernel in self.kernels]
        return tuple(tuple(dict.fromkeys(dim)) for dim in zip(*shapes, strict=True))

    def alike(self) -> tuple[Extents, Extents] | None:
        """Two rows whose inputs have the same shapes, if there are such."""
        seen: dict[tuple[Extents, ...], Extents] = {}
        for extents, kernel in self.rows:
            other = seen.setdefault(self.shapes(kernel), extents)
            if other != extents:
                return other, extents
        return None

    def words(self, extents: Extents) -> str:
        """A row's extents for people: m=64, n=8."""
        return ", ".join(f"{n}={v}" for n, v in zip(self.varying, extents, strict=True))

    def branches(self) -> Branches:
        """The rows as a tree with one level for each argument that varies."""
        root: Branches = {}
        for number, (extents, _) in enumerate(self.rows):
            at = root
            for extent in extents[:-1]:
                below = at.setdefault(extent, {})
                assert isinstance(below, dict)
                at = below
            at[extents[-1]] = number
        return root
