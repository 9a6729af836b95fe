"""States that steps scale and correct, found however the steps are written.

What a step makes is multiplied out until it is the state times factors, and products. Their chunks
are made in `correcting`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

from ir.dtypes import is_float
from ir.ops.map import Constant, Map
from ir.ops.recur import Before, Recur
from ir.ops.reduce import Contract
from ir.program import Program
from ir.rewrite.correcting import Corrected, Term
from ir.rewrite.decaying import Gate, Logarithm, logarithm_of, made_of
from ir.rewrite.spans import spans_of

LARGEST = 200  # nodes that are made of a state in its steps
MOST = 16  # products that a step adds to a state, and factors of one


def corrected(program: Program, recur: int) -> Corrected | None:
    """A state as one that steps scale and add products to, if it is one."""
    before, after = program.nodes[recur].args
    op, inside = program.nodes[before].op, made_of(program, before)
    assert isinstance(op, Before)
    if not is_float(program.nodes[before].dtype) or len(inside) > LARGEST:
        return None
    sums = _Sums(program, before, inside)
    parts = [*islice(sums.parts(after), MOST + 1)]
    if len(parts) > MOST:
        return None
    scales = [part for part in parts if part.leaf == before]
    gate = _scale(program, scales)
    if gate is None:
        return None
    scaled = _scaled_node(program, before, scales)
    states = {before, after, *(() if scaled is None else (scaled,))}
    reads = _reads(program, states, (sums.seen & inside) | states, inside)
    if reads is None:
        return None
    found = program.nodes[reads[0]].op
    assert isinstance(found, Contract)
    terms = [_term(program, part, found.over, inside) for part in parts if part.leaf != before]
    own = [term for term in terms if term is not None]
    if len(own) < len(terms) or sum(term.made is not None for term in own) > 1:
        return None
    return Corrected(
        program, before, scaled, after, recur, op.axis, gate if gate.logarithms else None,
        tuple(own), reads, found.over, inside,
    )  # fmt: skip


@dataclass(frozen=True)
class _Part:
    """What is added to a state, or taken off: a value times factors, and over others."""

    leaf: int
    negative: bool = False
    factors: tuple[int, ...] = ()
    divisors: tuple[int, ...] = ()


@dataclass
class _Sums:
    """The sum that a step makes, products with sums multiplied out; `seen` is what makes it."""

    program: Program
    before: int
    inside: frozenset[int]
    seen: set[int] = field(default_factory=set)

    def parts(self, position: int) -> Iterator[_Part]:
        node = self.program.nodes[position]
        function = node.op.function if isinstance(node.op, Map) else ""
        if function in ("add", "sub", "neg") and self._is_whole(position):
            self.seen.add(position)
            first, *others = node.args
            for part in self.parts(first):
                yield replace(part, negative=part.negative ^ (function == "neg"))
            for other in others:
                for part in self.parts(other):
                    yield replace(part, negative=part.negative ^ (function == "sub"))
            return
        sides = [arg for arg in node.args if self._is_sum(arg)]
        if function in ("mul", "div") and len(sides) == 1 and sides[0] == node.args[0]:
            yield from self._multiplied(position, sides[0], node.args[1], function == "div")
        elif function == "mul" and len(sides) == 1:
            yield from self._multiplied(position, sides[0], node.args[0], divides=False)
        else:
            yield _Part(position)

    def _multiplied(self, position: int, sum_: int, other: int, divides: bool) -> Iterator[_Part]:
        self.seen.add(position)
        for part in self.parts(sum_):
            own = (*(part.divisors if divides else part.factors), other)
            yield replace(part, divisors=own) if divides else replace(part, factors=own)

    def _is_sum(self, position: int) -> bool:
        """Whether a factor is the state, or a sum that the state is added up in."""
        if position == self.before:
            return True
        op = self.program.nodes[position].op
        added = isinstance(op, Map) and op.function in ("add", "sub", "neg", "mul", "div")
        return added and position in self._having

    @cached_property
    def _having(self) -> set[int]:
        """Values of a step in which the state itself is, and not only what is read of it."""
        found = {self.before}
        for position in sorted(self.inside):
            node = self.program.nodes[position]
            if isinstance(node.op, Map) and found & {*node.args}:
                found.add(position)
        return found

    def _is_whole(self, position: int) -> bool:
        """Whether a value has all axes of the state, or is made of it."""
        axes = {*self.program.nodes[self.before].axes[1:]}
        return position in self.inside or axes <= {*self.program.nodes[position].axes}


def _scale(program: Program, scales: Sequence[_Part]) -> Gate | None:
    """What a state is multiplied with in all: of no factors, or of those that are not negative, or
    1 less one."""
    if len(scales) == 1 and not scales[0].negative:
        own = scales[0]
        found = [logarithm_of(program, one) for one in own.factors]
        found += [logarithm_of(program, one, divides=True) for one in own.divisors]
    elif len(scales) == 2:
        first, other = sorted(scales, key=lambda part: part.negative)
        plain = not (first.negative or first.factors or first.divisors)
        if not plain or not other.negative or other.divisors or len(other.factors) != 1:
            return None
        found = [_less(program, other.factors[0])]
    else:
        return None
    known = tuple(one for one in found if one is not None)
    return Gate(known) if len(known) == len(found) else None


def _less(program: Program, position: int) -> Logarithm | None:
    """The logarithm of 1 less a value, which is no more than that; of 1 less that again itself."""
    node = program.nodes[position]
    if isinstance(node.op, Map) and node.op.function == "sub":
        first = program.nodes[node.args[0]].op
        if isinstance(first, Constant) and first.value == 1:
            return logarithm_of(program, node.args[1])
    return Logarithm(position, rest=True) if spans_of(program)[position].most <= 1 else None


def _scaled_node(program: Program, before: int, scales: Sequence[_Part]) -> int | None:
    """The state times its one factor, which reads may be of."""
    if len(scales) != 1 or len(scales[0].factors) != 1 or scales[0].divisors:
        return None
    pair = {before, scales[0].factors[0]}
    users = (user for user in program.users(before) if {*program.nodes[user].args} == pair)
    return next((user for user in users if program.nodes[user].op == Map("mul")), None)


def _reads(
    program: Program, states: set[int], structure: set[int], inside: frozenset[int]
) -> tuple[int, ...] | None:
    """The products with a state, all sums over the same axes; None where it is read otherwise."""
    users = {
        user for position in structure for user in program.users(position)
        if not isinstance(program.nodes[user].op, Recur)
    } - structure  # fmt: skip
    terms = {arg for one in structure for arg in program.nodes[one].args} & inside
    found, over = [], set[tuple[str, ...]]()
    for user in sorted(users - terms):
        node = program.nodes[user]
        own = [arg for arg in node.args if arg in states]
        others = [arg for arg in node.args if arg not in inside]
        if not isinstance(node.op, Contract) or len(own) != 1 or len(others) != 1:
            return None
        over.add(tuple(sorted(node.op.over)))
        if not {*node.op.over} <= {*program.nodes[own[0]].axes[1:]}:
            return None
        found.append(user)
    return tuple(found) if len(over) == 1 else None


def _term(
    program: Program, part: _Part, over: tuple[str, ...], inside: frozenset[int]
) -> Term | None:
    """A product by its factors; None where it is none that a read takes apart."""
    negative, factors, divisors = part.negative, list[int](), list(part.divisors)
    left = [part.leaf, *part.factors]
    while left:
        if len(left) + len(factors) + len(divisors) > MOST:
            return None
        one = left.pop()
        node = program.nodes[one]
        if node.op == Map("mul"):
            left += node.args
        elif node.op == Map("div") and one not in inside:
            left.append(node.args[0])
            divisors.append(node.args[1])
        elif node.op == Map("neg"):
            negative, left = not negative, [*left, *node.args]
        else:
            factors.append(one)
    keys = tuple(one for one in factors if {*program.nodes[one].axes} & {*over})
    values = tuple(one for one in factors if one not in keys and one not in inside)
    made = [one for one in factors if one in inside]
    if not keys or len(made) > 1 or {*made} & {*keys} or inside & {*divisors}:
        return None
    if any({*program.nodes[one].axes} & {*over} for one in divisors):
        return None
    return Term(negative, keys, values, made[0] if made else None, tuple(divisors))
