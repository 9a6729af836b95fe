"""Operand tiles in shared memory as cp.async or threads write them and ldmatrix reads them.

A tile is a row of panels of up to 128 bytes; a panel has one line for each point of the other
side. Parts of a line are exchanged by XOR with the line's number, as the layout synthesis finds it
for the instruction that reads fragments: the eight lines of one 8x8 matrix lie in different banks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ir.dtypes import dtype_of
from ir.layout.expressions import ZERO, Expression, constant, scaled
from ir.layout.printing import summand
from ir.layout.swizzle import Swizzle
from ir.ops.load import Load
from ir.program import Program
from ir.targets.cuda.build.products import largest_load, loads_of
from ir.targets.cuda.layouts.access import Access, load_access
from ir.targets.cuda.layouts.lines import TileLines, line_swizzle
from ir.targets.cuda.layouts.mma_synthesised import FragmentRead, fragment_read
from ir.targets.cuda.plans.sides import Side
from ir.targets.cuda.text.naming import text_name
from ir.targets.cuda.text.transfers import reach

CHUNK = 16  # bytes
LINE = 128  # bytes of the widest panel
WORD = 4  # bytes that an element of a raw tile may have
FEWEST = 4  # bytes that cp.async copies at least
STEP = 32  # bytes of one operand's row that one instruction sums over


@dataclass(frozen=True)
class StageTile:
    """One operand's tile of one block. `free` is its side of rows or columns, `depth` the sum's.

    `inside` says whether lines run along the sum. A tile that is not `copied` is computed. A `raw`
    tile is what a computed one is made of: threads read it, so it may lie either way.
    """

    program: Program
    position: int
    free: Side
    depth: Side
    raw: bool = False

    @cached_property
    def dtype(self) -> str:
        return self.program.nodes[self.position].dtype

    @cached_property
    def size(self) -> int:
        """Bytes of an element."""
        return dtype_of(self.dtype).bytes

    @cached_property
    def access(self) -> Access | None:
        """Addresses of an operand that is loaded as it is."""
        op = self.program.nodes[self.position].op
        if not isinstance(op, Load) or op.fill not in (None, 0.0):
            return None
        access = load_access(op, self.program.scope.tensors[op.tensor])
        return access if access.plain else None

    @property
    def stem(self) -> str:
        """What the tile is called in a kernel's text."""
        op = self.program.nodes[self.position].op
        return text_name(op.tensor) if isinstance(op, Load) else f"operand_{self.position}"

    @cached_property
    def inside(self) -> bool:
        if self.size == 1 and not self.raw:
            return True
        op = largest_load(self.program, self.position)
        if op is None or (self.size == 4 and self.access is None and not self.raw):
            return True
        last = {axis for axis, c in op.index[-1].terms if c == 1} if op.index else set()
        return not last & set(self.free.tiled) or bool(last & set(self.depth.tiled))

    @cached_property
    def read(self) -> FragmentRead | None:
        """How fragments are read from the tile; None for a raw one."""
        return None if self.raw else fragment_read(self.dtype, self.inside, self.width)

    @property
    def words(self) -> bool:
        """Whether fragments are read by single words."""
        return self.read is not None and not self.read.matrices

    @property
    def transposed(self) -> bool:
        """Whether matrices are transposed as they are read."""
        return self.read is not None and self.read.transposed

    @property
    def inner(self) -> Side:
        return self.depth if self.inside else self.free

    @property
    def outer(self) -> Side:
        return self.free if self.inside else self.depth

    @property
    def lines(self) -> int:
        return self.outer.size

    @property
    def width(self) -> int:
        """Bytes of a line in one panel."""
        return min(LINE, self.inner.size * self.size)

    @property
    def bytes(self) -> int:
        """Of the tile, rounded up so that tiles keep the swizzle's alignment."""
        return -(-self.lines * self.inner.size * self.size // 1024) * 1024

    # -- copies

    @cached_property
    def run(self) -> tuple[str, ...]:
        """Axes of the inner side along which memory is contiguous, the fastest first."""
        found: list[str] = []
        points = 1
        access = self.access
        if access is None:
            return ()
        for axis, tile, _ in self.inner.spans():
            if tile == 1:
                continue
            if access.stride(axis) != points:
                break
            found.append(axis)
            points *= tile
            if tile != self.program.axes[axis]:
                break
        return tuple(found)

    @cached_property
    def bounded(self) -> tuple[int, ...]:
        """Dimensions whose index may lie outside the tensor, where zeros are read."""
        op = self.program.nodes[self.position].op
        assert isinstance(op, Load)
        assert self.access is not None
        if op.fill is None:
            return ()
        return tuple(
            number
            for number, d in enumerate(self.access.dimensions)
            if (r := reach(d.terms, d.constant, self.program.axes))[0] < 0 or r[1] >= d.extent
        )

    @cached_property
    def copied(self) -> bool:
        """Whether chunks of the tile are copied from memory unchanged."""
        if self.access is None or not self.run:
            return False
        run = set(self.run)
        dimensions = self.access.dimensions
        return not any(run & {axis for axis, _ in dimensions[n].terms} for n in self.bounded)

    @cached_property
    def piece(self) -> int:
        """Bytes of one copy: 16, 8 or 4 by cp.async where all addresses allow, else an element."""
        assert self.access is not None
        tiles = dict(self.inner.axes)
        points = 1
        for axis in self.run:
            points *= tiles[axis]
        steps = [points, self.access.constant]
        named = {axis for d in self.access.dimensions for axis, _ in d.terms}
        steps += [self.access.stride(axis) for axis in named - set(self.run)]
        for width in (16, 8, 4):
            if width >= self.size and all(step * self.size % width == 0 for step in steps):
                return width
        return self.size

    @property
    def pieces(self) -> int:
        """Copies of a line of the whole tile."""
        return self.inner.size * self.size // self.piece

    # -- addresses

    @cached_property
    def memory(self) -> TileLines:
        """Its lines, of which addresses are made."""
        return TileLines(self.lines, self.width, self.swizzle)

    @property
    def swizzle(self) -> Swizzle:
        """Which chunks of a line are exchanged."""
        if self.read is not None:
            return self.read.within(self.width)
        return line_swizzle(self.width if self.width > CHUNK else 0)

    def offset(self, free: Expression, depth: Expression) -> Expression:
        """The byte at which a point of the tile lies."""
        inner, line = (depth, free) if self.inside else (free, depth)
        return self.byte(line, scaled(inner, self.size))

    def byte(self, line: Expression, byte: Expression) -> Expression:
        """Where a byte of a line lies."""
        return self.memory.offset(line, byte)

    def moved(self, start: str, line: int, inner: int) -> str:
        """`start` (a lane's swizzled offset) moved by lines and by bytes along them, which share
        no bit with the lane's own."""
        exchanged, added = self.memory.moved(constant(line), constant(inner))
        text = f"({start} ^ {exchanged})" if exchanged != ZERO else start
        return f"{text} + {summand(added)}" if added != ZERO else text


def raw_tiles(tile: StageTile) -> tuple[StageTile, ...]:
    """The loads of a computed tile that copies can fetch, as tiles of their own."""
    found = []
    for position in loads_of(tile.program, tile.position):
        axes = set(tile.program.nodes[position].axes)
        free = Side(tuple(part for part in tile.free.axes if part[0] in axes))
        depth = Side(tuple(part for part in tile.depth.axes if part[0] in axes))
        raw = StageTile(tile.program, position, free, depth, True)
        if depth.tiled and raw.size <= WORD and raw.copied and raw.piece >= FEWEST:
            found.append(raw)
    return tuple(found)


def depth_tiles(extents: Mapping[str, int], walked: tuple[str, ...], depth: int) -> dict[str, int]:
    """`depth` points spread over the walked axes: whole inner axes where they are powers of two."""
    tiles = dict.fromkeys(walked, 1)
    for axis in reversed(walked):
        extent = extents[axis]
        whole = extent & (extent - 1) == 0 and extent < depth and axis != walked[0]
        tiles[axis] = extent if whole else depth
        depth //= tiles[axis]
        if not whole:
            break
    return tiles
