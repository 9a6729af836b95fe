"""States that sums read rounded, as states of their own.

A product takes a state of f32 as bf16. Rounded at the beginning of each step, it would be an array
that all have to wait for before they read it, and again before the next step writes it. Rounded
where the state gets its new value, it is a state more, ready when the step begins, and nobody
waits twice. The numbers are the same: a rounding of one element needs no other.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ir.dtypes import dtype_of, is_float
from ir.ops.map import Cast
from ir.ops.read import Read
from ir.ops.recur import Before, Recur
from ir.program import Program
from ir.rewrite.graft import copy_node, graft
from ir.stages import is_reduction, reduced_axes
from ir.tiles import Tile

_WIDE = 16  # bits above which a rounding saves nothing


@lru_cache(maxsize=256)
def with_rounded_states(program: Program) -> Program:
    """The program with a state for each rounding of another that sums read; itself if none do."""
    found = [position for position in range(len(program.nodes)) if _is_rounded(program, position)]
    if not found:
        return program
    graph, tiles = graft(program), dict[int, Tile]()
    made: dict[tuple[int, str], Tile] = {}
    for position, node in enumerate(program.nodes):
        args = [tiles[arg] for arg in node.args]
        if position in found:
            before = program.nodes[node.args[0]].op
            assert isinstance(before, Before)
            key = (node.args[0], node.dtype)
            if key not in made:
                first = graph.add(Cast(node.dtype), tiles[program.nodes[node.args[0]].args[0]])
                made[key] = graph.add(replace(before, label=f"{before.label} {key[1]}"), first)
            tiles[position] = made[key]
            continue
        tiles[position] = copy_node(graph, program, position, args)
        if isinstance(node.op, Recur):
            for (state, dtype), tile in made.items():
                if state == node.args[0]:
                    graph.add(node.op, tile, graph.add(Cast(dtype), args[1]))
    return graph.program()


def _is_rounded(program: Program, position: int) -> bool:
    """Whether a value is a state rounded to a narrow type that something sums or moves."""
    node = program.nodes[position]
    if not isinstance(node.op, Cast) or not is_float(node.dtype):
        return False
    before = program.nodes[node.args[0]]
    if not isinstance(before.op, Before) or dtype_of(node.dtype).bits > _WIDE:
        return False
    users = [program.nodes[user] for user in program.users(position)]
    return any(
        isinstance(user.op, Read)
        or (is_reduction(user) and bool({*reduced_axes(user)} & {*before.op.axes}))
        for user in users
    )
