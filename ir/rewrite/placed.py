"""Where the largest of products stands: the largest first, and then the first that is as large.

    argmax over j of v  =  min over j of (j where v = max over j of v)

Both are numbers of 32 bits, where a key of a value and its place has 64 (see `keyed`) and takes
twice the instructions; but the place waits for the whole maximum, so that a kernel has to have all
of v twice. A tile of products has: of an axis in parts no longer than a tile, `j = (part, in)`,
each part has its largest and its place, and the parts' are compared so once more. If some v is no
number the largest is none, and the first such v is the place. Nothing is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.builder import cast, where
from ir.dtypes import compute_dtype, is_float
from ir.errors import ProgramError
from ir.ops.map import Constant, Iota, Map
from ir.ops.reduce import Reduce
from ir.ops.top import Top
from ir.program import Program
from ir.rewrite.cutting import pruned
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.keyed import Pair, is_place, laid, pairs_of
from ir.rewrite.parting import cut
from ir.rewrite.tiered import PART, is_product, parts_of
from ir.tiles import Tile

NAME = "placed"
WHY = "the place of the largest is the first of what is as large"
ROUNDING = "the same roundings"
_FAR = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Places:
    """A place: of which values, along which axes, and their extreme."""

    value: int
    extreme: int
    index: int


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program with such places of products, and the first one's node; None without."""
    pairs = {p: pair for p, pair in pairs_of(program).items() if _is_one(program, p, pair)}
    axes = {axis for _, axis, _ in pairs.values()}
    long = [axis for axis in axes if program.axes[axis] > PART]
    if not pairs or len(long) > 1 or (long and not parts_of(program.axes[long[0]])):
        return None
    made = _in_two(program, pairs)
    if long:
        try:
            apart = cut(made, long[0], parts_of(program.axes[long[0]]))
        except ProgramError:
            return None
        made = _in_parts(apart, f"{long[0]}_part", f"{long[0]}_in")
    return min(pairs), made


def _is_one(program: Program, position: int, pair: Pair) -> bool:
    """Whether a node looks for one product alone."""
    op = program.nodes[position].op
    alone = not isinstance(op, Top) or program.axes[op.rank] == 1
    return alone and is_product(program, pair[0])


def _in_two(program: Program, pairs: dict[int, Pair]) -> Program:
    """The program with an extreme and a minimum of places for each pair."""
    graph, made = graft(program), list[Tile]()
    found: dict[Pair, tuple[Tile, Tile]] = {}
    for position, node in enumerate(program.nodes):
        pair = pairs.get(position)
        if pair is None:
            made.append(copy_node(graph, program, position, [made[arg] for arg in node.args]))
            continue
        if pair not in found:
            value, axis, kind = pair
            tile = cast(made[value], compute_dtype(program.nodes[value].dtype))
            extreme = graph.add(Reduce(kind, (axis,)), tile)
            index = where(_as_large(tile, extreme), graph.add(Iota(axis)), _FAR)
            found[pair] = extreme, graph.add(Reduce("min", (axis,)), index)
        tile = found[pair][is_place(node)]
        if isinstance(node.op, Top):
            tile = laid([tile], node.op.rank)
        made.append(cast(tile, node.dtype))
    return graph.program()


def _as_large(value: Tile, extreme: Tile) -> Tile:
    same = value == extreme
    return same | (value != value) if is_float(value.dtype) else same


def _in_parts(program: Program, outer: str, inner: str) -> Program:
    """The program with places along both axes found along the inner one first."""
    places = {p: one for p in range(len(program.nodes)) if (one := _place(program, p, outer))}
    extremes = {one.extreme: one.value for one in places.values()}
    graph, made = graft(program), list[Tile]()
    parts: dict[int, Tile] = {}
    for position, node in enumerate(program.nodes):
        if position in extremes:
            assert isinstance(node.op, Reduce)
            own = graph.add(Reduce(node.op.kind, (inner,)), made[extremes[position]])
            parts[position] = own
            made.append(graph.add(Reduce(node.op.kind, (outer,)), own))
        elif position in places:
            one = places[position]
            value, own = made[one.value], parts[one.extreme]
            first = where(_as_large(value, own), made[one.index], _FAR)
            there = graph.add(Reduce("min", (inner,)), first)
            whole = where(_as_large(own, made[one.extreme]), there, _FAR)
            made.append(graph.add(Reduce("min", (outer,)), whole))
        else:
            made.append(copy_node(graph, program, position, [made[arg] for arg in node.args]))
    return pruned(graph.program())


def _place(program: Program, position: int, outer: str) -> _Places | None:
    """A minimum of where(v = extreme, index, a constant) along the cut axis; None of others."""
    node, nodes = program.nodes[position], program.nodes
    if not isinstance(node.op, Reduce) or node.op.kind != "min" or outer not in node.op.over:
        return None
    test = nodes[node.args[0]]
    if not _is(test.op, "where") or not isinstance(nodes[test.args[2]].op, Constant):
        return None
    same = nodes[test.args[0]]
    same = nodes[same.args[0]] if _is(same.op, "or") else same
    if not _is(same.op, "eq"):
        return None
    value, extreme = same.args
    whole = nodes[extreme]
    if not isinstance(whole.op, Reduce) or whole.args != (value,):
        return None
    return _Places(value, extreme, test.args[1])


def _is(op: object, function: str) -> bool:
    return isinstance(op, Map) and op.function == function
