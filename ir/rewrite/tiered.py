"""The first few of a long axis, found in its parts and then among what these have.

Where the first `k` of an order along `j` are `k` maxima, each of the keys below the one before (see
`keyed`), every one of them needs the whole axis. Of an axis in parts, `j = (part, in)`, the first
`k` are among the first `k` of every part:

    max_r over j of key  =  max_r over (part, r') of (max_r' over `in` of key)

A part fits a tile: those of products are found before these are stored, and the parts of a long row
by different blocks. Nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ir.errors import ProgramError
from ir.ops.map import Cast, Constant, Map
from ir.ops.reduce import Contract, Reduce
from ir.program import Program
from ir.rewrite.cutting import pruned
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.keyed import MOST_RANKS, Ranks, among
from ir.rewrite.parting import cut
from ir.tiles import Tile

NAME = "tiered"
WHY = "the first few of an axis are among the first few of its parts"
ROUNDING = "the same roundings"
PART = 256  # points of a part, at most; tiles of products have as many columns
_LEAST_PART, _LONG = 64, 1024
_HELD, _WIDEST = 1 << 14, 256  # points of a row of which a block, or a tile of products, has all


@dataclass(frozen=True, slots=True)
class _Rounds:
    """Maxima of a key over the same axes, one after the other."""

    key: int
    over: tuple[str, ...]
    nodes: tuple[int, ...]


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program with the longest axis that has such maxima in parts, and the first one's node;
    None without."""
    found = [one for one in _rounds(program) if len(one.over) == 1 and len(one.nodes) > 1]
    for one in sorted(found, key=lambda one: -program.axes[one.over[0]]):
        (axis,) = one.over
        parts = parts_of(program.axes[axis])
        if not parts:
            continue
        try:
            apart = cut(program, axis, parts)
        except ProgramError:
            continue
        return one.nodes[0], _tiered(apart, (f"{axis}_part", f"{axis}_in"))
    return None


def parts_of(extent: int) -> int:
    """How many equal parts a long axis has; 0 for none."""
    sizes = range(PART, _LEAST_PART - 1, -1) if extent >= _LONG else ()
    return next((extent // size for size in sizes if extent % size == 0), 0)


def read_again(program: Program) -> int:
    """Bytes that maxima after the first read of rows which are too long to be held."""
    total = 0
    for one in _rounds(program):
        row = prod(program.axes[axis] for axis in one.over)
        if row > (_WIDEST if is_product(program, one.key) else _HELD):
            points = prod(program.axes[axis] for axis in program.nodes[one.key].axes)
            total += 4 * points * (len(one.nodes) - 1)
    return total


def is_product(program: Program, position: int) -> bool:
    """Whether a value is made of a sum, point by point."""
    pending, seen = [position], {position}
    while pending:
        node = program.nodes[pending.pop()]
        if isinstance(node.op, Contract):
            return True
        if isinstance(node.op, Map | Cast):
            pending += {*node.args} - seen
            seen.update(node.args)
    return False


def _rounds(program: Program) -> list[_Rounds]:
    """All such maxima: the first is of a key, the others of what is below the one before."""
    found: dict[tuple[int, tuple[str, ...]], list[int]] = {}
    for position, node in enumerate(program.nodes):
        if not isinstance(node.op, Reduce) or node.op.kind != "max" or node.dtype != "i64":
            continue
        (arg,) = node.args
        below = _below(program, arg)
        if below is None:
            found.setdefault((arg, node.op.over), []).append(position)
        elif found.get((below[0], node.op.over), [-1])[-1] == below[1]:
            found[below[0], node.op.over].append(position)
    return [_Rounds(key, over, tuple(nodes)) for (key, over), nodes in found.items()]


def _below(program: Program, position: int) -> tuple[int, int] | None:
    """The key and the bound of where(key < bound, key, a constant); None of other values."""
    node = program.nodes[position]
    if not isinstance(node.op, Map) or node.op.function != "where":
        return None
    condition, key, other = node.args
    test = program.nodes[condition]
    if not isinstance(test.op, Map) or test.op.function != "lt" or test.args[0] != key:
        return None
    return (key, test.args[1]) if isinstance(program.nodes[other].op, Constant) else None


def _tiered(program: Program, axes: Sequence[str]) -> Program:
    """The program with maxima over (part, in) in two tiers."""
    outer, inner = axes
    rounds = [one for one in _rounds(program) if set(one.over) == {outer, inner}]
    rounds = [one for one in rounds if 1 < len(one.nodes) <= MOST_RANKS]
    graph, made = graft(program), list[Tile]()
    ranks: dict[int, Sequence[Tile]] = {}
    places = {node: (one, place) for one in rounds for place, node in enumerate(one.nodes)}
    for position, node in enumerate(program.nodes):
        if position not in places:
            made.append(copy_node(graph, program, position, [made[arg] for arg in node.args]))
            continue
        one, place = places[position]
        if one.key not in ranks:
            own = Ranks(made[one.key], (inner,))
            count = len(one.nodes)
            firsts = [own.at(number) for number in range(count)]
            ranks[one.key] = among(firsts, (outer,), count)
        made.append(ranks[one.key][place])
    return pruned(graph.program())
