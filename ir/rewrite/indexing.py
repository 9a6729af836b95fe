"""Indices of loads as far as they are sums of axes: what is affine in a computed index is a term.

Where `%3 = load(%2, tensor=K, index=[[0], d])` was at `%2 = map(%1, iota(axis=j), add)`, there is
`load(%1, tensor=K, index=[j + [0], d])`: lines of a tile along j lie one behind the other, wherever
they begin.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ir.ops.load import Load
from ir.ops.map import Constant, Iota, Map
from ir.program import Program
from ir.rewrite.graft import copy_node, graft
from ir.tiles import Tile

Terms = dict[str, int]
_NUMBER = ""  # of terms: what stands for no axis


@lru_cache(maxsize=256)
def indexed(program: Program) -> Program:
    """The same program with as little computed of its indices as there must be."""
    parts = {
        (position, index.gather): found
        for position, node in enumerate(program.nodes)
        if isinstance(node.op, Load)
        for index in node.op.index
        if index.gather is not None
        and (found := _parts(program, node.args[index.gather])) is not None
    }
    if not parts:
        return program
    graph = graft(program)
    made: dict[int, Tile] = {}
    for position, node in enumerate(program.nodes):
        args = [made[arg] for arg in node.args]
        if isinstance(node.op, Load):
            op = node.op
            for gather in range(len(args)):
                if (position, gather) in parts:
                    rest, terms = parts[position, gather]
                    args[gather] = made[rest]
                    op = _with_terms(op, gather, terms)
            made[position] = graph.add(op, *args)
        else:
            made[position] = copy_node(graph, program, position, args)
    return graph.program()


def _with_terms(op: Load, gather: int, terms: Terms) -> Load:
    along = {axis: factor for axis, factor in terms.items() if axis != _NUMBER}
    index = tuple(
        replace(
            one,
            terms=tuple((Terms(one.terms) | along).items()),
            constant=one.constant + terms.get(_NUMBER, 0),
        )
        if one.gather == gather
        else one
        for one in op.index
    )
    return replace(op, index=index)


def _parts(program: Program, position: int) -> tuple[int, Terms] | None:
    """What is left of an index without the axes that are added to it or subtracted, and these; None
    where there are none, or what is left varies along one of them."""
    terms: Terms = {}
    while (found := _taken_off(program, position)) is not None:
        position, (axis, factor) = found
        terms[axis] = terms.get(axis, 0) + factor
    axes = {*terms} - {_NUMBER}
    return (position, terms) if axes and not axes & {*program.nodes[position].axes} else None


def _taken_off(program: Program, position: int) -> tuple[int, tuple[str, int]] | None:
    """A sum or a difference as what is left of it without one axis or number, and that."""
    node = program.nodes[position]
    if not isinstance(node.op, Map) or node.op.function not in ("add", "sub"):
        return None
    (left, right), sign = node.args, 1 if node.op.function == "add" else -1
    first, second = _step(program, left), _step(program, right)
    if first is None and second is not None:
        return left, (second[0], sign * second[1])
    if second is None and first is not None and sign > 0:
        return right, first
    return None


def _step(program: Program, position: int) -> tuple[str, int] | None:
    """An axis, a multiple of one, or a number."""
    node = program.nodes[position]
    if isinstance(node.op, Iota):
        return node.op.axis, 1
    if isinstance(node.op, Constant):
        return _NUMBER, int(node.op.value)
    if isinstance(node.op, Map) and node.op.function == "mul":
        left, right = (program.nodes[arg].op for arg in node.args)
        if isinstance(left, Iota) and isinstance(right, Constant):
            return left.axis, int(right.value)
    return None
