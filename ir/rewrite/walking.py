"""Programs as kernels walk them: chains along the walked axes carried, carries along others whole.

A carry along an axis that a kernel has whole sees one block, the first: what it read as running is
its end value, what it read as the value before is what states start from, and nothing is corrected.
"""

from __future__ import annotations

from functools import lru_cache, reduce

from ir.builder import Graph, cast
from ir.ops.map import Constant, Iota, Map
from ir.ops.reduce import Carry, Now, Prior, Reduce, start_of
from ir.ops.store import Store
from ir.program import Program
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.streaming import stream
from ir.tiles import Tile


@lru_cache(maxsize=1024)
def walked(program: Program, looped: frozenset[str], joint: tuple[str, ...] = ()) -> Program:
    """The program as one walk over `looped` computes it, in as few passes as can be derived; along
    `joint` axes it goes together."""
    return stream(settled(program, looped), frozenset(program.axes) - looped, joint)


def settled(program: Program, looped: frozenset[str]) -> Program:
    """The program with every carry along an axis outside `looped` a plain reduction.

    `carry sum over k (exp(x - now(top)), factor=...)` becomes `reduce sum over k (exp(x - top))`.
    """
    whole = {
        position
        for position, node in enumerate(program.nodes)
        if isinstance(node.op, Carry) and not looped.issuperset(node.op.over)
    }
    if not whole:
        return program
    graph = graft(program)
    made: list[Tile | None] = []
    for position, node in enumerate(program.nodes):
        args = [tile for tile in (made[arg] for arg in node.args) if tile is not None]
        if isinstance(node.op, Store):
            graph.add(node.op, *args)
            made.append(None)
        elif position in whole and isinstance(node.op, Carry):
            made.append(graph.add(Reduce(node.op.kind, node.op.over), args[0]))
        elif isinstance(node.op, Now) and node.args[0] in whole:
            made.append(_start(graph, program, node.args[0]) if isinstance(node.op, Prior)
                        else args[0])  # fmt: skip
        else:
            made.append(copy_node(graph, program, position, args))
    return graph.program()


def _start(graph: Graph, program: Program, carry: int) -> Tile:
    """What the state of a carry starts from, at each of its points."""
    node = program.nodes[carry]
    assert isinstance(node.op, Carry)
    start = graph.add(Constant(start_of(node.op.kind, node.dtype), node.dtype))
    zeros = [graph.add(Map("mul"), graph.add(Iota(axis)), graph.constant(0, "i32"))
             for axis in node.axes]  # fmt: skip
    if not zeros:
        return start
    zero = reduce(lambda left, right: graph.add(Map("add"), left, right), zeros)
    return graph.add(Map("add"), start, cast(zero, node.dtype))
