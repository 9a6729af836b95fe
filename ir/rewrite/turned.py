"""Products whose operands stand in the order in which what is reduced goes along the second's axes.

A product is the same with its operands the other way round. Where what is made of it point by point
is reduced along axes of the first operand (sums of its columns, a softmax across its rows), and
along none of the second,

    reduce(f(contract(x, w)), over rows of x)  =  reduce(f(contract(w, x)), over rows of x)

has what is reduced along a row, as kernels have it that reduce what a product leaves in registers.
A few of many rows that are added up (heads of a query, each with a weight) stay as they are:
kernels have partial sums of those.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ir.ops.base import volume
from ir.ops.map import Cast, Map
from ir.ops.reduce import Contract, Reduce
from ir.program import Program
from ir.rewrite.graft import copy_node, graft
from ir.tiles import Tile

_FEW = 256  # rows of a tile


@lru_cache(maxsize=256)
def turned(program: Program) -> Program:
    """The same program with the operands of such products the other way round."""
    found = frozenset(_across(program))
    if not found:
        return program
    graph = graft(program)
    made: list[Tile] = []
    for position, node in enumerate(program.nodes):
        args = [made[arg] for arg in node.args]
        if position in found:
            made.append(graph.add(node.op, *args[::-1]))
        else:
            made.append(copy_node(graph, program, position, args))
    return graph.program()


def _across(program: Program) -> Iterator[int]:
    for position, node in enumerate(program.nodes):
        if not isinstance(node.op, Contract):
            continue
        first, second = ({*program.nodes[arg].axes} for arg in node.args)
        over = _reduced_behind(program, position) & {*node.axes}
        rows = first - second
        many = volume(program.scope, tuple(over & rows)) > _FEW or rows - {*node.op.over} <= over
        if over & rows and not over & (second - first) and many:
            yield position


def _reduced_behind(program: Program, position: int) -> set[str]:
    """The axes along which what is made of a value point by point is reduced, by no product."""
    found, pending, seen = set[str](), [position], set[int]()
    while pending:
        here = pending.pop()
        for user in program.users(here):
            op = program.nodes[user].op
            if isinstance(op, Reduce):
                found |= {*op.over}
            elif isinstance(op, Map | Cast) and user not in seen:
                seen.add(user)
                pending.append(user)
    return found
