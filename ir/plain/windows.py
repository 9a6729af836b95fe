"""Loops whose steps need near points alone: which axes may be cut into tiles that overlap.

A step of a stencil needs each state at its own point and at some beside it. So a tile of the grid
with a margin around it goes through several steps by itself, each of which leaves a smaller part of
the margin known (overlapped tiling; Krishnamoorthy et al., PLDI 2007). Knows no target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ir.dtypes import dtype_of
from ir.loops import Carried, loops_of, widened
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read, is_itself
from ir.ops.recur import Before
from ir.ops.reduce import Contract, Reduce
from ir.plain.steps import Steps, steps_of
from ir.plain.wrapped import Turn, turn_of
from ir.program import Node, Program
from ir.stages import is_reduction, reduced_axes

_INSIDE = (Before, Map, Cast, Constant, Iota, Load, Read, Contract, Reduce)
_DIVIDED = ("floordiv", "mod")  # by what is anything: it may be 0
Margin = tuple[int, int]  # points below and above
WORD = 4  # neighbours of the last axis that are read together: rows begin at multiples


@dataclass(frozen=True, slots=True)
class Windows:
    """What a loop may be cut along: `axes`, and the `margins` along each that a step needs of the
    states before it, and of what it keeps in arrays (`kept`); `steps` there are. An element of a
    tile takes `bytes`, of so many `arrays`, and is made by `work` operations. At so many points at
    the `ends` indices go otherwise than elsewhere; `rings` are axes whose ends are beside each
    other."""

    axes: tuple[str, ...]
    extents: tuple[int, ...]
    margins: tuple[Margin, ...]
    kept: tuple[Margin, ...]
    steps: int
    bytes: int
    work: int = 1
    arrays: int = 1
    ends: tuple[Margin, ...] = ()
    rings: frozenset[str] = frozenset()

    def lost(self, steps: int) -> tuple[Margin, ...]:
        """Points of a tile that are right no more after so many steps, at both ends of each axis:
        the first step finds all that it needs of the states."""
        pairs = zip(self.margins, self.kept, strict=True)
        return tuple(
            ((steps - 1) * low + below, (steps - 1) * high + above)
            for (low, high), (below, above) in pairs
        )

    def own(self, tile: tuple[int, ...], steps: int) -> tuple[int, ...]:
        """Points of a tile that are right after so many steps, of those that each step computes."""
        pairs = zip(tile, self.lost(steps), strict=True)
        return tuple(extent - low - high for extent, (low, high) in pairs)

    def room(self, tile: tuple[int, ...]) -> int:
        """Bytes of a group's arrays."""
        wide = (
            low + extent + high
            for extent, (low, high) in zip(tile, self._beside(tile), strict=True)
        )
        return self.bytes * prod(wide)

    def _beside(self, tile: tuple[int, ...]) -> list[Margin]:
        """What an array has before and behind the points of a tile: the margins, and along the last
        axis whole words."""
        found = list(self.margins)
        if tile[-1] % WORD == 0:
            low, high = found[-1]
            found[-1] = (-(-low // WORD) * WORD, -(-high // WORD) * WORD)
        return found

    def sides(self, tile: tuple[int, ...], steps: int) -> dict[str, Side]:
        """How tiles, and arrays of them, lie along each axis."""
        found: dict[str, Side] = {}
        for n, (axis, extent) in enumerate(zip(self.axes, self.extents, strict=True)):
            low, high = self._beside(tile)[n]
            own, (lost, _) = self.own(tile, steps)[n], self.lost(steps)[n]
            wide = low + tile[n] + high
            found[axis] = Side(extent, tile[n], own, -(-extent // own), low, wide, low + lost)
        return found


@dataclass(frozen=True, slots=True)
class Side:
    """An axis of tiles: points of the grid, and of a tile those that a step computes and its `own`;
    how many tiles there are; of an array what lies before the first point that is computed (`low`),
    its elements (`wide`), and which one of them is the tile's `first` own."""

    extent: int
    tile: int
    own: int
    count: int
    low: int
    wide: int
    first: int


def windows_of(program: Program) -> Windows | None:
    """The tiles that the loop of a program may be cut into; None where there are none."""
    loops = loops_of(program)
    if len(loops) != 1 or program.axes[loops[0].axis] < 2:
        return None
    loop = widened(program, loops[0])
    steps = steps_of(program, loop)
    if not _is_plain(program, loop):
        return None
    axes = _tiled(program, loop, steps)
    margins = needed(program, loop, axes)
    states = [before for before, _ in loop.states]
    most, kept = _most(margins, states, len(axes)), _most(margins, steps.kept, len(axes))
    extents = tuple(program.axes[axis] for axis in axes)
    alike = len({frozenset(program.nodes[state].axes) for state in states}) == 1
    if not alike or not any(low + high for low, high in most):
        return None
    count = program.axes[loop.axis]
    size = _bytes(program, steps, states, axes)
    turns = [turn for turn in _turns(program, loop) if turn[0] in axes]
    ends = tuple(
        (max((t.ends[0] for own, t in turns if own == axis), default=0),
         max((t.ends[1] for own, t in turns if own == axis), default=0))
        for axis in axes
    )  # fmt: skip
    rings = frozenset(axis for axis, turn in turns if turn.wraps)
    work = sum(isinstance(program.nodes[p].op, Map | Cast | Read) for p in loop.inside)
    arrays = len(states) + len(steps.kept)
    return Windows(axes, extents, most, kept, count, size, work, arrays, ends, rings)


def _turns(program: Program, loop: Carried) -> list[tuple[str, Turn]]:
    """Indices of reads within a loop that bend at the ends of an axis, or go round it."""
    found = []
    for position in sorted(loop.inside):
        node = program.nodes[position]
        if isinstance(node.op, Read) and node.args[0] in loop.inside:
            for axis, index in zip(program.nodes[node.args[0]].axes, node.op.index, strict=True):
                turn = turn_of(program, position, axis, index)
                found += [(axis, turn)] if turn else []
    return found


def _most(margins: Mapping[int, list[Margin]], of: Sequence[int], axes: int) -> tuple[Margin, ...]:
    """The widest of several values."""
    return tuple(
        (max((margins[p][n][0] for p in of), default=0),
         max((margins[p][n][1] for p in of), default=0))
        for n in range(axes)
    )  # fmt: skip


def _bytes(program: Program, steps: Steps, states: Sequence[int], axes: tuple[str, ...]) -> int:
    """Of all arrays at a point of a tile: states twice, and what else is kept."""

    def of(position: int) -> int:
        node = program.nodes[position]
        own = (a for a in steps.group(node.axes) if a not in axes)
        return prod(program.axes[axis] for axis in own) * dtype_of(node.dtype).bytes

    return 2 * sum(map(of, states)) + sum(map(of, steps.kept))


def _is_plain(program: Program, loop: Carried) -> bool:
    """Whether values that are not right, of which a margin has some, do no harm."""
    for position in loop.inside:
        node = program.nodes[position]
        if not isinstance(node.op, _INSIDE):
            return False
        if isinstance(node.op, Load | Read):
            own = node.args[1:] if isinstance(node.op, Read) else node.args
            if not loop.inside.isdisjoint(own):
                return False  # a place that is anything
        if isinstance(node.op, Map) and not _is_harmless(node, node.op, loop):
            return False
    return True


def _is_harmless(node: Node, op: Map, loop: Carried) -> bool:
    """Whether a function takes whatever it is given."""
    if op.function in _DIVIDED:
        return node.args[1] not in loop.inside
    return op.function != "lookup" or loop.inside.isdisjoint(node.args)


def _tiled(program: Program, loop: Carried, steps: Steps) -> tuple[str, ...]:
    """Axes of all states along which a step goes by a fixed number of points, if at all."""
    nodes = program.nodes
    states = [before for before, _ in loop.states]
    shared = set(nodes[states[0]].axes).intersection(*(nodes[s].axes for s in states))
    found = shared - {loop.axis} - steps.points
    for position in loop.inside:
        node = nodes[position]
        if is_reduction(node):
            found -= set(reduced_axes(node))
        if isinstance(node.op, Read) and node.args[0] in loop.inside:
            found -= _turned(program, position)
    found -= _mixed(program, loop)
    for position in steps.histories:
        found &= set(nodes[position].axes)
    return tuple(axis for axis in nodes[states[0]].axes if axis in found)


def _turned(program: Program, read: int) -> set[str]:
    """Axes that a read goes along otherwise than by a known number of points, or by points of
    which a tile has but some."""
    node, found = program.nodes[read], set[str]()
    assert isinstance(node.op, Read)
    for axis, index in zip(program.nodes[node.args[0]].axes, node.op.index, strict=True):
        found |= {name for name, _ in index.terms} - {axis}
        if reach(program, read, axis, index) is None:
            found.add(axis)
    return found


def _mixed(program: Program, loop: Carried) -> set[str]:
    """Axes that some reads go round, and others go along otherwise."""
    turns = _turns(program, loop)
    rings = {axis for axis, turn in turns if turn.wraps}
    found = {axis for axis, turn in turns if not turn.wraps}
    for position in loop.inside:
        node = program.nodes[position]
        if isinstance(node.op, Read) and node.args[0] in loop.inside:
            for axis, index in zip(program.nodes[node.args[0]].axes, node.op.index, strict=True):
                if index.gather is None and not is_itself(axis, index):
                    found.add(axis)
    return rings & found


def reach(program: Program, read: int, axis: str, index: Index) -> tuple[int, int] | None:
    """By how many points at least and at most an index goes along an axis; None: by any number."""
    turn = turn_of(program, read, axis, index)
    if turn is not None:
        return turn.low, turn.high
    if index.gather is not None or dict(index.terms).get(axis) != 1:
        return None
    rest = replace(index, terms=tuple(term for term in index.terms if term[0] != axis))
    return rest.bounds(program.scope)


def needed(program: Program, loop: Carried, axes: tuple[str, ...]) -> Mapping[int, list[Margin]]:
    """How far beyond the points of new states a step needs each value inside of the loop."""
    found = {position: [(0, 0)] * len(axes) for position in loop.inside}
    for position in sorted(loop.inside, reverse=True):
        node = program.nodes[position]
        own = found[position]
        moves = [(0, 0)] * len(axes)
        if isinstance(node.op, Read) and node.args[0] in loop.inside:
            source = program.nodes[node.args[0]].axes
            places = dict(zip(source, node.op.index, strict=True))
            moves = [_reached(program, position, axis, places) for axis in axes]
        for arg in node.args:
            if arg in loop.inside:
                found[arg] = [
                    (max(a, low - least), max(b, high + most))
                    for (a, b), (low, high), (least, most)
                    in zip(found[arg], own, moves, strict=True)
                ]  # fmt: skip
    return found


def _reached(
    program: Program, read: int, axis: str, places: Mapping[str, Index]
) -> tuple[int, int]:
    found = reach(program, read, axis, places[axis]) if axis in places else (0, 0)
    assert found is not None  # what a tile goes along
    return found
