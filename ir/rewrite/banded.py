"""Sums over a window that moves with a point as sums over all points, of which a band counts.

Keys that each query reads at an index of its own, x + s - 3, are no product of matrices: no two
queries have a factor in common. All of a row are, and those that are not in the window are masked:

    max over s of z[x, s],  z[x, s] = sum over d of q[x, d] k[x + s - 3, d]
        =  max over j of where(0 <= j - x + 3 < 7, sum over d of q[x, d] k[j, d], -inf)

with j = x + s - 3. So windows of attention that are written by what they read are kernels of its
own, on tensor cores, and loops end where masks do. Where a mask keeps places inside of the tensor,
and takes what is outside for nothing in every sum, the band stands in its place; where no place is
outside, it is a new one. An index that is kept inside is the same there. A row has a whole number
of the points that units sum at a time: those behind its end are read as 0, and masked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ir.bends import bends
from ir.builder import Graph, cast, where
from ir.dtypes import is_float
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Contract, Reduce
from ir.program import Node, Program
from ir.rewrite.digits import Sum, sums_of, tile_of
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.work import in_steps
from ir.tiles import Tile

NAME = "banded"
WHY = "of all points, those in a window count, which moves with what reads them"
ROUNDING = "the same terms, and zeros, in another order"
_UNIT = 16  # points that units sum at a time
_NOTHING = {"sum": 0.0, "max": -math.inf}  # what adds nothing to what is reduced


@dataclass(frozen=True)
class _Window:
    """The window's axis, the one along which it moves, what it reads along a dimension of `extent`
    points, by which loads; and the conditions that this is inside: no less than 0, not beyond."""

    axis: str
    along: str
    place: Sum
    extent: int
    loads: frozenset[int]
    low: frozenset[int]
    high: frozenset[int]


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program with all points of the last axis that has such a window, and the first node that
    reduces along it; None without."""
    if not any(isinstance(node.op, Reduce | Contract) for node in program.nodes):
        return None
    steps, sums = in_steps(program), sums_of(program)
    for axis in reversed(program.axes):
        ends = [p for p, node in enumerate(program.nodes) if axis in _over(node.op)]
        known = all(end not in steps and _kind(program.nodes[end]) in _NOTHING for end in ends)
        if not ends or not known or not _is_multiplied(program, axis):
            continue
        found = _window(program, axis, ends, sums)
        if found is not None:
            return ends[0], _Made(program, found, sums).program()
    return None


def _over(op: object) -> tuple[str, ...]:
    return op.over if isinstance(op, Contract | Reduce) else ()


def _kind(node: Node) -> str:
    """How floats are reduced; nothing of whole numbers, none of which is -inf."""
    if not is_float(node.dtype):
        return ""
    return node.op.kind if isinstance(node.op, Reduce) else "sum"


def _is_multiplied(program: Program, axis: str) -> bool:
    """Whether products of two factors have an axis, and are no products of matrices: all that one
    has, the other has as well, but for what is summed."""
    for node in program.nodes:
        if isinstance(node.op, Contract) and axis in node.axes:
            first, second = ({*program.nodes[arg].axes} for arg in node.args)
            narrow, wide = (first, second) if axis in second else (second, first)
            if axis not in narrow and {*node.op.over} <= narrow and len(narrow & wide) > 1:
                return True
    return False


def _window(
    program: Program, axis: str, ends: list[int], sums: Mapping[int, Sum]
) -> _Window | None:
    """None where something has the axis otherwise, or what is outside may count."""
    places: dict[tuple[tuple[tuple[str, int], ...], int, int], set[int]] = {}
    for position, node in enumerate(program.nodes):
        if axis not in node.axes:
            continue
        if not isinstance(node.op, Iota | Constant | Map | Cast | Load | Contract | Reduce):
            return None
        if isinstance(node.op, Load):
            read = _read(program, position, axis)
            if read is None:
                return None
            of, extent = read
            if extent:
                key = tuple(sorted(of.terms.items())), of.constant, extent
                places.setdefault(key, set()).add(position)
    if len(places) != 1:
        return None
    (((terms, constant, extent), loads),) = places.items()
    place = Sum(dict(terms), constant)
    others = [one for one in place.terms if one != axis]
    if len(others) != 1 or place.terms[others[0]] != 1 or abs(place.terms[axis]) != 1:
        return None
    low, high = (
        frozenset(c for c in some if all(_is_nothing(program, end, c) for end in ends))
        for some in _conditions(program, place, extent, sums)
    )
    first, last = place.bounds(program.axes)
    if (first < 0 and not low) or (last >= extent and not high):
        return None
    return _Window(axis, others[0], place, extent, frozenset(loads), low, high)


def _read(program: Program, position: int, axis: str) -> tuple[Sum, int] | None:
    """What a load reads by an axis and another one together, and of how many points; of none where
    it reads by the axis alone. None where it reads otherwise."""
    node = program.nodes[position]
    assert isinstance(node.op, Load)
    shape = program.scope.tensors[node.op.tensor].shape
    found: list[tuple[Sum, int]] = []
    bent = bends(program).get(position, {})
    for dim, (index, extent) in enumerate(zip(node.op.index, shape, strict=True)):
        gather = index.gather
        if gather is not None and axis in program.nodes[node.args[gather]].axes:
            if dim not in bent:
                return None
            found.append((bent[dim].of, extent))
        elif axis in dict(index.terms):
            if gather is not None:
                return None
            alone = index == Index(((axis, 1),))
            found.append((Sum(dict(index.terms), index.constant), 0 if alone else extent))
    if len(found) != 1:
        return None
    return found[0]


def _conditions(
    program: Program, place: Sum, extent: int, sums: Mapping[int, Sum]
) -> tuple[frozenset[int], frozenset[int]]:
    """The nodes that say that a place is no less than 0, and those that say that it is not beyond
    the last point, and no more."""
    low, high = set[int](), set[int]()
    for position, node in enumerate(program.nodes):
        if node.op not in (Map("le"), Map("lt")) or any(arg not in sums for arg in node.args):
            continue
        left, right = (sums[arg] for arg in node.args)
        less = right.plus(left, -1)  # at least 0, or with lt 1
        least = 1 if node.op == Map("lt") else 0
        below = less.plus(place, -1)
        above = less.plus(place)
        if not below.terms and below.constant == least:
            low.add(position)
        if not above.terms and above.constant - least == extent - 1:
            high.add(position)
    return frozenset(low), frozenset(high)


def _is_nothing(program: Program, end: int, condition: int) -> bool:
    """Whether what is reduced adds nothing where a condition does not hold."""
    args, known = program.nodes[end].args, dict[int, float | None]()
    for position in program.behind(args, lambda p: not _is_made(program, p)):
        before = [known.get(arg) for arg in program.nodes[position].args]
        known[position] = _made_of(program, position, condition, before)
    return _NOTHING[_kind(program.nodes[end])] in (known[arg] for arg in args)


def _is_made(program: Program, position: int) -> bool:
    return isinstance(program.nodes[position].op, Map | Cast)


def _made_of(
    program: Program, position: int, condition: int, args: list[float | None]
) -> float | None:
    """The number that a value is where a condition does not hold, if it is one: 0, or -inf."""
    node = program.nodes[position]
    op = node.op
    if isinstance(op, Constant):
        return float(op.value)
    if isinstance(op, Cast):
        return args[0] if is_float(node.dtype) or args[0] == 0 else None
    if not isinstance(op, Map):
        return None
    if op.function == "where":
        return args[2] if _needs(program, node.args[0], condition) else None
    if op.function == "exp":
        return 0.0 if args[0] == -math.inf else None
    if op.function in ("add", "sub") and args[0] == -math.inf:
        return args[0]  # what is added is finite
    if op.function == "add" and args[1] == -math.inf:
        return args[1]
    if op.function == "mul" and 0.0 in args:
        return 0.0
    return 0.0 if op.function == "div" and args[0] == 0 else None


def _needs(program: Program, position: int, condition: int) -> bool:
    """Whether a condition holds only where another one does."""
    node = program.nodes[position]
    if position == condition:
        return True
    return node.op == Map("and") and any(_needs(program, arg, condition) for arg in node.args)


class _Made:
    """A program with all points of a row in the place of a window's."""

    def __init__(self, program: Program, window: _Window, sums: Mapping[int, Sum]) -> None:
        self.old, self.window, self.sums = program, window, sums
        axis, sign = window.axis, window.place.terms[window.axis]
        self.row = next(  # a name for the points
            name for n in range(len(program.axes) + 1)
            if (name := f"{axis}_{n or 'row'}") not in program.axes
        )  # fmt: skip
        self.extent = -(-window.extent // _UNIT) * _UNIT
        # j = x + sign s + k, so that s = sign (j - x - k)
        self.moved = Sum({self.row: sign, window.along: -sign}, -sign * window.place.constant)

    def program(self) -> Program:
        old, window = self.old, self.window
        extents = {
            (self.row if name == window.axis else name):
                (self.extent if name == window.axis else extent)
            for name, extent in old.extents
        }  # fmt: skip
        graph = graft(old, extents=extents)
        place = tile_of(graph, self.moved)
        last = old.axes[window.axis] - 1
        ends = [place >= 0, place <= last]
        if self.extent > window.extent:
            high = int(window.place.terms[window.axis] > 0)  # the end that is farther along the row
            ends[high] = ends[high] & (graph.add(Iota(self.row)) < window.extent)
        there = (window.low, window.high)[:: window.place.terms[window.axis]]
        missing = [end for end, known in zip(ends, there, strict=True) if not known]
        made: dict[int, Tile] = {}
        for position, node in enumerate(old.nodes):
            args = [made[arg] for arg in node.args]
            if position in there[0] or position in there[1]:
                made[position] = ends[position in there[1]]
            elif position in self.sums and window.axis in self.sums[position].terms:
                made[position] = tile_of(graph, self._sum(self.sums[position]))
            elif isinstance(node.op, Load):
                made[position] = self._load(graph, position, node.op, args)
            elif window.axis in _over(node.op):
                made[position] = self._reduced(graph, position, args, missing)
            else:
                made[position] = copy_node(graph, old, position, args)
        return graph.program()

    def _sum(self, one: Sum) -> Sum:
        factor = one.terms[self.window.axis]
        return one.plus(Sum({self.window.axis: -factor})).plus(self.moved, factor)

    def _load(self, graph: Graph, position: int, op: Load, args: list[Tile]) -> Tile:
        axis, own = self.window.axis, self.old.nodes[position].args
        if axis not in self.old.nodes[position].axes:
            return graph.add(op, *args)
        here = position in self.window.loads
        index, kept = [], list[int]()
        for one in op.index:
            gather = one.gather
            reads = gather is not None and axis in self.old.nodes[own[gather]].axes
            if reads or (here and axis in dict(one.terms)):
                index.append(Index(((self.row, 1),)))
                continue
            if gather is not None:
                kept.append(gather)
                one = replace(one, gather=len(kept) - 1)
            if axis in dict(one.terms):
                made = self._sum(Sum(dict(one.terms), one.constant))
                one = Index(tuple(made.terms.items()), made.constant)
            index.append(one)
        inside = here and self.extent == self.window.extent
        fill = 0.0 if op.fill is None and not inside else op.fill
        made_op = replace(op, index=tuple(index), fill=fill)
        return graph.add(made_op, *(args[gather] for gather in kept))

    def _reduced(self, graph: Graph, position: int, args: list[Tile], missing: list[Tile]) -> Tile:
        """What is reduced along the row, without what no mask keeps out yet."""
        op = self.old.nodes[position].op
        assert isinstance(op, Contract | Reduce)
        over = tuple(self.row if name == self.window.axis else name for name in op.over)
        if missing:
            within = missing[0] if len(missing) == 1 else missing[0] & missing[1]
            nothing = _NOTHING[_kind(self.old.nodes[position])]
            has = next(n for n, arg in enumerate(args) if self.row in arg.axes)
            masked = where(within, args[has], nothing)
            args[has] = cast(masked, args[has].dtype)
        return graph.add(replace(op, over=over), *args)
