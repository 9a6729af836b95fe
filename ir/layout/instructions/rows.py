"""What a hardware instruction is to a layout: a frozen row that proves itself when it is made.

Owns the shapes of rows and their proof. Knows no single instruction and executes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ir.layout.algebra import filter_zeros, right_inverse
from ir.layout.errors import LayoutError
from ir.layout.layout import Layout

PTX_SUFFIX = {"i8": "s8", "i4": "s4", "i32": "s32"}


@dataclass(frozen=True, slots=True)
class Cost:
    """Cycles of one instruction of its whole thread group.

    `issue`: until the unit takes the next one; `latency`: from issue until a consumer may use the
    result, 0 where nothing waits for it.
    """

    issue: float
    latency: float


SHUFFLE = Cost(issue=2, latency=30)
"""One 32-bit exchange between the lanes of a warp, for the price of a conversion."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a matrix instruction.

    `extents` are the tile's two axes ((m, k), (n, k) or (m, n)); `layout` maps (thread, value) to
    the colexicographic index in that tile, stride 0 over threads that hold the same elements.
    `dtypes` are the legal types, first the row's own; `majors` ("k", "mn") the contiguous axes
    that a shared operand may have, empty for a register operand.
    """

    extents: tuple[int, int]
    layout: Layout
    dtypes: tuple[str, ...]
    scope: str = "register"
    majors: tuple[str, ...] = ()

    @property
    def dtype(self) -> str:
        return self.dtypes[0]


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """D[m, n] = sum over k of A[m, k] B[n, k] + C[m, n], by `threads` threads together.

    `requires` is the least target ("sm_80", "sm_90a").
    """

    name: str
    kind: str
    threads: int
    a: Operand
    b: Operand
    c: Operand
    requires: str
    cost: Cost

    def __post_init__(self) -> None:
        prove_matrix(self)

    @property
    def m(self) -> int:
        return self.c.extents[0]

    @property
    def n(self) -> int:
        return self.c.extents[1]

    @property
    def k(self) -> int:
        return self.a.extents[1]

    @property
    def sm(self) -> int:
        return minimal_sm(self.requires)


@dataclass(frozen=True, slots=True)
class CopyRow:
    """A copy by `threads` threads of `bits` bits each.

    `source` and `destination` map (thread, bit) to the bit index of the piece copied, whose
    `extents` are (bits of a row, rows), colexicographic; stride 0 over threads whose address is
    ignored. `alignment`: bytes of each address on the memory side. `matrices` and `transposed`
    belong to ldmatrix and stmatrix.
    """

    name: str
    kind: str
    threads: int
    bits: int
    alignment: int
    extents: tuple[int, int]
    source: Layout
    destination: Layout
    requires: str
    matrices: int = 0
    transposed: bool = False

    def __post_init__(self) -> None:
        prove_copy(self)


@dataclass(frozen=True, slots=True)
class TmaRow:
    """A bulk tensor copy: one thread issues it, the limits are those of its tensor map."""

    name: str
    kind: str
    source: str
    destination: str
    threads: int
    requires: str
    cost: Cost
    dtypes: tuple[str, ...] = ()


Row = MatrixRow | CopyRow | TmaRow


def minimal_sm(requires: str) -> int:
    """ "sm_90a" -> 90; 0 for what is none."""
    return int(requires[3:].rstrip("af")) if requires.startswith("sm_") else 0


def suffix(dtype: str) -> str:
    """The type's name in PTX ("i8" -> "s8")."""
    return PTX_SUFFIX.get(dtype, dtype)


@lru_cache(maxsize=1024)
def copies(layout: Layout, size: int) -> int:
    """How many times `layout` covers [0, size), every index equally often.

    Without zero strides a layout is a bijection onto [0, size) exactly if it has as many points and
    a right inverse on all of them. LayoutError "row-not-bijective" otherwise.
    """
    moving = filter_zeros(layout)
    reached = right_inverse(moving).size
    if moving.size != size or reached != size:
        text = f"{layout} reaches {reached} of {size} indices by {moving.size} coordinates"
        raise LayoutError("row-not-bijective", text)
    return layout.size // size


def prove_matrix(row: MatrixRow) -> None:
    """Raise LayoutError unless the three fragments fit each other, their tiles and registers."""
    shapes = (row.a.extents, row.b.extents, row.c.extents)
    if shapes != ((row.m, row.k), (row.n, row.k), (row.m, row.n)):
        raise LayoutError("row-extents", f"{row.name}: A, B, C of {shapes} do not fit")
    for operand in (row.a, row.b, row.c):
        _prove_threads(row.name, operand.layout, row.threads)
        held = copies(operand.layout, prod(operand.extents))
        if operand.scope == "shared" and held != row.threads:
            raise LayoutError("row-extents", f"{row.name}: {held} of {row.threads} threads see it")


def prove_copy(row: CopyRow) -> None:
    """Raise LayoutError unless both sides cover the piece and one side holds each bit once."""
    size = prod(row.extents)
    for side in (row.source, row.destination):
        _prove_threads(row.name, side, row.threads)
        if side.mode(1).size * row.threads != size * copies(side, size):
            raise LayoutError("row-extents", f"{row.name}: {side} on {size} bits")
    if 1 not in (copies(row.source, size), copies(row.destination, size)):
        raise LayoutError("row-extents", f"{row.name}: no side holds each bit once")


def _prove_threads(name: str, layout: Layout, threads: int) -> None:
    if layout.rank != 2 or layout.mode(0).size != threads:
        raise LayoutError("row-extents", f"{name}: {layout} is not over {threads} threads")
