"""Masks as bounds of sums: blocks of points that a mask may leave, or leaves whole.

Where a mask compares what is read at a row with what is read at a summed point (the documents of
packed sequences, padding, rows that end where they say), or holds where one of several bounds does
(a prefix that all rows see), no bound of coordinates tells which points matter. But the least and
the most of what is compared, in blocks of rows and of points, tell for which blocks it may hold,
and for which it must (`ir.rewrite.intervals`). The first and the last of the former are bounds of a
row's sum; between the first and the last of the latter, if all there are such, nothing has to be
compared. So `mask` becomes

    first <= j and j < last and (begin <= j and j < end or mask)

which is the same truth value, of four small tables that are made first. Kernels skip by bounds of
what is read (`ir.rewrite.domain`). FlexAttention's block masks (Dong and others, 2024) are lists of
the same blocks, made by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import networkx as nx

from ir.axes import Axis
from ir.builder import Graph, cast, reduce, where
from ir.inputs import drawn
from ir.ops.load import Index, Load
from ir.ops.read import Read
from ir.ops.reduce import Contract
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.cutting import fresh
from ir.rewrite.domain import Condition, deciding, live_range, only_bounds
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.intervals import NUMBER, Blocks, Interval, Intervals
from ir.tiles import Tile, apply

NAME = "block-masks"
WHY = "the least and the most of data in blocks tell where a mask of them can hold"
ROUNDING = "the same roundings"
SHIFT = 6
LENGTH = 1 << SHIFT  # points of a block: the least that a tile of a product has
LARGEST = 1 << 22  # pairs of blocks in one table
DRAWN = 1 << 24  # elements of data that are drawn to see what a mask leaves


@dataclass(frozen=True, slots=True)
class Masked:
    """A choice that leaves out points of `axis` where its condition is not `holds`; `row`: the axis
    whose blocks have bounds of their own, one that products along `axis` have rows of; none where
    the condition is the same for all of them."""

    node: int
    holds: bool
    axis: str
    row: str


@dataclass(frozen=True, slots=True)
class Bounded:
    """A program with such bounds, the first choice that has some, and the share of the blocks of
    points that are left, of those that coordinates alone leave."""

    program: Program
    node: int
    share: float


def bounded(program: Program) -> Bounded | None:
    """The program with bounds of its masks of data; None where there are none, or none tells."""
    found = [mask for axis in program.axes for mask in _masked(program, axis)]
    shares = {mask: share for mask in found if (share := _share(program, mask)) < 1}
    if not shares:
        return None
    node = min(mask.node for mask in shares)
    return Bounded(_rebuilt(program, tuple(shares)), node, min(shares.values()))


def _masked(program: Program, axis: str) -> Iterator[Masked]:
    """Choices along an axis of products that are by data, or more than bounds of coordinates."""
    if program.axes[axis] <= 2 * LENGTH:
        return
    for node, holds in deciding(program, axis).items():
        axes = program.nodes[program.nodes[node].args[0]].axes
        rows = _rows(program, axis, node)
        row = max((one for one in rows if one in axes), key=program.axes.__getitem__, default="")
        condition = program.nodes[node].args[0]
        told = not _is_of_data(program, node, {axis, row})
        told = told and only_bounds(program, condition, holds)
        if not rows or axis not in axes or told:
            continue
        others = prod(program.axes[name] for name in axes if name not in (axis, row))
        blocks = prod(_count(program, name) for name in (axis, row) if name)
        if others * blocks <= LARGEST:
            yield Masked(node, holds, axis, row)


def _count(program: Program, axis: str) -> int:
    return -(-program.axes[axis] // LENGTH)


def _rows(program: Program, axis: str, node: int) -> set[str]:
    """Axes that products along `axis` have of what a choice is part of, and not of the other
    factor."""
    found: set[str] = set()
    above = {node, *nx.descendants(program.graph, node)}
    for one in program.nodes:
        if isinstance(one.op, Contract) and axis in one.op.over:
            for arg, other in zip(one.args, reversed(one.args), strict=True):
                if arg in above:
                    found |= {*program.nodes[arg].axes} - {*program.nodes[other].axes}
    return found


def _is_of_data(program: Program, node: int, axes: set[str]) -> bool:
    """Whether a choice's condition reads what varies along some axes."""
    made = (program.nodes[position] for position in _made_of(program, program.nodes[node].args[0]))
    return any(isinstance(one.op, Load) and axes & {*one.axes} for one in made)


def _made_of(program: Program, position: int) -> set[int]:
    """The nodes that a value is made of, itself included."""
    return {position, *nx.ancestors(program.graph, position)}


class _Tables:
    """In a graph, what there is of a mask in blocks of rows and of points."""

    def __init__(self, program: Program, graph: Graph, made: Mapping[int, Tile], mask: Masked):
        self.program, self.graph, self.made, self.mask = program, graph, made, mask
        self.blocks = {axis: self._blocks(axis) for axis in (mask.axis, mask.row) if axis}
        self.points, self.rows = self.blocks[mask.axis], self.blocks.get(mask.row)
        self._intervals = Intervals(program, graph, made, self.blocks)

    def _blocks(self, axis: str) -> Blocks:
        extent, taken = self.program.axes[axis], set(self.graph.extents)
        outer = self.graph.axis(fresh(f"{axis}_block", taken), _count(self.program, axis))
        inner = self.graph.axis(fresh(f"{axis}_point", taken), min(LENGTH, extent))
        return Blocks(outer, inner, extent)

    def holds(self, node: int, holds: bool) -> Interval | None:
        """Where the condition of a choice does, or does not; None where nothing is known."""
        found = self._intervals.of(self.program.nodes[node].args[0])
        if found is None or holds:
            return found
        return Interval(~found.most, ~found.least)

    def bounds(self) -> Tile | None:
        """Where there are points within the bounds of coordinates and of what is read, in each
        block by itself; None without such bounds."""
        found: Tile | None = None
        for condition in live_range(self.program, self.mask.axis):
            most = self._most(condition)
            if most is not None:
                inside = most >= 0.0
                found = inside if found is None else found & inside
        return None if found is None else found & (self.graph.iota(self.points.outer) >= 0)

    def _most(self, condition: Condition) -> Tile | None:
        """The most that a condition's expression is in a block; None where it reads what differs
        there."""
        total = self.graph.constant(float(condition.constant), NUMBER)
        for axis, factor in condition.terms:
            total = total + cast(self._end(axis, factor > 0), NUMBER) * float(factor)
        for node, factor in condition.reads:
            if node not in self.made or {*self.program.nodes[node].axes} & {*self.blocks}:
                return None
            total = total + cast(self.made[node], NUMBER) * float(factor)
        return total

    def _end(self, axis: str, last: bool) -> Tile:
        """The first or the last point of a block; of other axes, each point."""
        blocks = self.blocks.get(axis)
        if blocks is None:
            return self.graph.iota(Axis(axis, self.program.axes[axis]))
        first = self.graph.iota(blocks.outer) * blocks.length
        return apply("min", first + (blocks.length - 1), blocks.extent - 1) if last else first

    def span(self, holds: Tile) -> tuple[Tile, Tile]:
        """The first block of points in which something holds, and the one behind the last."""
        along, count = self.points.outer, self.points.outer.extent
        here = self.graph.iota(along)
        first = reduce("min", where(holds, here, count), along)
        return first, reduce("max", where(holds, here + 1, 0), along)

    def whole(self, holds: Tile) -> tuple[Tile, Tile]:
        """The same of what holds in all blocks between; where it does not, that of no block."""
        first, last = self.span(holds)
        here = holds & (self.graph.iota(self.points.outer) >= 0)
        count = reduce("sum", cast(here, "i32"), self.points.outer)
        return where(count == last - first, first, 0), where(count == last - first, last, 0)

    def is_between(self, span: tuple[Tile, Tile]) -> Tile:
        """Whether a point is in a span of blocks, at each row: compared with what is read."""
        first, last = (self._at_rows(end * LENGTH) for end in span)
        here = self.graph.iota(Axis(self.mask.axis, self.program.axes[self.mask.axis]))
        return (first <= here) & (here < last)

    def _at_rows(self, table: Tile) -> Tile:
        """A table, of blocks of rows if they differ, read from memory at each row."""
        outer = self.rows.outer.name if self.rows and self.rows.outer.name in table.axes else ""
        index = tuple(
            Index(gather=1) if axis == outer else Index(((axis, 1),)) for axis in table.axes
        )
        row = self.mask.row
        places = [self.graph.iota(Axis(row, self.program.axes[row])) >> SHIFT] if outer else []
        return self.graph.add(Read(index), table, *places)


def _rebuilt(program: Program, masks: Sequence[Masked]) -> Program:
    graph, made = graft(program), dict[int, Tile]()
    for position, node in enumerate(program.nodes):
        args = [made[arg] for arg in node.args]
        for mask in masks:
            if mask.node == position:
                args[0] = _with_bounds(_Tables(program, graph, made, mask), args[0])
        made[position] = copy_node(graph, program, position, args)
    return graph.program()


def _with_bounds(tables: _Tables, condition: Tile) -> Tile:
    mask = tables.mask
    found = tables.holds(mask.node, mask.holds)
    assert found is not None, "the share of what is left was found"
    wanted = condition if mask.holds else ~condition
    known = tables.is_between(tables.whole(found.least)) | wanted
    bounded = tables.is_between(tables.span(found.most)) & known
    return bounded if mask.holds else ~bounded


def _share(program: Program, mask: Masked) -> float:
    """Of the blocks along a mask's axis that its bounds leave, the share that is left by all masks,
    of data as they are drawn; 1 where nothing is known of them."""
    choices = deciding(program, mask.axis)
    inputs = tuple(spec for spec in program.inputs if prod(spec.shape) <= DRAWN)
    graph = Graph.like(program.name, program.axes, inputs, ())
    made: dict[int, Tile] = {}
    for position in _of_tensors(program, choices, {spec.name for spec in inputs}):
        node = program.nodes[position]
        made[position] = copy_node(graph, program, position, [made[arg] for arg in node.args])
    tables = _Tables(program, graph, made, mask)
    left: dict[bool, Tile] = {}  # by whether all choices are looked at, or their bounds
    for choice, holds in choices.items():
        known = program.nodes[choice].args[0] in made
        found = tables.holds(choice, holds) if known else None
        if found is None and choice == mask.node:
            return 1.0
        if found is not None:
            left[True] = left[True] & found.most if True in left else found.most
    bounds = tables.bounds()
    left |= {} if bounds is None else {False: bounds}
    for every, here in left.items():
        first, last = tables.span(here)
        graph.output(f"spans_{every}", apply("max", last - first, 0))
    small = graph.program()
    spans = evaluate(small, {spec.name: drawn(program, spec, 0) for spec in small.inputs})
    most = tables.points.outer.extent if False not in left else spans["spans_False"].mean()
    return float(spans["spans_True"].mean() / max(most, 1.0))


def _of_tensors(program: Program, choices: Iterable[int], tensors: set[str]) -> list[int]:
    """The nodes that conditions of choices are made of, where these read `tensors` alone."""
    found: set[int] = set()
    for choice in choices:
        own = _made_of(program, program.nodes[choice].args[0])
        ops = (program.nodes[position].op for position in own)
        if all(op.tensor in tensors for op in ops if isinstance(op, Load)):
            found |= own
    return sorted(found)
