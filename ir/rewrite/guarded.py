"""Terms of sums that count where conditions hold and are 0 elsewhere, however that is written.

`where(c, x, 0)`, `x * cast(c, "f32")` and a product with `cast(where(c, 1, 0), "bf16")` are terms
under conditions: what they are where these hold is found here, without one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ir.builder import Graph, cast, where
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Contract, Reduce
from ir.program import Program
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
    if found is None or not isinstance(number, Constant) or number.value != int(number.value):
        return None
    sign = 1 if node.op.function == "add" else -1
    return Line(found.axis, found.more + sign * int(number.value))


def terms_of(program: Program, position: int) -> tuple[int, ...]:
    """What a sum's terms are the product of; empty of other nodes."""
    op, args = program.nodes[position].op, program.nodes[position].args
    is_sum = isinstance(op, Contract) or (isinstance(op, Reduce) and op.kind == "sum")
    return args if is_sum and program.nodes[position].dtype != "bool" else ()


def conditions(program: Program, position: int) -> Iterator[int]:
    """The conditions without which a number is 0."""
    node = program.nodes[position]
    if isinstance(node.op, Cast):
        truth = program.nodes[node.args[0]].dtype == "bool"
        yield from (_each if truth else conditions)(program, node.args[0])
    elif _is_choice(program, position):
        yield from _each(program, node.args[0])
        yield from conditions(program, node.args[1])
    elif node.op == Map("mul"):
        for arg in node.args:
            yield from conditions(program, arg)


def _each(program: Program, condition: int) -> Iterator[int]:
    node = program.nodes[condition]
    if node.op == Map("and"):
        for arg in node.args:
            yield from _each(program, arg)
    else:
        yield condition


def leaves(program: Program, position: int, condition: int) -> set[int]:
    """What a sum's terms are made of beside one of their conditions."""
    found, pending = set[int](), [*terms_of(program, position)]
    while pending:
        here = pending.pop()
        node = program.nodes[here]
        if here == condition:
            continue
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
        """A number without the condition; None for a one."""
        node = self.program.nodes[position]
        if self.condition not in conditions(self.program, position):
            return self.made[position]
        if isinstance(node.op, Cast):
            if self.program.nodes[node.args[0]].dtype == "bool":
                rest = self._rest(node.args[0])
                return None if rest is None else cast(rest, node.dtype)
            tile = self.at(node.args[0])
            return None if tile is None else cast(tile, node.dtype)
        if node.op == Map("mul"):
            left, right = (self.at(arg) for arg in node.args)
            if left is None or right is None:
                return right if left is None else left
            return left * right
        rest, tile = self._rest(node.args[0]), self.at(node.args[1])
        if tile is None:
            tile = self.graph.add(Constant(1, node.dtype))
        elif self._is_one(node.args[1]) and rest is None:
            return None
        return tile if rest is None else where(rest, tile, 0)

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
