"""Functions of a distance, computed once for each distance; and of coordinates, once for each.

A bias by the logarithm of the distance of two rows, a decay, a table by clipped distances: what is
made of two coordinates by their difference alone is the same all along a diagonal. It has a value
for each of n + m - 1 differences instead of n m pairs, and pairs read it:

    f(i - j)  =  T[i - j + m - 1],  T[d] = f(d - m + 1)

That is so where a value stays as it is when both coordinates go on by one. How values change then
is followed from node to node: coordinates by one, what is added or subtracted by as much, and what
else there is only if nothing that it is made of changes. Whatever does not vary along either
coordinate may be part of it (the head whose table it is).

What else is made of coordinates alone (the cosines of a transform of blocks, a rotation by place
that all heads share, the weights of a window) has few values where those are read at many more
points: it is kept in memory, and read there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations

from ir.builder import Graph
from ir.dtypes import is_float
from ir.errors import ProgramError
from ir.ops.base import volume
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.program import Node, Program
from ir.rewrite.graft import copy_node, graft
from ir.scalar import scalar_function
from ir.tiles import Tile

NAME = "tabulated"
WHY = "functions of coordinates, or of a difference of them, have fewer values than readers"
ROUNDING = "none: each value is computed as it was, once"
_COSTLY = 8  # operations that a function of its own, or reading at a computed place, counts as
_WORTH = 16  # operations of a value from which it is worth a table
_TABLES = 4
_LESS = 16  # times as many pairs as differences at least, and readers as values
_LARGEST = 1 << 22  # values of a table
_CHEAP = frozenset(
    {"add", "sub", "mul", "neg", "min", "max", "abs", "where", "and", "or", "not", "lt", "le",
     "gt", "ge", "eq", "ne", "shl", "shr", "bitand", "bitor", "xor"}
)  # fmt: skip
_SAME = frozenset({"min", "max", "lt", "le", "gt", "ge", "eq", "ne", "where"})


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two axes; `first` minus `second` is the difference."""

    first: str
    second: str

    def of(self, axes: tuple[str, ...]) -> bool:
        return self.first in axes or self.second in axes


@dataclass(frozen=True, slots=True)
class Found:
    """A program with tables; the first node that is one, and how many operations are spared where
    those that read it would compute it again at each of their points."""

    program: Program
    node: int
    spared: int


def tabulated(program: Program) -> Found | None:
    """The program with a table of every value that is worth one; None where none is."""
    found: Found | None = None
    for _ in range(_TABLES):
        here = found.program if found else program
        one = next(_made(here), None)
        if one is None:
            break
        node, spared = (found.node, found.spared) if found else (one.node, 0)
        found = Found(one.program, node, spared + one.spared)
    return found


def _made(program: Program) -> Iterator[Found]:
    for pair, position in _worth(program):
        with suppress(ProgramError):
            other = _with_table(program, pair, position)
            operations = _operations(program, pair, position)
            yield Found(other, position, operations * _points(program, position))
    for position, operations in _of_coordinates(program):
        with suppress(ProgramError):
            other = _kept(program, position)
            yield Found(other, position, operations * _points(program, position))


def _of_coordinates(program: Program) -> Iterator[tuple[int, int]]:
    """Costly values that are made of coordinates alone, and read at many more points, whole ones
    first; with their operations."""
    made: dict[int, frozenset[int]] = {}  # the nodes that a value is made of, itself among them
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Iota | Constant):
            made[position] = frozenset()
        elif isinstance(node.op, Map | Cast) and all(arg in made for arg in node.args):
            made[position] = frozenset((position,)).union(*(made[arg] for arg in node.args))
    ops = {position: program.nodes[position].op for position in made}
    own = {n: scalar_function(op.function).flops for n, op in ops.items() if isinstance(op, Map)}
    costs = {position: sum(own.get(n, 0) for n in nodes) for position, nodes in made.items()}
    for position in reversed(costs):
        node = program.nodes[position]
        values = volume(program.scope, node.axes)
        if not isinstance(node.op, Map) or not is_float(node.dtype) or costs[position] < _WORTH:
            continue
        if values <= _LARGEST and _points(program, position) >= _LESS * values:
            yield position, costs[position]


def _kept(program: Program, position: int) -> Program:
    """The program with a value read at its own points, which therefore lies in memory."""
    graph, made = graft(program), list[Tile]()
    for place, node in enumerate(program.nodes):
        tile = copy_node(graph, program, place, [made[arg] for arg in node.args])
        if place == position:
            tile = graph.add(Read(tuple(Index(((axis, 1),)) for axis in tile.axes)), tile)
        made.append(tile)
    return graph.program()


def _points(program: Program, position: int) -> int:
    """The points of the largest tile that is made of a value one by one."""
    pending, seen, most = [position], {position}, 0
    while pending:
        here = pending.pop()
        most = max(most, volume(program.scope, program.nodes[here].axes))
        users = {u for u in program.users(here) if isinstance(program.nodes[u].op, Map | Cast)}
        pending += users - seen
        seen |= users
    return most


def _worth(program: Program) -> Iterator[tuple[_Pair, int]]:
    """Values that are functions of a difference, whole ones first, and costly."""
    for pair in _pairs(program):
        changes = _changes(program, pair)
        for position in reversed(range(len(program.nodes))):
            node = program.nodes[position]
            if changes.get(position) != 0 or not {pair.first, pair.second} <= {*node.axes}:
                continue
            sizes = [program.axes[axis] for axis in (pair.first, pair.second)]
            if sizes[0] * sizes[1] < _LESS * max(1, sum(sizes) - 1):
                continue
            if isinstance(node.op, Map | Load) and _operations(program, pair, position) >= _WORTH:
                yield pair, position


def _pairs(program: Program) -> Iterator[_Pair]:
    """Axes whose coordinates meet in a value."""
    seen = dict.fromkeys(node.op.axis for node in program.nodes if isinstance(node.op, Iota))
    for one, other in combinations(seen, 2):
        if any({one, other} <= {*node.axes} for node in program.nodes):
            yield _Pair(one, other)


def _changes(program: Program, pair: _Pair) -> dict[int, int]:
    """By how much values change when both coordinates go on by one; without those of which that is
    not known, or not the same everywhere."""
    found: dict[int, int] = {}
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Iota):
            found[position] = int(node.op.axis in (pair.first, pair.second))
        elif not pair.of(node.axes):
            found[position] = 0
        elif all(arg in found for arg in node.args):
            change = _changed(program, node, [found[arg] for arg in node.args], pair)
            if change is not None:
                found[position] = change
    return found


def _changed(program: Program, node: Node, args: list[int], pair: _Pair) -> int | None:
    op = node.op
    if isinstance(op, Cast):
        return args[0] if not args[0] or not is_float(node.dtype) else None
    if isinstance(op, Load):
        along = (
            sum(c for axis, c in index.terms if axis in (pair.first, pair.second))
            for index in op.index
        )
        return None if any(args) or any(along) else 0
    if not isinstance(op, Map):
        return None
    if not any(args):
        return 0
    if is_float(node.dtype) and node.dtype != "bool":
        return None
    return _whole(program, op.function, node.args, args)


def _whole(program: Program, function: str, nodes: tuple[int, ...], args: list[int]) -> int | None:
    """Of whole numbers that change."""
    if function in ("add", "sub"):
        return args[0] + (args[1] if function == "add" else -args[1])
    if function == "neg":
        return -args[0]
    if function == "mul":
        numbers = [program.nodes[node].op for node in nodes]
        for number, change in ((numbers[0], args[1]), (numbers[1], args[0])):
            if isinstance(number, Constant):
                return int(number.value) * change
        return None
    if function in _SAME:
        compared = args[1:] if function == "where" else args
        if len({*compared}) == 1 and not (function == "where" and args[0]):
            return compared[0] if function in ("min", "max", "where") else 0
    return None


def _operations(program: Program, pair: _Pair, position: int) -> int:
    """What computing a value takes at each pair of coordinates."""
    total, pending, seen = 0, [position], {position}
    while pending:
        node = program.nodes[pending.pop()]
        if not pair.of(node.axes):
            continue
        if isinstance(node.op, Map):
            total += 1 if node.op.function in _CHEAP else _COSTLY
        elif isinstance(node.op, Load):
            total += _COSTLY
        pending += {*node.args} - seen
        seen.update(node.args)
    return total


def _with_table(program: Program, pair: _Pair, position: int) -> Program:
    """The program with a value read from a table of itself."""
    axes, name = program.axes, f"{pair.first}_{pair.second}"
    while name in axes:
        name += "_"
    behind = axes[pair.second] - 1
    extents = {**axes, name: axes[pair.first] + behind}
    graph, made = graft(program, extents=extents), list[Tile]()
    for place, node in enumerate(program.nodes):
        args = [made[arg] for arg in node.args]
        if place != position:
            made.append(copy_node(graph, program, place, args))
            continue
        table = _Table(graph, program, pair, name, made).at(position)
        index = tuple(
            Index(((pair.first, 1), (pair.second, -1)), behind) if axis == name else
            Index(((axis, 1),)) for axis in table.axes
        )  # fmt: skip
        made.append(graph.add(Read(index), table))
    return graph.program()


class _Table:
    """Makes values of pairs for differences: at the first coordinate that is one, and 0."""

    def __init__(
        self, graph: Graph, program: Program, pair: _Pair, name: str, made: list[Tile]
    ) -> None:
        self.graph, self.program, self.pair = graph, program, pair
        self.name, self.made = name, made
        self.behind = program.axes[pair.second] - 1
        self._known: dict[int, Tile] = {}

    def at(self, position: int) -> Tile:
        if position not in self._known:
            self._known[position] = self._tile(position)
        return self._known[position]

    def _tile(self, position: int) -> Tile:
        node, pair = self.program.nodes[position], self.pair
        if not pair.of(node.axes):
            return self.made[position]
        if isinstance(node.op, Iota):
            if node.op.axis == pair.second:
                return self.graph.add(Constant(0, node.dtype))
            far = self.graph.add(Constant(self.behind, node.dtype))
            return self.graph.add(Map("sub"), self.graph.add(Iota(self.name)), far)
        args = [self.at(arg) for arg in node.args]
        if isinstance(node.op, Load):
            return self.graph.add(self._load(node.op), *args)
        return copy_node(self.graph, self.program, position, args)

    def _load(self, op: Load) -> Load:
        return replace(op, index=tuple(map(self._index, op.index)))

    def _index(self, index: Index) -> Index:
        """The same place, told by the difference: both coordinates count alike, if one does."""
        ahead = sum(c for axis, c in index.terms if axis == self.pair.first)
        rest = tuple(t for t in index.terms if t[0] not in (self.pair.first, self.pair.second))
        terms = (*rest, (self.name, ahead)) if ahead else rest
        return replace(index, terms=terms, constant=index.constant - ahead * self.behind)
