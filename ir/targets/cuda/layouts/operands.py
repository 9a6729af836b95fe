"""Operand tiles in shared memory as TMA writes them and wgmma reads them.

A tile is a row of panels; a panel has one line for each point of the other tiled axes, and a line
is up to 128 bytes along the axis that is contiguous in memory, swizzled over its own width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.layout.expressions import ZERO, Expression, scaled, total
from ir.layout.instructions.descriptor import Descriptor
from ir.ops.base import TensorSpec
from ir.ops.load import Index, Load
from ir.program import Program
from ir.targets.cuda.build.products import MAP_RANK, is_one_point
from ir.targets.cuda.launch import Parameter
from ir.targets.cuda.layouts.lines import MODE_OF_WIDTH, TileLines, line_swizzle
from ir.targets.cuda.layouts.reordered import Count, Way, reordered, reordering_problem

LINE = 128  # bytes of the widest line
ATOM = 8  # lines after which a swizzle repeats
MAX_BOX = 256


@dataclass(frozen=True, slots=True)
class Joined:
    """A dimension as it is indexed; `whole` are axes inside its one axis, the last one fastest."""

    index: Index
    extent: int
    whole: tuple[tuple[str, int], ...] = ()

    @property
    def factor(self) -> int:
        """Points of the dimension for each point of its axis."""
        return prod(extent for _, extent in self.whole)


@dataclass(frozen=True)
class OperandTile:
    """One operand of a product: its load, its tiles, which of its axes are summed over.

    `dimensions` are the tensor's, neighbours of which summed axes walk as one are joined. A `raw`
    tile is what a computed operand is made of: threads read it, tensor cores do not. `line`: bytes
    of a line in one panel, as the layout synthesis gives them; 0 before it is asked. `order`:
    digits (size, stride) of the points along the lines' axis in the order in which their lines lie;
    empty where these are one after the other. `pieces`: an axis along which its indices alone vary,
    and its points: they are copied one by one, the outermost of the lines.
    """

    position: int
    spec: TensorSpec
    dimensions: tuple[Joined, ...]
    tiles: tuple[tuple[str, int], ...]
    over: frozenset[str]
    extents: Mapping[str, int]
    raw: bool = False
    line: int = 0
    order: tuple[tuple[int, int], ...] = ()
    pieces: tuple[tuple[str, int], ...] = ()

    @cached_property
    def size(self) -> int:
        return dtype_of(self.spec.dtype).bytes

    @cached_property
    def _tiled(self) -> dict[str, int]:
        """Points along each tiled dimension, by its axis."""
        inside = {axis for d in self.dimensions for axis, _ in d.whole}
        factors = {a: d.factor for d in self.dimensions for a, c in d.index.terms if c == 1}
        inside |= {axis for axis, _ in self.pieces}
        points = {a: tile * factors.get(a, 1) for a, tile in self.tiles if a not in inside}
        return {axis: tile for axis, tile in points.items() if tile > 1}

    @cached_property
    def contiguous(self) -> str:
        """The axis of the innermost dimension that the tile runs along."""
        terms = self.dimensions[-1].index.terms
        tiled = [axis for axis, _ in terms if axis in self._tiled]
        return tiled[0] if tiled else next(axis for axis, c in terms if c == 1)

    @cached_property
    def lines(self) -> tuple[tuple[str, int], ...]:
        """The other tiled axes, outermost first: what the lines of a panel count."""
        axes = [axis for d in self.dimensions[:-1] for axis, _ in d.index.terms]
        own = tuple((axis, self._tiled[axis]) for axis in axes if axis in self._tiled)
        return (*self.pieces, *own)

    @property
    def times(self) -> int:
        """Copies of a panel."""
        return prod(points for _, points in self.pieces)

    def inside(self, axis: str) -> tuple[tuple[str, int], ...]:
        """The axes that one dimension's points count, with the points from one to the next; a piece
        counts its own."""
        if axis in dict(self.pieces):
            return ((axis, 1),)
        dimension = next(d for d in self.dimensions if (axis, 1) in d.index.terms)
        found = [(axis, dimension.factor)]
        for name, extent in dimension.whole:
            found.append((name, found[-1][1] // extent))
        return tuple(found)

    @cached_property
    def run(self) -> tuple[tuple[str, int], ...]:
        """The axes that the points of a line count."""
        return self.inside(self.contiguous)

    @property
    def gathers(self) -> tuple[tuple[int, int], ...]:
        """Which arguments of the load are indices, with the extents that they count."""
        found = ((d.index.gather, d.extent) for d in self.dimensions)
        return tuple((gather, extent) for gather, extent in found if gather is not None)

    @property
    def sums_inside(self) -> bool:
        """Whether lines run along the summed axis ("K-major")."""
        return self.contiguous in self.over

    @property
    def length(self) -> int:
        """Points along a line of the whole tile."""
        return self._tiled.get(self.contiguous, 1)

    @property
    def width(self) -> int:
        """Bytes of a line in one panel."""
        return self.line or min(LINE, self.length * self.size)

    @property
    def swizzle(self) -> int:
        """Bytes over which chunks of a line are exchanged; 0 for a tile without whole atoms."""
        return self.width if self.count % ATOM == 0 else 0

    @property
    def panel_points(self) -> int:
        return self.width // self.size

    @property
    def panels(self) -> int:
        return -(-self.length // self.panel_points)

    @property
    def count(self) -> int:
        """Lines of a panel."""
        return prod(tile for _, tile in self.lines)

    @property
    def panel_bytes(self) -> int:
        return self.count * self.width

    @property
    def bytes(self) -> int:
        return self.panels * self.panel_bytes

    @property
    def pitch(self) -> int:
        """Bytes from one slot of a ring to the next."""
        return -(-self.bytes // LINE) * LINE

    # -- addresses

    @cached_property
    def memory(self) -> TileLines:
        """Its lines, of which addresses are made."""
        return TileLines(self.count, self.width, line_swizzle(self.swizzle))

    def place(self, part: Callable[[str], Expression]) -> tuple[Expression, Expression]:
        """Line, and point along it, of what `part` gives for each axis."""
        inner = total(*(scaled(part(axis), factor) for axis, factor in self.run))
        line, weight = ZERO, 1
        for axis, points in reversed(self.lines):
            own = (scaled(part(name), factor * weight) for name, factor in self.inside(axis))
            line = total(line, *own)
            weight *= points
        return line, inner

    def offset(self, line: Expression, inner: Expression) -> Expression:
        """The byte at which a point of a line lies."""
        return self.memory.offset(line, scaled(inner, self.size))

    def problem(self) -> str:
        """Why tensor cores cannot read the tile; empty if they can."""
        if self.width not in MODE_OF_WIDTH:
            return f"lines of {self.width} bytes; 32, 64 or 128 are swizzled"
        if (self.length * self.size) % self.width and (self.sums_inside or self.raw):
            return f"{self.length} points do not fill panels of {self.panel_points}"
        if not self.sums_inside and self.size != 2 and not self.raw:
            return f"{self.spec.dtype} must be contiguous along the summed axis"
        if self.count % ATOM and not (self.raw and self.count == 1):
            return f"{self.count} lines; whole groups of {ATOM} are needed"
        if any(tile > MAX_BOX for _, tile in self.lines):
            return f"a box takes up to {MAX_BOX} points along an axis"
        summed = [axis for axis in self._tiled if axis in self.over]
        several = len(summed) > 1 or (not self.sums_inside and len(self.lines) > 1)
        several = several and not self._one_behind_another
        if several and not self.raw:
            return "one summed axis may be tiled, and one other beside a contiguous one"
        for d in self.dimensions:
            moving = [(a, c) for a, c in d.index.terms if a in self._tiled]
            if len(moving) > 1 or any(c != 1 for _, c in moving):
                return "a dimension runs along one tiled axis, step by step"
        return self.order_problem()

    @property
    def _one_behind_another(self) -> bool:
        """Whether the lines are all summed over, those of the innermost axis all there are."""
        axes = [axis for axis, _ in self.lines]
        whole = all(self.extents[axis] == tile for axis, tile in self.lines[1:])
        return whole and len(axes) == 2 and {*axes} <= self.over

    def order_problem(self) -> str:
        """Why TMA cannot leave lines in their order; empty if it can."""
        if not self.order:
            return ""
        if len(self.lines) != 1 or self.raw:
            return "lines in another order count one axis"
        dimension, step = self.dimensions[::-1][self._lines_at], self.order[-1][1]
        index, (axis, tile) = dimension.index, self.lines[0]
        parts = [dimension.extent, index.constant, *(c for a, c in index.terms if a != axis)]
        whole = not any(part % step for part in parts)
        plain = whole and index.gather is None and not dimension.whole
        return reordering_problem(self._plain_ways({axis: tile}), self._lines_at, self.order, plain)

    def parameter(self, slices: int, promotion: int) -> Parameter:
        """The tensor map for boxes of one panel, or a part of its lines.

        `promotion`: bytes that the L2 cache fetches at a time.
        """
        boxes = dict(self.lines)
        if slices > 1:
            first, tile = self.lines[0]
            if tile % slices or self.count // slices % ATOM:
                raise Refusal("multicast", f"{self.count} lines in {slices} parts")
            if self.order and tile // slices % self.order[-1][1]:
                raise Refusal("multicast", f"{tile} reordered lines in {slices} parts")
            boxes[first] = tile // slices
        ways = self._ways(boxes)
        return Parameter(
            self.spec.name, 0, self.spec.dtype, tuple(way.extent for way in ways),
            tuple(way.stride for way in ways[1:]), tuple(way.box for way in ways), self.swizzle,
            promotion,
        )  # fmt: skip

    def _ways(self, boxes: Mapping[str, int]) -> tuple[Way, ...]:
        """The dimensions of the tensor map, innermost first; `boxes`: lines along each axis."""
        found = self._plain_ways(boxes)
        return reordered(found, self._lines_at, self.order) if self.order else found

    def _plain_ways(self, boxes: Mapping[str, int]) -> tuple[Way, ...]:
        """The dimensions as they are."""
        found, stride = [], self.size
        for number, dimension in enumerate(reversed(self.dimensions)):
            moving = [axis for axis, _ in dimension.index.terms if axis in self._tiled]
            box = self.panel_points if not number else boxes[moving[0]] if moving else 1
            found.append(Way(self._reach(dimension), stride, box, (Count(number),)))
            stride *= dimension.extent
        return tuple(found)

    @cached_property
    def _lines_at(self) -> int:
        """Which dimension, counted from the innermost, has the axis that lines count."""
        (axis, _), dimensions = self.lines[0], self.dimensions[::-1]
        return next(n for n, d in enumerate(dimensions) if (axis, 1) in d.index.terms)

    def _reach(self, dimension: Joined) -> int:
        """Points of a dimension that are read: a plain axis may end before its tensor does."""
        index = dimension.index
        single = len(index.terms) == 1 and index.terms[0][1] == 1 and index.gather is None
        if single and not index.constant:
            return min(dimension.extent, self.extents[index.terms[0][0]] * dimension.factor)
        return dimension.extent

    def coordinates(
        self, origins: Mapping[str, str], panel: int, shift: str, piece: int = 0
    ) -> list[str]:
        """TMA coordinates of a panel, innermost first; `shift` moves the outermost lines."""
        found = []
        first = self.lines[0][0] if self.lines and not self.pieces else ""
        for number, dimension in enumerate(reversed(self.dimensions)):
            index, factor = dimension.index, dimension.factor
            parts = [
                origins[axis] if c * factor == 1 else f"{origins[axis]} * {c * factor}"
                for axis, c in index.terms
                if origins.get(axis, "0") != "0"
            ]
            if index.constant:
                parts.append(str(index.constant))
            if index.gather is not None:
                parts.append(origins[looked_up(self.position, index.gather, piece)])
            if not number and panel:
                parts.append(str(panel * self.panel_points))
            if shift and any(axis == first for axis, _ in index.terms):
                parts.append(shift)
            found.append(" + ".join(parts) or "0")
        if not self.order:
            return found
        return [way.coordinate(found) for way in self._ways(dict(self.lines))]

    # -- as wgmma reads it

    @property
    def descriptor(self) -> Descriptor:
        """That of its first step; others start further on."""
        return self.memory.descriptor(self.sums_inside)

    def step_offset(self, step: int, points: int, order: Sequence[tuple[str, int]] = ()) -> int:
        """Bytes from the tile's start to the `step`-th group of `points` summed points; `order`:
        the summed axes with their points, outermost first, of which groups are counted. Without,
        they are all the tile's own."""
        return self.memory.start(*self.step_place(step, points, order))

    def step_place(
        self, step: int, points: int, order: Sequence[tuple[str, int]] = ()
    ) -> tuple[int, int]:
        """The line, and the byte along it, at which that group of points begins."""
        start = self._own(step * points, order) if order else step * points
        return (0, start * self.size) if self.sums_inside else (start, 0)

    def _own(self, number: int, order: Sequence[tuple[str, int]]) -> int:
        """Which of the tile's summed points has that number among those of all axes in `order`."""
        digits = {}
        for axis, points in reversed(order):
            digits[axis], number = number % points, number // points
        if self.sums_inside:
            return sum(factor * digits.get(axis, 0) for axis, factor in self.run)
        own, weight = 0, 1
        for axis, points in reversed(self.lines):
            own += weight * sum(f * digits.get(name, 0) for name, f in self.inside(axis))
            weight *= points
        return own

    def free_offset(self, start: int) -> int:
        """Bytes to the point `start` of the axes that are not summed over."""
        if self.sums_inside:
            return self.memory.start(start, 0)
        if start % self.panel_points:
            raise Refusal("panels", f"a part starts at {start}, inside a panel")
        return self.memory.start(0, start * self.size)


def looked_up(position: int, gather: int, piece: int = 0) -> str:
    """Under which name origins have the index of a load that its argument `gather` tells."""
    return f"{position}[{gather}]" + (f".{piece}" if piece else "")


def operand_tile(
    program: Program,
    position: int,
    over: tuple[str, ...],
    tiles: Mapping[str, int],
    raw: bool = False,
) -> OperandTile:
    op = program.nodes[position].op
    assert isinstance(op, Load)
    axes = program.nodes[position].axes
    own = tuple((axis, tiles[axis]) for axis in axes)
    spec = program.scope.tensors[op.tensor]
    walked = {a: tile for a, tile in own if a in over and tile > 1}
    dimensions = joined(op, spec, walked, program.axes)
    there = {a for d in dimensions for a, _ in (*d.index.terms, *d.whole)}
    for axis, tile in own:
        if tile > 1 and len(spec.shape) > MAP_RANK and axis not in there:
            raise Refusal("operand", f"{spec.name}: {tile} points along {axis}, which has one")
    pieces = tuple(
        (axis, tile) for axis, tile in own
        if tile > 1 and axis in index_axes(program, position) and axis not in there
    )  # fmt: skip
    return OperandTile(
        position, spec, dimensions, own, frozenset(over), program.axes, raw, pieces=pieces
    )


def index_axes(program: Program, position: int) -> frozenset[str]:
    """The axes along which the indices of a load vary."""
    op = program.nodes[position].op
    gathers = (
        (index.gather for index in op.index if index.gather is not None)
        if isinstance(op, Load)
        else ()
    )
    args = program.nodes[position].args
    return frozenset(axis for gather in gathers for axis in program.nodes[args[gather]].axes)


def joined(
    op: Load, spec: TensorSpec, walked: Mapping[str, int], extents: Mapping[str, int]
) -> tuple[Joined, ...]:
    """The dimensions of a load; an axis of `walked` that a tile has whole joins the one around it.

    `walked`: tiles of the summed axes that have more than one point.
    """
    found: list[Joined] = []
    for index, extent in zip(op.index, spec.shape, strict=True):
        around = found[-1] if found else None
        here = _radix(Joined(index, extent), walked, extents)
        axis, inside = _only(here), dict(here.whole)
        full = axis in walked and walked[axis] == extents[axis] == extent // here.factor
        if around is not None and full and _along(around, walked):
            found.pop()
            whole = (*around.whole, (axis, extents[axis]), *inside.items())
            here = Joined(around.index, around.extent * extent, whole)
        found.append(here)
    if len(found) > MAP_RANK:
        return tuple(d for d in found if not is_one_point(extents, d.index, d.extent))
    return tuple(found)


def _only(dimension: Joined) -> str:
    """The axis along which a dimension is walked from its start, alone; empty if there is none."""
    index = dimension.index
    plain = [c for _, c in index.terms] == [1] and not index.constant and index.gather is None
    return index.terms[0][0] if plain else ""


def _along(dimension: Joined, walked: Mapping[str, int]) -> bool:
    """Whether a dimension is walked along one axis step by step, wherever it begins."""
    index = dimension.index
    moving = [c for axis, c in index.terms if axis in walked]
    return moving == [1] and not index.constant and index.gather is None


def _radix(dimension: Joined, walked: Mapping[str, int], extents: Mapping[str, int]) -> Joined:
    """A dimension whose index counts several walked axes, `outer * 2 + inner`, as one axis."""
    index, factor = dimension.index, 1
    whole: list[tuple[str, int]] = []
    moving = sorted(((c, a) for a, c in index.terms if a in walked), reverse=True)
    while len(moving) > 1 and moving[-1][0] == factor:
        _, axis = moving.pop()
        if walked[axis] != extents[axis]:
            return dimension
        whole.insert(0, (axis, extents[axis]))
        factor *= extents[axis]
    gone = {axis for axis, _ in whole}
    terms = tuple((a, c) for a, c in index.terms if a not in gone)
    moved = index.constant or index.gather is not None
    if not whole or moved or any(c % factor for _, c in terms):
        return dimension
    return Joined(
        Index(tuple((a, c // factor) for a, c in terms)), dimension.extent, tuple(whole)
    )  # fmt: skip
