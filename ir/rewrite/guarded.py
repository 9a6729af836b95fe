"""Terms of sums that count where conditions hold and are 0 elsewhere, however that is written.

`where(c, x, 0)`, `x * cast(c, "f32")` and a product with `cast(where(c, 1, 0), "bf16")` are terms
under conditions: what they are where these hold is found here, without one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ir.builder import Graph, cast, where
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Contract, Reduce
from ir.program import Program
from ir.rewrite.patterns import WIDE
from ir.tiles import Tile


@dataclass(frozen=True, slots=True)
class Line:
    """The coordinate of an axis and a number more."""

    axis: str
    more: int = 0


def line_of(program: Program, position: int) -> Line | None:
    """A tile as such; None if it is none."""
    node = program.nodes[position]
    if isinstance(node.op, Iota):
        return Line(node.op.axis)
    if not isinstance(node.op, Map) or node.op.function not in ("add", "sub"):
        return None
    left, right = (program.nodes[arg].op for arg in node.args)
    first, number = node.args[0], right
    if isinstance(left, Constant) and node.op.function == "add":
        first, number = node.args[1], left
    found = line_of(program, first)
    if found is None or not isinstance(number, Constant) or not float(number.value).is_integer():
        return None
    sign = 1 if node.op.function == "add" else -1
    return Line(found.axis, found.more + sign * int(number.value))


def terms_of(program: Program, position: int) -> tuple[int, ...]:
    """What a sum's terms are the product of; empty of other nodes."""
    op, args = program.nodes[position].op, program.nodes[position].args
    is_sum = isinstance(op, Contract) or (isinstance(op, Reduce) and op.kind == "sum")
    return args if is_sum and program.nodes[position].dtype in WIDE else ()


def conditions(program: Program, position: int) -> Iterator[int]:
    """The conditions without which a number is 0, each once."""
    truth = program.nodes[position].dtype == "bool"
    pending, seen = _each(program, position) if truth else [position], set[int]()
    while pending:
        here = pending.pop()
        node = program.nodes[here]
        if here in seen:
            continue
        seen.add(here)
        if node.dtype == "bool":
            yield here
        elif isinstance(node.op, Cast):
            pending += _each(program, node.args[0])
        elif _is_choice(program, here):
            pending += [node.args[1], *_each(program, node.args[0])]
        elif node.op == Map("mul"):
            pending += node.args


def _each(program: Program, condition: int) -> list[int]:
    """What all has to hold; a number that is none as it is."""
    node = program.nodes[condition]
    joined = node.op == Map("and") and all(program.nodes[a].dtype == "bool" for a in node.args)
    if not joined:
        return [condition]
    return [one for arg in node.args for one in _each(program, arg)]


def leaves(program: Program, position: int, condition: int) -> set[int]:
    """What a sum's terms are made of beside one of their conditions."""
    found, seen, pending = set[int](), set[int](), [*terms_of(program, position)]
    while pending:
        here = pending.pop()
        node = program.nodes[here]
        if here == condition or here in seen:
            continue
        seen.add(here)
        if condition in conditions(program, here) or condition in _each(program, here):
            pending += node.args[: 2 if _is_choice(program, here) else None]
        else:
            found.add(here)
    return found


def _is_choice(program: Program, position: int) -> bool:
    """Whether a node is a number or 0."""
    node = program.nodes[position]
    if node.op != Map("where"):
        return False
    other = program.nodes[node.args[2]].op
    return isinstance(other, Constant) and other.value == 0


@dataclass(frozen=True)
class Without:
    """What nodes of a program are without one condition, of tiles that were made of the others."""

    program: Program
    graph: Graph
    made: Mapping[int, Tile]
    condition: int
    known: dict[int, Tile | None] = field(default_factory=dict)

    def product(self, factors: tuple[int, ...], dtype: str) -> Tile:
        """A sum's term, in the sum's type."""
        found: Tile | None = None
        for factor in factors:
            tile = self.at(factor)
            if tile is not None:
                tile = cast(tile, dtype)
                found = tile if found is None else found * tile
        return self.graph.add(Constant(1, dtype)) if found is None else found

    def at(self, position: int) -> Tile | None:
        """A number without the condition, in its type; None for a one."""
        if position not in self.known:
            tile = self._at(position)
            dtype = self.program.nodes[position].dtype
            self.known[position] = None if tile is None else cast(tile, dtype)
        return self.known[position]

    def _at(self, position: int) -> Tile | None:
        node = self.program.nodes[position]
        if self.condition not in conditions(self.program, position):
            return self.made[position]
        if node.dtype == "bool":
            return self._rest(position)
        if isinstance(node.op, Cast):
            return self.at(node.args[0])
        if node.op == Map("mul"):
            left, right = (self.at(arg) for arg in node.args)
            if left is None or right is None:
                return right if left is None else left
            return left * right
        rest, tile = self._rest(node.args[0]), self.at(node.args[1])
        if rest is None:
            return None if self._is_one(node.args[1]) else tile
        if tile is None:
            tile = self.graph.add(Constant(1, node.dtype))
        return where(rest, tile, 0)

    def _rest(self, condition: int) -> Tile | None:
        """A condition without the one; None where nothing is left."""
        found: Tile | None = None
        for one in _each(self.program, condition):
            if one != self.condition:
                found = self.made[one] if found is None else found & self.made[one]
        return found

    def _is_one(self, position: int) -> bool:
        op = self.program.nodes[position].op
        return isinstance(op, Constant) and op.value == 1
