"""Long axes in pieces: what a schedule says of it, the loops of a piece, and kernels of a step.

What is cut takes several kernels, one after the other, joined by tensors with a part for each
piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ir.ops.base import TensorSpec
from ir.plain.accesses import read, written
from ir.plain.block import Block
from ir.plain.code import Call, If, Loop, Name, PlainKernel, Scalar, Spread
from ir.plain.scalars import index, plus, times
from ir.plain.values import Values
from ir.plain.windows import Windows
from ir.program import Program

Make = Callable[[Block, Scalar], None]


@dataclass(frozen=True, slots=True)
class Overlap:
    """So many `steps` of a loop at a time, over tiles of so many points that a step computes along
    each axis, of which an iteration has so many `rows` and `columns` (`ir.plain.overlapped`)."""

    steps: int
    tile: tuple[int, ...]
    rows: int = 1
    columns: int = 1


@dataclass(frozen=True, slots=True)
class Ways:
    """How the work of a plain kernel is cut.

    `owners`: points that a scatter makes at least, each of which goes through all that is sent.
    `pieces`: parts of a long axis that are scattered, folded or searched by themselves, and merged
    in order. `atomic`: elements of a scatter are combined in memory, in any order. `ordered`: what
    a scatter sends is first put in the order of where it goes, and rows are put in order as a whole
    for their top. `shared`: a group of threads
    searches a row for its top, or combines what is sent in an array of its own before it does so
    in memory. `private`: workers of a group combine in arrays of their own, which are put together
    in an order of their own. `inner`: axes whose points have nothing to do with each other are
    loops within, not points of the kernel. `overlap`: steps of a loop are computed by tiles.
    """

    owners: int = 1
    pieces: int = 1
    atomic: bool = False
    inner: bool = False
    ordered: bool = False
    shared: bool = False
    private: bool = False
    overlap: Overlap | None = None


WHOLE = Ways()


@dataclass(frozen=True, slots=True)
class Choices:
    """What there is to choose: coordinates that may be cut into pieces, whether elements may be
    combined in any order, whether an output may be shared out, whether there are axes to be loops
    within, whether what is sent may be put in order, whether a group may search a row or combine in
    an array of its own, and whether each of its workers may; and the tiles that steps of a loop may
    be computed by."""

    longest: int = 0
    owners: bool = False
    atomic: bool = False
    inner: bool = False
    ordered: bool = False
    shared: bool = False
    private: bool = False
    windows: Windows | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """One of `count` parts of an axis: `length` coordinates, of the last one what is left."""

    axis: str
    extent: int
    variable: Name
    count: int
    length: int

    @classmethod
    def of(cls, values: Values, axis: str, wanted: int, stem: str = "piece") -> Piece:
        """Up to `wanted` pieces of an axis, as long as each other but for the last one."""
        extent = values.program.axes[axis]
        length = max(1, -(-extent // wanted))
        return cls(axis, extent, Name(values.names.fresh(stem)), -(-extent // length), length)

    @property
    def point(self) -> tuple[Name, int]:
        return self.variable, self.count

    @property
    def last(self) -> int:
        """Coordinates of the last piece."""
        return self.extent - (self.count - 1) * self.length

    @property
    def first(self) -> Scalar:
        return times(self.variable, self.length) if self.count > 1 else index(0)

    def lengths(self, block: Block, make: Callable[[Block, int], None]) -> None:
        """What is done with a piece, for each length that pieces have."""
        if self.last == self.length:
            make(block, self.length)
            return
        whole, last = block.inner(), block.inner()
        make(whole, self.length)
        make(last, self.last)
        more = Call("lt", (self.variable, index(self.count - 1)), "bool")
        block.add(If(more, whole.body, last.body))

    def looped(self, block: Block, make: Make, spread: bool = False) -> None:
        """A loop over the piece's coordinates; `spread`: its iterations do not meet."""

        def loop(outer: Block, length: int) -> None:
            variable, inner = outer.variable(self.axis), outer.inner()
            make(inner, inner.named(plus(self.first, variable), "p"))
            if spread:
                outer.add(Spread(((variable, length),), inner.body))
            else:
                outer.add(Loop(variable, length, inner.body))

        self.lengths(block, loop)


def parts_in(program: Program, kernels: Iterable[PlainKernel]) -> tuple[TensorSpec, ...]:
    """The tensors between the kernels of a step."""
    own = {spec.name for spec in program.tensors}
    found = {s.name: s for one in kernels for s in one.tensors if s.name not in own}
    return tuple(found.values())


def step(
    values: Values, block: Block, points: Iterable[tuple[Name, int]], cooperative: bool = False
) -> PlainKernel:
    """A kernel of several, with the tensors that it reads or writes: `values.arrays` has all."""
    reads, writes = read(block.statements), written(block.statements)
    used = reads | writes
    arrays = tuple(array for array in values.arrays if array.name in used)
    program = values.program
    tensors = [spec for spec in (*program.tensors, *values.parts) if spec.name in used]
    own = {spec.name for spec in values.parts}
    found = tuple(
        replace(s, role="output" if s.name in writes else "input") if s.name in own else s
        for s in tensors
    )
    return PlainKernel(program.name, found, arrays, tuple(points), block.body, cooperative)
