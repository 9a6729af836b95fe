"""Tiles with a margin around them in arrays of a group: where their elements are, what lies beyond
the grid, loops over them. What is done with them is `ir.plain.overlapped`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from ir.loops import loops_of, widened
from ir.ops.load import Index, Load
from ir.ops.map import Iota
from ir.ops.read import Read
from ir.plain.block import Block
from ir.plain.code import GROUP, Array, Call, Element, Name, Scalar, Spread
from ir.plain.pieces import Overlap
from ir.plain.scalars import both, convert, flat, index, number, plus, times
from ir.plain.steps import steps_of
from ir.plain.values import Given, Point, Values
from ir.plain.windows import Windows
from ir.plain.wrapped import Turn, turn_of
from ir.program import Program
from ir.ranges import integer_range, narrowest, state_ranges

WIDE, TILE, OWN = "wide", "tile", "own"  # of an array: all, what steps compute, what is right
Made = Callable[[Block, Point], None]


@dataclass(frozen=True, slots=True)
class Kept:
    """A value in an array of the group: of the axes `own`, the tile's with a margin; `fill`: what
    it is outside of the grid, if all reads say the same."""

    array: Array
    own: tuple[str, ...]
    shape: tuple[int, ...]
    halves: bool
    fill: float | None


class TileArrays:
    """The arrays of tiles of one size, and scalars that say where a tile is. `edged`: what is
    written next is for tiles that leave the grid."""

    def __init__(self, values: Values, windows: Windows, overlap: Overlap) -> None:
        self.values, self.windows, self.overlap = values, windows, overlap
        self.program: Program = values.program
        self.loop = widened(self.program, loops_of(self.program)[0])
        self.plan = steps_of(self.program, self.loop)
        self.total = self.program.axes[self.loop.axis]
        self.steps = min(overlap.steps, self.total)
        self.single = overlap.rows == overlap.columns == 1  # points of an iteration
        self.rounds = -(-self.total // self.steps)
        self.skipped = self.rounds * self.steps - self.total  # steps that the first round has not
        self.sides = windows.sides(overlap.tile, self.steps)
        nodes = self.program.nodes
        first = nodes[self.loop.states[0][0]].axes
        self.points = values.points([axis for axis in first if axis in self.plan.points])
        names = values.names
        self.number = {axis: Name(names.fresh(f"tile_{axis}")) for axis in windows.axes}
        self.base = {axis: Name(names.fresh(f"base_{axis}")) for axis in windows.axes}
        self.edged = True  # whether what is written next is for tiles that leave the grid
        self.befores = [before for before, _ in self.loop.states]
        self.ranges = state_ranges(self.program, self.loop)
        self.kept = {p: self._array(p) for p in (*self.befores, *self.plan.kept)}
        self.edges = {axis: self._edges(axis) for axis in windows.axes}

    def _edges(self, axis: str) -> tuple[Name, Name]:
        """Names for where in an array the grid begins and where it ends along an axis."""
        names = self.values.names
        return Name(names.fresh(f"low_{axis}"), "i32"), Name(names.fresh(f"high_{axis}"), "i32")

    def _array(self, position: int) -> Kept:
        own = self.plan.group(self.program.nodes[position].axes)
        fill = self._fill(position)
        shape = tuple(self.wide(axis) for axis in own)
        halves = position in self.befores
        stored = narrowest(self.values.dtype(position), self._range(position, fill))
        array = self.values.array("tile", stored, (1 + halves) * prod(shape), GROUP)
        return Kept(array, own, shape, halves, fill)

    def _range(self, position: int, fill: float | None) -> tuple[int, int] | None:
        found = integer_range(self.program, position, self.ranges)
        if found is None or fill is None:
            return found
        return min(found[0], int(fill)), max(found[1], int(fill))

    def _fill(self, position: int) -> float | None:
        """What all reads of a value have outside of the grid, if they have the same."""
        nodes = self.program.nodes
        reads = [
            nodes[user].op
            for user in self.program.users(position)
            if user in self.loop.inside and isinstance(nodes[user].op, Read)
        ]
        fills = {op.fill for op in reads if isinstance(op, Read)}
        shifted = all(isinstance(op, Read) and self._is_shift(position, op) for op in reads)
        return next(iter(fills)) if len(fills) == 1 and shifted else None

    def _is_shift(self, position: int, op: Read) -> bool:
        """Whether a read is at its own point of what is no tile's."""
        pairs = zip(self.program.nodes[position].axes, op.index, strict=True)
        return all(
            place.terms == ((axis, 1),) and not place.constant and place.gather is None
            for axis, place in pairs
            if axis not in self.sides
        )

    def axes_of(self, before: int) -> tuple[str, ...]:
        """The axes of a state between steps."""
        axes = self.program.nodes[before].axes
        return tuple(axis for axis in axes if axis != self.loop.axis)

    def wide(self, axis: str) -> int:
        """Elements of an array along an axis."""
        return self.sides[axis].wide if axis in self.sides else self.program.axes[axis]

    def _region(self, axis: str, region: str) -> tuple[int, int]:
        """Where a region begins in an array, and its elements."""
        side = self.sides[axis]
        begins = {WIDE: (0, side.wide), TILE: (side.low, side.tile), OWN: (side.first, side.own)}
        return begins[region]

    def local(self, at: Point, axis: str) -> Scalar:
        """Where a coordinate is in an array."""
        if axis not in self.sides:
            return at[axis]
        return _without(at[axis], self.base[axis])

    def element(self, position: int, half: Scalar | None) -> Given:
        kept, dtype = self.kept[position], self.values.dtype(position)

        def found(_: Block, at: Point) -> Scalar:
            place = flat([self.local(at, axis) for axis in kept.own], kept.shape)
            if half is not None:
                place = plus(times(half, prod(kept.shape)), place)
            return Element(kept.array.name, place, dtype)

        return found

    def shifted(self, read: int, position: int, half: Scalar | None) -> Given:
        """A read of what is in an array, wherever it goes."""
        element, node = self.element(position, half), self.program.nodes[read]
        source = self.program.nodes[position].axes

        def found(block: Block, at: Point) -> Scalar:
            assert isinstance(node.op, Read)
            there: dict[str, Scalar] = {}
            for axis, one in zip(source, node.op.index, strict=True):
                turn = self.turn(read, axis, one)
                there[axis] = (
                    self.values.place(block, one, node.args, at)
                    if turn is None
                    else plus(at[axis], index(turn.inner))
                )
            return element(block, there)

        return found

    def turn(self, read: int, axis: str, place: Index) -> Turn | None:
        """How an index goes along a tile's axis, where it is by as many points everywhere: round a
        ring, or where no end of the axis is near."""
        found = turn_of(self.program, read, axis, place) if axis in self.sides else None
        return found if found and (found.wraps or not self.edged) else None

    def is_even(self, read: int, position: int) -> bool:
        """Whether some index of a read is such."""
        op = self.program.nodes[read].op
        assert isinstance(op, Read)
        pairs = zip(self.program.nodes[position].axes, op.index, strict=True)
        return any(self.turn(read, axis, place) for axis, place in pairs)

    def within(self, at: Point, axes: Sequence[str]) -> Scalar | None:
        """Whether a point of a tile is one of the grid."""
        found: Scalar | None = None
        for axis in axes if self.edged else ():
            if axis in self.sides and axis not in self.windows.rings:
                local = convert(self.local(at, axis), "i32")
                low, high = self.edges[axis]
                found = both(found, Call("le", (low, local), "bool"))
                found = both(found, Call("lt", (local, high), "bool"))
        return found

    def is_own(self, at: Point, known: bool) -> Scalar | None:
        """Whether a point is of the tile's own, if that is not `known`, and of the grid."""
        found: Scalar | None = None
        for axis, side in self.sides.items():
            local = convert(self.local(at, axis), "i32")
            if side.first > side.low and not known:
                found = both(found, Call("le", (number(side.first, "i32"), local), "bool"))
            if side.low + side.tile > side.first + side.own and not known:
                end = number(side.first + side.own, "i32")
                found = both(found, Call("lt", (local, end), "bool"))
            if self.edged and side.count * side.own > side.extent:
                found = both(found, Call("lt", (local, self.edges[axis][1]), "bool"))
        return found

    def known(self) -> dict[int, Given]:
        """What a step reads of tensors and coordinates, at points that may lie beyond the grid."""
        nodes, inside = self.program.nodes, self.loop.inside
        found, pending = set[int](), [*inside, *(nodes[a].args[1] for _, a in self.loop.states)]
        while pending:
            here = pending.pop()
            if here not in found and here not in self.befores:
                found.add(here)
                pending.extend(nodes[here].args)
        given: dict[int, Given] = {}
        for here in sorted(found):
            op = nodes[here].op
            if isinstance(op, Load):
                given[here] = self._loaded(here, op)
            elif isinstance(op, Iota) and op.axis in self.sides:
                given[here] = self._counted(op)
        return given

    def _loaded(self, position: int, op: Load) -> Given:
        """A tensor's element."""
        node = self.program.nodes[position]
        return lambda block, at: self.values.loaded(block, node, op, self.seen(block, at))

    def _counted(self, op: Iota) -> Given:
        """A coordinate."""
        return lambda block, at: convert(self.seen(block, at)[op.axis], "i32")

    def seen(self, block: Block, at: Point, rings: bool = False) -> dict[str, Scalar]:
        """A point, or the point of the grid that is nearest, or (along `rings` alone) the same."""
        return {axis: self._near(block, axis, place, rings) for axis, place in at.items()}

    def _near(self, block: Block, axis: str, place: Scalar, rings: bool) -> Scalar:
        ring = axis in self.windows.rings
        if not self.edged or axis not in self.sides or (rings and not ring):
            return place
        known = block.find(("near", axis, place))
        if known is not None:
            return known
        if ring:
            found: Scalar = Call("mod", (place, index(self.program.axes[axis])), "i64")
        else:
            low, high = self.edges[axis]
            last = Call("sub", (high, number(1, "i32")), "i32")
            local = convert(_without(place, self.base[axis]), "i32")
            there = Call("min", (Call("max", (local, low), "i32"), last), "i32")
            found = plus(self.base[axis], convert(there, "i64"))
        return block.keep(("near", axis, place), block.let(found, "near"))

    def spread(
        self, block: Block, kept: Kept, make: Made, region: str,
        writes: list[Callable[[], None]] | None = None,
    ) -> None:  # fmt: skip
        """What is done at all points of a region of an array. Several rows are one iteration's, all
        of which is computed before any of it is written."""
        inner = block.inner()
        several = self._several(kept) if region == TILE else {}
        variables, places = list[tuple[Name, int]](), dict[str, Scalar]()
        for axis, whole in zip(kept.own, kept.shape, strict=True):
            extent = self._region(axis, region)[1] if axis in self.sides else whole
            extent //= several.get(axis, 1)
            name = block.variable(axis)
            if extent > 1:
                variables.append((name, extent))
            places[axis] = name if extent > 1 else index(0)
        along = [
            [self._place(inner, axis, plus(times(places[axis], count), index(one)), region)
             for one in range(count)]
            for axis, count in ((axis, several.get(axis, 1)) for axis in kept.own)
        ]  # fmt: skip
        for here in product(*along):
            make(inner, {**self.points, **dict(zip(kept.own, here, strict=True))})
        for write in writes or ():
            write()
        block.add(Spread(tuple(variables), inner.body))

    def _several(self, kept: Kept) -> dict[str, int]:
        """Points of one iteration along the tile's axes: rows along the first, columns the last."""
        tiled = [axis for axis in kept.own if axis in self.sides]
        found = dict.fromkeys(tiled[-1:], self.overlap.columns)
        if len(tiled) > 1:
            found[tiled[0]] = self.overlap.rows
        return {a: count for a, count in found.items() if self.sides[a].tile % count == 0}

    def _place(self, block: Block, axis: str, place: Scalar, region: str) -> Scalar:
        """The coordinate of an element, of which only where it is in an array has a name."""
        if axis not in self.sides:
            return place
        local = plus(place, index(self._region(axis, region)[0]))
        return Call("add", (self.base[axis], block.named(local, "l")), "i64")


def _without(place: Scalar, base: Name) -> Scalar:
    """A coordinate less where the tile begins."""
    found = _beside(place, base)
    return Call("sub", (place, base), "i64") if found is None else found


def _beside(place: Scalar, base: Name) -> Scalar | None:
    """What is added to where the tile begins; None where that is no part of a sum."""
    if place == base:
        return index(0)
    if not isinstance(place, Call) or place.function != "add":
        return None
    left = _beside(place.args[0], base)
    return None if left is None else plus(left, place.args[1])
