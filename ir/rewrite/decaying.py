"""States that each step scales and adds a product to, by chunks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ir.axes import Axis
from ir.builder import cast, contract, reduce, where
from ir.folding import cumulative
from ir.ops.map import Constant, Iota, Map
from ir.ops.recur import Before, Recur
from ir.ops.reduce import Contract
from ir.program import Program
from ir.rewrite.cutting import Cut, fresh
from ir.rewrite.patterns import matches, parsed
from ir.rewrite.spans import spans_of
from ir.rewrite.substitution import Place
from ir.tiles import Tile, apply

FORGETS = -200.0  # an exponent whose exponential counts as 0, and of which differences are numbers


@dataclass(frozen=True)
class Logarithm:
    """Of a factor that is surely not negative: what it is the exponential of, or of a value, or of
    1 less that; `negative` where it is divided by."""

    position: int
    taken: bool = True
    rest: bool = False
    negative: bool = False

    def at(self, cut: Cut, places: Mapping[str, Place]) -> Tile:
        found = cut.values.at(self.position, places)
        found = 1.0 - found if self.rest else found
        found = apply("log", found) if self.taken else found
        return -found if self.negative else found


@dataclass(frozen=True)
class Gate:
    """The logarithm of what a state is scaled by, in a sum of at least one."""

    logarithms: tuple[Logarithm, ...]

    def at(self, cut: Cut, places: Mapping[str, Place]) -> Tile:
        found, *others = (one.at(cut, places) for one in self.logarithms)
        for other in others:
            found = found + other
        return apply("max", found, FORGETS)


@dataclass(frozen=True)
class Decays:
    """Logarithms of what is left of the state in front of the chunk: behind each step and before
    it, at each point before, and at the end."""

    total: Tile
    earlier: Tile
    others: Tile
    whole: Tile


@dataclass
class Stepped:
    """S = factor * S + left * right at each step; `reads` are sums of products with it, before a
    step or behind it."""

    program: Program
    before: int
    after: int
    recur: int
    time: str
    gate: Gate | None  # the logarithm of the factor
    left: int
    right: int
    reads: list[int]

    @property
    def along(self) -> str:
        return self.time

    def form(self, chunk: int, whole: bool) -> Program | None:
        cut = Cut(self.program, (self.time,), chunk, whole)
        (i,) = cut.inner
        j = fresh(f"{self.time}_before", set(cut.graph.extents))
        jj = cut.graph.axis(j, chunk)
        here, there = {self.time: cut.place(i)}, {self.time: cut.place(j)}
        decays = None if self.gate is None else decays_of(cut, self.gate.at(cut, here), i, jj)
        state = None
        for read in self.reads:
            node = self.program.nodes[read]
            query = next(arg for arg in node.args if arg not in (self.before, self.after))
            key, value = self._sides(read)
            if state is None:
                sides = [cut.values.at(side, there) for side in (key, value)]
                if decays is not None:
                    left = apply("exp", decays.whole - decays.others)
                    side = int(set(left.axes) <= set(sides[1].axes))
                    sides[side] = sides[side] * left
                added = contract(sides[0], sides[1], jj, node.dtype)
                factor = None if decays is None else apply("exp", decays.whole)
                state = cut.state(factor, added)
            made = self._read(cut, read, query, (key, value), decays, here, there, state, i, jj)
            cut.values.give(read, here, made)
        if state is None:
            return None
        last = cut.axis(cut.outer)
        cut.values.give(self.recur, {}, state.at({last: cut.count - 1}))
        return cut.finished(here)

    def _sides(self, read: int) -> tuple[int, int]:
        """The factor of the step's product that has the axis of the read's sum, and the other."""
        op = self.program.nodes[read].op
        assert isinstance(op, Contract)
        within = set(op.over) <= set(self.program.nodes[self.left].axes)
        return (self.left, self.right) if within else (self.right, self.left)

    def _read(
        self, cut: Cut, read: int, query: int, sides: tuple[int, int], decays: Decays | None,
        here: Mapping[str, Place], there: Mapping[str, Place], state: Tile, i: str, jj: Axis,
    ) -> Tile:  # fmt: skip
        node = self.program.nodes[read]
        assert isinstance(node.op, Contract)
        over = tuple(cut.axis(axis) for axis in node.op.over)
        q, k = cut.values.at(query, here), cut.values.at(sides[0], there)
        v, place = cut.values.at(sides[1], there), cut.graph.add(Iota(i))
        stepped = self.after in node.args
        seen = cut.graph.iota(jj) <= place if stepped else cut.graph.iota(jj) < place
        total = None if decays is None else decays.total if stepped else decays.earlier
        if decays is None or total is None:
            weights = where(seen, contract(q, k, over, node.dtype), 0.0)
        elif set(total.axes) & set(node.op.over):
            apart = where(seen, total - decays.others, -math.inf)
            weights = reduce("sum", q * k * apply("exp", apart), over)
        else:
            apart = where(seen, total - decays.others, -math.inf)
            weights = contract(q, k, over, node.dtype) * apply("exp", apart)
        inside = contract(weights, v, jj, node.dtype)
        before = cut.handed(state)
        if total is None:
            return inside + contract(q, before, over, node.dtype)
        left = apply("exp", total)
        if set(left.axes) & set(node.op.over):
            return inside + contract(q * left, before, over, node.dtype)
        return inside + contract(q, before, over, node.dtype) * left


def decays_of(cut: Cut, gate: Tile, i: str, jj: Axis) -> Decays:
    """Of a gate at all points of a chunk, along `i`; `jj` are the points before."""
    inner = cut.axis(i)
    if i not in gate.axes:
        steps = cast(cut.graph.iota(inner) + 1, gate.dtype)
        others = cast(cut.graph.iota(jj) + 1, gate.dtype)
        total = gate * steps
        return Decays(total, total - gate, gate * others, gate * float(cut.length))
    total = cumulative("sum", gate, inner)
    return Decays(total, total - gate, total.at({inner: jj}), reduce("sum", gate, inner))


_STEPS = tuple(map(parsed, ("add(mul(s, f), mul(a, b))", "add(s, mul(a, b))")))


def stepped(program: Program, recur: int) -> Stepped | None:
    """A state that each step scales and adds a product to, if it is one."""
    before, after = program.nodes[recur].args
    op = program.nodes[before].op
    assert isinstance(op, Before)
    start = program.nodes[program.nodes[before].args[0]].op
    if not (isinstance(start, Constant) and start.value == 0):
        return None
    own = {recur, after, *program.nodes[after].args}
    within = made_of(program, before) & {*program.nodes[after].args} - {before}
    if any({*program.users(one)} - {after} for one in within):  # read in the midst of a step
        return None
    reads = [user for user in {*program.users(before), *program.users(after)} if user not in own]
    if not reads:
        return None
    for pattern in _STEPS:
        for match in matches(pattern, program, after):
            tiles = match.tiles
            if tiles["s"] != before:
                continue
            gate = gate_of(program, tiles["f"]) if "f" in tiles else None
            if "f" in tiles and gate is None:
                continue
            found = Stepped(
                program, before, after, recur, op.axis, gate, tiles["a"], tiles["b"], sorted(reads)
            )
            if _is_linear(found):
                return found
    return None


def made_of(program: Program, before: int) -> frozenset[int]:
    """What is made of a state in its steps."""
    found = {before}
    for position, node in enumerate(program.nodes):
        if not isinstance(node.op, Recur) and found & {*node.args}:
            found.add(position)
    return frozenset(found)


def _is_linear(state: Stepped) -> bool:
    """Whether all reads are sums over axes that one factor of the step's product alone has, and
    neither is made of the state."""
    program = state.program
    if made_of(program, state.before) & {state.left, state.right}:
        return False
    left, right = (set(program.nodes[n].axes) for n in (state.left, state.right))
    for read in state.reads:
        node = program.nodes[read]
        states = [arg for arg in node.args if arg in (state.before, state.after)]
        if not isinstance(node.op, Contract) or len(states) != 1:
            return False
        over = set(node.op.over)
        key, value = (left, right) if over <= left else (right, left)
        if not over <= key or over & value or state.time in over:
            return False
    return True


def gate_of(program: Program, position: int) -> Gate | None:
    """The logarithm of a factor that is surely not negative."""
    found = logarithm_of(program, position)
    return None if found is None else Gate((found,))


def logarithm_of(program: Program, position: int, divides: bool = False) -> Logarithm | None:
    """The same of one that a state is multiplied with, or divided by."""
    node = program.nodes[position]
    if node.op == Map("exp"):
        return Logarithm(node.args[0], taken=False, negative=divides)
    if spans_of(program)[position].least >= 0:
        return Logarithm(position, negative=divides)
    return None
