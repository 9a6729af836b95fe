"""What a hardware instruction is to a layout: a frozen row that proves itself when it is made.

Owns the shapes of rows and their proof. Knows no single instruction and executes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from ir.layout.errors import LayoutError
from ir.layout.layout import Layout
from ir.layout.tree import IntTree
from ir.layout.widths import bits

SCOPES = ("register", "shared", "global")
PTX_SUFFIX = {"i8": "s8", "i4": "s4", "i32": "s32"}
REGISTER = 32
TWIN = ".swap"


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

    @property
    def values(self) -> int:
        """Elements that one thread holds."""
        return self.layout.mode(1).size

    @property
    def registers(self) -> int:
        """32-bit registers of one thread for the row's own type; 0 for a shared operand."""
        return 0 if self.scope == "shared" else -(-self.values * bits(self.dtype) // REGISTER)


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """D[m, n] = sum over k of A[m, k] B[n, k] + C[m, n], by `threads` threads together.

    On a CPU, a "thread" is one 32-bit lane of a vector, or one row of an AMX tile.
    `requires` is the least target ("sm_80", "sm_90a", or a CPU feature such as "avx512f").
    `swapped`: the row computes the transposed product, so the machine's A is this row's B.
    """

    name: str
    kind: str
    threads: int
    a: Operand
    b: Operand
    c: Operand
    requires: str
    cost: Cost
    swapped: bool = False

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

    @property
    def flops(self) -> int:
        """Multiplications and additions of one issue."""
        return 2 * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class Path:
    """A legal pair of memory scopes of a copy, and what one issue costs there."""

    source: str
    destination: str
    cost: Cost


@dataclass(frozen=True, slots=True)
class CopyRow:
    """A copy by `threads` threads of `bits` bits each.

    `source` and `destination` map (thread, bit) to the bit index of the piece copied, whose
    `extents` are (bits of a row, rows), colexicographic; stride 0 over threads whose address is
    ignored. `alignment`: bytes of each address on the memory side. `matrices` and `transposed`
    belong to ldmatrix and stmatrix; `dtypes` is empty where the type does not matter.
    """

    name: str
    kind: str
    threads: int
    bits: int
    alignment: int
    extents: tuple[int, int]
    source: Layout
    destination: Layout
    paths: tuple[Path, ...]
    requires: str
    matrices: int = 0
    transposed: bool = False
    dtypes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        prove_copy(self)

    @property
    def sm(self) -> int:
        return minimal_sm(self.requires)

    @property
    def wavefronts(self) -> int:
        """Passes over the 128-byte wide shared memory of a full warp without a bank conflict."""
        lanes = 32
        moved = prod(self.extents) if self.threads == lanes else lanes * self.bits
        return max(1, moved // 1024)

    def path(self, source: str, destination: str) -> Path:
        """The path between two scopes; LayoutError "illegal-scope" names those there are."""
        for path in self.paths:
            if (path.source, path.destination) == (source, destination):
                return path
        known = ", ".join(f"{path.source} to {path.destination}" for path in self.paths)
        raise LayoutError(
            "illegal-scope", f"{self.name}: {source} to {destination} asked, it goes {known}"
        )


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
    reduces: bool = False
    dtypes: tuple[str, ...] = ()

    @property
    def sm(self) -> int:
        return minimal_sm(self.requires)


Row = MatrixRow | CopyRow | TmaRow


def minimal_sm(requires: str) -> int:
    """ "sm_90a" -> 90; 0 for a CPU feature."""
    return int(requires[3:].rstrip("af")) if requires.startswith("sm_") else 0


def suffix(dtype: str) -> str:
    """The type's name in PTX ("i8" -> "s8")."""
    return PTX_SUFFIX.get(dtype, dtype)


@lru_cache(maxsize=1024)
def copies(layout: Layout, size: int) -> int:
    """How many times `layout` covers [0, size), every index equally often.

    A layout without zero strides is a bijection onto [0, size) exactly if its modes, sorted by
    stride, have the running products as strides: an exact proof without a table. LayoutError
    "row-not-bijective" otherwise.
    """
    times = reached = 1
    for stride, extent in sorted((stride, extent) for extent, stride in layout.flat()):
        if stride == 0:
            times *= extent
        elif stride == reached or extent == 1:
            reached *= extent
        else:
            raise LayoutError(
                "row-not-bijective", f"{layout}: stride {stride} where {reached} was due"
            )
    if reached != size:
        raise LayoutError("row-not-bijective", f"{layout} covers {reached} of {size} indices")
    return times


def swapped(row: MatrixRow) -> MatrixRow:
    """The transposed twin: D' = B A' on the same fragments, so m and n change places.

    `swapped(swapped(row)) == row`. The twin's A is the machine's second operand.
    """
    m, n = row.c.extents
    stride = _transpose_strides(row.c.layout.stride, m, n)
    c = replace(row.c, extents=(n, m), layout=Layout(row.c.layout.shape, stride))
    name = row.name.removesuffix(TWIN) if row.swapped else row.name + TWIN
    return replace(row, name=name, a=row.b, b=row.a, c=c, swapped=not row.swapped)


def in_elements(row: CopyRow, dtype: str) -> tuple[Layout, Layout]:
    """Source and destination of a copy with elements of `dtype` in place of bits.

    Both map (thread, element) to the element's index in the piece of extents (row bits / width,
    rows). LayoutError "element-width" where an element is wider than what moves together.
    """
    width = bits(dtype)
    return _widen(row, row.source, width), _widen(row, row.destination, width)


def _widen(row: CopyRow, layout: Layout, width: int) -> Layout:
    together = next(extent for extent, stride in layout.mode(1).flat() if stride == 1)
    if together % width:
        raise LayoutError(
            "element-width", f"{row.name}: {together} bits move together, an element has {width}"
        )
    shape = _divide_unit(layout.shape, layout.stride, width)
    return Layout(shape, _divide_strides(layout.stride, width))


def _divide_unit(shape: IntTree, stride: IntTree, width: int) -> IntTree:
    if isinstance(shape, int):
        return shape // width if stride == 1 else shape
    assert isinstance(stride, tuple)
    return tuple(_divide_unit(s, d, width) for s, d in zip(shape, stride, strict=True))


def _divide_strides(stride: IntTree, width: int) -> IntTree:
    if isinstance(stride, int):
        return stride if stride == 1 else stride // width
    return tuple(_divide_strides(part, width) for part in stride)


def _transpose_strides(stride: IntTree, m: int, n: int) -> IntTree:
    """Strides in m + M n as strides in n + N m."""
    if isinstance(stride, int):
        return stride * n if stride < m else stride // m
    return tuple(_transpose_strides(part, m, n) for part in stride)


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
