"""Causal sums whose weights are products of functions of either axis, by chunks with a state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ir.builder import cast, contract, reduce, where
from ir.ops.map import Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.reduce import Contract
from ir.program import Program
from ir.rewrite.cutting import Cut
from ir.rewrite.separable import change, is_separable
from ir.rewrite.substitution import Place
from ir.tiles import Tile, apply


@dataclass
class Causal:
    """o = sum over `j` up to `i` of the product of the factors and of `value`."""

    program: Program
    root: int
    i: str
    j: str
    value: int
    masks: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # factors without j
    columns: list[int] = field(default_factory=list)  # factors without i
    inner: int | None = None  # the inner product
    exponents: list[int] = field(default_factory=list)

    @property
    def along(self) -> str:
        return self.i

    def form(self, chunk: int, whole: bool) -> Program | None:
        cut = Cut(self.program, (self.i, self.j), chunk, whole)
        i, j = cut.inner
        here = {self.i: cut.place(i), self.j: cut.place(j)}
        seen = cut.graph.add(Iota(j)) <= cut.graph.add(Iota(i))
        for mask in self.masks:
            cut.values.give(mask, here, seen)
        diagonal = contract_of(self.program, self.root, cut, here, j)
        total = diagonal + self._past(cut, here)
        cut.values.give(self.root, here, total)
        return cut.finished(here)

    def _past(self, cut: Cut, here: Mapping[str, Place]) -> Tile:
        """The part of all chunks before, by way of their state."""
        values, (_, j) = cut.values, cut.inner
        query, key, over = self._factors(cut, here)
        places = {self.i: cut.last, self.j: here[self.j]}
        rest = [values.at(exponent, places) for exponent in self.exponents]
        for column in self.columns:
            key = _times(key, values.at(column, here))
        for exponent in rest:
            key = _times(key, apply("exp", exponent))
        value = values.at(self.value, here)
        if key is None:
            added = reduce("sum", cast(value, self._acc), cut.axis(j))
        else:
            added = contract(key, value, cut.axis(j), self._acc)
        factor = self._decay(cut)
        carried = cut.handed(cut.state(factor, added))
        for row in self.rows:
            query = _times(query, values.at(row, here))
        for e in self.exponents:
            since = self._since(cut, e, here[self.i])
            query = query if since is None else _times(query, apply("exp", since))
        if over:
            assert query is not None
            return contract(query, carried, tuple(cut.axis(a) for a in over), self._acc)
        return carried if query is None else query * carried

    @property
    def _acc(self) -> str:
        return self.program.nodes[self.root].dtype

    def _factors(
        self, cut: Cut, here: Mapping[str, Place]
    ) -> tuple[Tile | None, Tile | None, tuple[str, ...]]:
        """Both factors of the inner product, that of i first."""
        if self.inner is None:
            return None, None, ()
        node = self.program.nodes[self.inner]
        assert isinstance(node.op, Contract)
        left, right = node.args
        if self.j in self.program.nodes[left].axes:
            left, right = right, left
        named = dict(zip(node.op.over, cut.apart(node.op.over), strict=True))
        there = {**here, **{axis: Place(name, 1) for axis, name in named.items()}}
        sides = (cut.values.at(side, there) for side in (left, right))
        return next(sides), next(sides), tuple(named.values())

    def _since(self, cut: Cut, position: int, to: Place) -> Tile | None:
        """How an exponent changes from the end of the chunk before to a place, at the same j; 0 in
        front of all."""
        found = change(cut.values, position, self.i, self.j, to, cut.before)
        if found is None:
            return None
        return where(cut.graph.add(Iota(cut.outer)) > 0, found, 0.0)

    def _decay(self, cut: Cut) -> Tile | None:
        """By what the state is scaled from the end of a chunk to the end of the next."""
        found: Tile | None = None
        for position in self.exponents:
            since = self._since(cut, position, cut.last)
            if since is not None:
                found = since if found is None else found + since
        return None if found is None else apply("exp", found)


def contract_of(program: Program, root: int, cut: Cut, here: Mapping[str, Place], j: str) -> Tile:
    """The sum as it is written, over the chunk alone."""
    node = program.nodes[root]
    assert isinstance(node.op, Contract)
    args = [cut.values.at(arg, here) for arg in node.args]
    return contract(args[0], args[1], cut.axis(j), node.op.acc)


def _times(left: Tile | None, right: Tile) -> Tile:
    return right if left is None else left * right


def causal(program: Program, root: int) -> Causal | None:
    """The sum as a causal one with separable weights, if it is one."""
    node = program.nodes[root]
    assert isinstance(node.op, Contract)
    if len(node.op.over) != 1:
        return None
    (j,) = node.op.over
    for weights, value in (node.args, node.args[::-1]):
        own = set(program.nodes[weights].axes) - set(program.nodes[value].axes)
        axes = [axis for axis in program.axes if axis in own]
        for i in axes if j in program.nodes[value].axes else ():
            if program.axes[i] != program.axes[j]:
                continue
            found = Causal(program, root, i, j, value)
            if _factored(found, weights) and found.masks and _only_there(found):
                return found
    return None


def _only_there(sum_: Causal) -> bool:
    """Whether nothing but the sum goes along its axis, and the axis of the inner product is none
    of what is summed."""
    program = sum_.program
    for position, node in enumerate(program.nodes):
        if sum_.j in node.axes:
            users = (program.nodes[user] for user in program.users(position) if user != sum_.root)
            if any(sum_.j not in user.axes and not isinstance(user.op, Read) for user in users):
                return False
    return True


def _factored(sum_: Causal, position: int) -> bool:
    """Whether a weight is a product of masks, functions of i, of j, and exponents of both."""
    program, i, j = sum_.program, sum_.i, sum_.j
    node = program.nodes[position]
    has_i, has_j = i in node.axes, j in node.axes
    if not (has_i and has_j):
        (sum_.columns if has_j else sum_.rows).append(position)
        return True
    op = node.op
    if isinstance(op, Map) and op.function == "mul":
        return all(_factored(sum_, arg) for arg in node.args)
    if isinstance(op, Map) and op.function == "where":
        condition, yes, no = node.args
        if not _is_causal(program, condition, i, j) or _number(program, no) != 0:
            return False
        sum_.masks.append(condition)
        return _factored(sum_, yes)
    if isinstance(op, Map) and op.function == "exp":
        inside = _unmasked(sum_, node.args[0])
        if not is_separable(program, inside, i, j):
            return False
        sum_.exponents.append(inside)
        return True
    if isinstance(op, Contract) and sum_.inner is None and not {i, j} & set(op.over):
        sides = [{i, j} & set(program.nodes[arg].axes) for arg in node.args]
        if sorted(map(sorted, sides)) == sorted(([i], [j])):
            sum_.inner = position
            return True
    return False


def _unmasked(sum_: Causal, position: int) -> int:
    """An exponent without its mask: -inf where j is behind i."""
    node = sum_.program.nodes[position]
    if isinstance(node.op, Map) and node.op.function == "where":
        condition, yes, no = node.args
        masked = _number(sum_.program, no) == -math.inf
        if masked and _is_causal(sum_.program, condition, sum_.i, sum_.j):
            sum_.masks.append(condition)
            return yes
    return position


def _is_causal(program: Program, position: int, i: str, j: str) -> bool:
    """Whether a condition says j <= i."""
    node = program.nodes[position]
    if not isinstance(node.op, Map) or node.op.function not in ("le", "lt", "not"):
        return False
    if node.op.function == "not":
        inner = program.nodes[node.args[0]]
        return inner.op == Map("lt") and _coordinates(program, inner.args) == (i, j)
    return node.op.function == "le" and _coordinates(program, node.args) == (j, i)


def _coordinates(program: Program, args: tuple[int, ...]) -> tuple[str, ...]:
    ops = (program.nodes[arg].op for arg in args)
    return tuple(op.axis if isinstance(op, Iota) else "" for op in ops)


def _number(program: Program, position: int) -> float | None:
    op = program.nodes[position].op
    return op.value if isinstance(op, Constant) else None
