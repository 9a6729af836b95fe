"""Sums of very many terms along several axes as sums of sums.

A thread that adds up very many numbers of f32 one by one loses a part of each, always
to one side, and blocks share the terms of one axis alone. Of a norm of a whole tensor, or of what
all pairs of many points come to,

    reduce(x, over (i, j, k))  =  reduce(reduce(x, over (j, k)), over i)

has fewer terms in each of its sums, and many of the first ones side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from ir.ops.base import volume
from ir.ops.reduce import Contract, Reduce
from ir.program import Node, Program
from ir.rewrite.graft import copy_node, graft
from ir.tiles import Tile

MANY = 1 << 26  # terms of a sum; of twice as many, what each thread of a block has is too many
BESIDE = 512  # sums beside each other, that there is enough to do


@lru_cache(maxsize=256)
def levelled(program: Program) -> Program:
    """The same program with such sums in two levels, or in more."""
    while (found := _lowered(program)) is not None:
        program = found
    return program


def _lowered(program: Program) -> Program | None:
    levels = {
        position: outer
        for position, node in enumerate(program.nodes)
        if (outer := _outer(program, node))
    }
    if not levels:
        return None
    graph = graft(program)
    made: list[Tile] = []
    for position, node in enumerate(program.nodes):
        args = [made[arg] for arg in node.args]
        outer, op = levels.get(position, ()), node.op
        if outer and isinstance(op, Reduce | Contract):
            inner = tuple(axis for axis in op.over if axis not in outer)
            made.append(graph.add(Reduce("sum", outer), graph.add(replace(op, over=inner), *args)))
        else:
            made.append(copy_node(graph, program, position, args))
    return graph.program()


def _outer(program: Program, node: Node) -> tuple[str, ...]:
    """The axes along which the second of two sums goes; none where one is enough."""
    op = node.op
    if not isinstance(op, Reduce | Contract) or node.dtype != "f32" or not _adds(program, node):
        return ()
    over = [axis for axis in op.over if program.axes[axis] > 1]
    if len(over) < 2 or volume(program.scope, over) <= MANY:
        return ()
    return next(
        (some for some in _fronts(over) if _suffices(program, over, some)), tuple(over[:-1])
    )


def _fronts(over: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(over[:count]) for count in range(1, len(over))]


def _suffices(program: Program, over: Sequence[str], outer: Sequence[str]) -> bool:
    scope = program.scope
    beside = volume(scope, tuple(outer)) >= BESIDE
    return beside and volume(scope, tuple(over[len(outer) :])) <= MANY


def _adds(program: Program, node: Node) -> bool:
    """Whether it is a sum, no product of matrices: tensor cores add these up by blocks."""
    if isinstance(node.op, Contract):
        return all({*node.axes} <= {*program.nodes[arg].axes} for arg in node.args)
    return isinstance(node.op, Reduce) and node.op.kind == "sum"
