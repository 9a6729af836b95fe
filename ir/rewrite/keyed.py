"""Where the largest element stands, found as a part of what is compared.

A pair of a value and its place, of which the larger value wins and the first of equals, is one
whole number of 64 bits: the value's bits in the order of numbers above, how far its place is from
the end below. The largest number has both, so an argmax is a maximum, which kernels take of tiles
in registers, of products before they are stored, in parts and streams, as they do any other:

    argmax over j of v  =  n - 1 - (max over j of (ordered(v) << 32) + n - 1 - j) mod 2^32

The few first of an order are as many maxima, each of the numbers below the one before: no two are
alike.

A NaN counts as larger than all else, as the merge has it. Nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from ir.builder import cast, where
from ir.dtypes import compute_dtype, is_float
from ir.functions import bitcast, maximum
from ir.merges import NAMED
from ir.ops.fold import Fold
from ir.ops.map import Cast, Iota
from ir.ops.reduce import Reduce
from ir.ops.store import Store
from ir.ops.top import Top
from ir.program import Node, Program
from ir.rewrite.graft import copy_node, graft
from ir.tiles import Tile

NAME = "keyed"
WHY = "a value and its place are one whole number, of which the largest has both"
ROUNDING = "the same roundings"
_KINDS = {NAMED["argmax"]: "max", NAMED["argmin"]: "min"}
MOST_RANKS = 8  # elements of an order that are looked for one after the other
_HIGH = 1 << 32
_LEAST = -(1 << 63)
_MOST = 0x7FFFFFFF  # the bits of a NaN, above those of every number
Pair = tuple[int, str, str]  # what is folded, along which axis, and which end is looked for


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program with every such fold as a maximum, and the first fold's node; None without."""
    folds = pairs_of(program)
    if not folds:
        return None
    graph, made, keys = graft(program), list[Tile](), dict[Pair, Ranks]()
    pairs = frozenset(folds.values())
    for position, node in enumerate(program.nodes):
        pair = folds.get(position) or _end(program, position, pairs)
        if pair is None:
            made.append(copy_node(graph, program, position, [made[arg] for arg in node.args]))
            continue
        if pair not in keys:
            value, axis, kind = pair
            key = _key(made[value], kind, (program.axes[axis] - 1) - graph.add(Iota(axis)))
            keys[pair] = Ranks(key, (axis,))
        if isinstance(node.op, Top):
            found = keys[pair].beside(node.op.rank, program.axes[node.op.rank])
        else:
            found = keys[pair].at(0)
        if is_place(node):
            made.append(cast((program.axes[pair[1]] - 1) - (found & (_HIGH - 1)), node.dtype))
        else:
            made.append(cast(_value(found, pair[2], program.nodes[pair[0]].dtype), node.dtype))
    return min(folds), graph.program()


class Ranks:
    """The largest keys over some axes, one after the other, each made when it is asked for."""

    def __init__(self, key: Tile, over: tuple[str, ...]) -> None:
        self.key, self.over = key, over
        self.found: list[Tile] = []
        self.tiles: dict[str, Tile] = {}

    def at(self, rank: int) -> Tile:
        """The key that `rank` others precede."""
        while len(self.found) <= rank:
            left = where(self.key < self.found[-1], self.key, _LEAST) if self.found else self.key
            self.found.append(self.key.graph.add(Reduce("max", self.over), left))
        return self.found[rank]

    def beside(self, rank: str, count: int) -> Tile:
        """The first ones as a tile along the axis `rank`."""
        if rank not in self.tiles:
            self.tiles[rank] = laid([self.at(number) for number in range(count)], rank)
        return self.tiles[rank]


def laid(tiles: Sequence[Tile], rank: str) -> Tile:
    """Tiles as one along an axis of as many points."""
    found, number = tiles[0], tiles[0].graph.add(Iota(rank))
    if len(tiles) == 1:  # the one point of the axis
        return where(number == 0, found, found)
    for place, tile in enumerate(tiles[1:], 1):
        found = where(number == place, tile, found)
    return found


def among(keys: Sequence[Tile], over: tuple[str, ...], count: int) -> list[Tile]:
    """The `count` largest of some keys at all points of `over`, one after the other."""
    found: list[Tile] = []
    for _ in range(count):
        left = [where(key < found[-1], key, _LEAST) for key in keys] if found else [*keys[:1]]
        most = left[0]
        for other in left[1:]:
            most = maximum(most, other)
        found.append(most.graph.add(Reduce("max", over), most))
    return found


def is_place(node: Node) -> bool:
    """Whether a node is where elements stand."""
    return node.op.where if isinstance(node.op, Top) else getattr(node.op, "part", 0) == 1


def pairs_of(program: Program) -> dict[int, Pair]:
    """The nodes that look for the largest (smallest), with what of."""
    found = ((position, pair_of(program, position)) for position in range(len(program.nodes)))
    return {position: pair for position, pair in found if pair is not None}


def pair_of(program: Program, position: int) -> Pair | None:
    """What a fold looks for the largest (smallest) of, and along which axis; None of others."""
    node = program.nodes[position]
    if isinstance(node.op, Top):
        return _ranked(program, node, node.op)
    if not isinstance(node.op, Fold) or node.op.keep or node.op.merge not in _KINDS:
        return None
    value, places = node.args
    axis, dtype = node.op.axis, compute_dtype(program.nodes[value].dtype)
    counted = program.nodes[places].op == Iota(axis)
    if not counted or dtype not in ("f32", "i32") or node.op.backward:
        return None
    return value, axis, _KINDS[node.op.merge]


def _ranked(program: Program, node: Node, op: Top) -> Pair | None:
    """The same of the first few of an order."""
    (value,) = node.args
    few = program.axes[op.rank] <= MOST_RANKS
    if not few or compute_dtype(program.nodes[value].dtype) not in ("f32", "i32"):
        return None
    return value, op.axis, "min" if op.least else "max"


def _end(program: Program, position: int, pairs: Set[Pair]) -> Pair | None:
    """The fold that has a stored maximum (minimum) of the same values as its own."""
    op, args = program.nodes[position].op, program.nodes[position].args
    if not isinstance(op, Reduce) or len(op.over) != 1 or not _is_stored(program, position):
        return None
    pair = (args[0], op.over[0], op.kind)
    return pair if pair in pairs else None


def _is_stored(program: Program, position: int) -> bool:
    """Whether a value is stored, perhaps as another dtype, and nothing else."""
    users = program.users(position)
    return all(
        isinstance(program.nodes[user].op, Store)
        or (isinstance(program.nodes[user].op, Cast) and _is_stored(program, user))
        for user in users
    )


def _key(value: Tile, kind: str, behind: Tile) -> Tile:
    """The number that is larger where the value is (smaller, if `kind` is "min"); among equals,
    where more elements are `behind`."""
    if is_float(value.dtype):
        value = cast(value, "f32")
        value = (-value if kind == "min" else value) + 0.0  # -0 is 0
        bits = _turned(bitcast(value, "i32"))
        high = cast(where(value == value, bits, _MOST), "i64")
    else:
        high = cast(value, "i64")
        high = -1 - high if kind == "min" else high
    return high * _HIGH + cast(behind, "i64")


def _value(key: Tile, kind: str, dtype: str) -> Tile:
    """The value that a key was made of."""
    high = key >> 32
    if not is_float(dtype):
        return -1 - high if kind == "min" else high
    value = bitcast(_turned(cast(high, "i32")), "f32")
    return -value if kind == "min" else value


def _turned(bits: Tile) -> Tile:
    """Bits of numbers in the order of the numbers, and back: those below 0 the other way round."""
    return bits ^ ((bits >> 31) & _MOST)
