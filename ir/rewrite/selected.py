"""Sums of which few terms count, because a coordinate is compared with a place: no term is zero.

A row chosen by a one-hot factor is read where it lies, and rows that are added up by one are sent:

    sum over v of where(v = i[t], e[v, d], 0)   =  e[i[t], d]
    sum over n of where(s[n] = j, x[n, d], 0)   =  scatter sum of x[n, d] to j = s[n]

Both are written so where a library has products of matrices and no gathers (a loss that picks its
label, rows of a table, counts, means of clusters). What is multiplied with zeros is taken to be
finite.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.builder import Graph, where
from ir.dtypes import dtype_of
from ir.ops.load import Index
from ir.ops.map import Map
from ir.ops.read import Read
from ir.ops.reduce import Contract, Reduce
from ir.ops.scatter import Scatter
from ir.program import Program
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.guarded import Line, Without, conditions, leaves, line_of, terms_of
from ir.rewrite.work import in_steps
from ir.tiles import Tile

NAME = "selected"
WHY = "of terms that count where a coordinate is at a place, that one is read, or sent there"
ROUNDING = "terms that are zero are not added"


@dataclass(frozen=True, slots=True)
class _Place:
    """A comparison of an axis' coordinate with a node, or with a line along another axis."""

    condition: int
    axis: str
    node: int
    line: Line | None


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program with every such sum as a read or a scatter, and the first one's node."""
    steps = in_steps(program)
    found = {
        position: place
        for position in range(len(program.nodes))
        if position not in steps and (place := _place(program, position)) is not None
    }
    if not found:
        return None
    graph, made = graft(program), dict[int, Tile]()
    for position, node in enumerate(program.nodes):
        if position in found:
            made[position] = _Made(program, graph, made).sum(position, found[position])
        else:
            args = [made[arg] for arg in node.args]
            made[position] = copy_node(graph, program, position, args)
    return min(found), graph.program()


def _place(program: Program, position: int) -> _Place | None:
    """The first comparison by which a sum has one term, or sends each term to one place."""
    terms = terms_of(program, position)
    for condition in (one for arg in terms for one in conditions(program, arg)):
        node = program.nodes[condition]
        if node.op != Map("eq"):
            continue
        for coordinate, other in (node.args, node.args[::-1]):
            line = line_of(program, coordinate)
            if line is None or line.more or line.axis in program.nodes[other].axes:
                continue
            if dtype_of(program.nodes[other].dtype).kind not in ("int", "uint"):
                continue
            place = _Place(condition, line.axis, other, line_of(program, other))
            if _is_read(program, position, place) or _is_sent(program, position, place):
                return place
    return None


def _over(program: Program, position: int) -> frozenset[str]:
    op = program.nodes[position].op
    assert isinstance(op, Contract | Reduce)
    return frozenset(op.over)


def _is_read(program: Program, position: int, place: _Place) -> bool:
    return place.axis in _over(program, position)


def _is_sent(program: Program, position: int, place: _Place) -> bool:
    """Whether nothing else of the terms varies along the axis, and the place is no line."""
    others = [program.nodes[one].axes for one in leaves(program, position, place.condition)]
    over = _over(program, position)
    whole = over | frozenset(program.nodes[position].axes)
    have = frozenset(program.nodes[place.node].axes).union(*others)
    return place.line is None and place.axis not in have and have == whole - {place.axis}


class _Made:
    """What sums become."""

    def __init__(self, program: Program, graph: Graph, made: dict[int, Tile]) -> None:
        self.program, self.graph, self.made = program, graph, made

    def sum(self, position: int, place: _Place) -> Tile:
        node = self.program.nodes[position]
        without = Without(self.program, self.graph, self.made, place.condition)
        term = without.product(terms_of(self.program, position), node.dtype)
        if not _is_read(self.program, position, place):
            return self._sent(term, node.axes, place)
        picked = self._read(term, place)
        rest = tuple(axis for axis in _over_in_order(node.op) if axis != place.axis)
        return self.graph.add(Reduce("sum", rest), picked) if rest else picked

    def _read(self, term: Tile, place: _Place) -> Tile:
        """The term at the place; 0 where there is none."""
        if place.axis not in term.axes:
            at = self.made[place.node]
            return where((at >= 0) & (at < self.program.axes[place.axis]), term, 0)
        line = place.line
        here = Index(gather=1) if line is None else Index(((line.axis, 1),), line.more)
        index = tuple(here if axis == place.axis else Index(((axis, 1),)) for axis in term.axes)
        tiles = [self.made[place.node]] if line is None else []
        return self.graph.add(Read(index, 0.0), term, *tiles)

    def _sent(self, term: Tile, axes: tuple[str, ...], place: _Place) -> Tile:
        index = tuple(
            Index(gather=1) if axis == place.axis else Index(((axis, 1),)) for axis in axes
        )
        return self.graph.add(Scatter("sum", axes, index), term, self.made[place.node])


def _over_in_order(op: object) -> tuple[str, ...]:
    assert isinstance(op, Contract | Reduce)
    return op.over
