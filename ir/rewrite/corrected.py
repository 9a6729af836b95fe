"""States that steps scale and correct, found however the steps are written.

What a step makes is multiplied out until it is the state times factors, and products. Their chunks
are made in `correcting`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

from ir.dtypes import is_float
from ir.ops.map import Constant, Map
from ir.ops.recur import Before, Recur
from ir.ops.reduce import Contract
from ir.program import Program
from ir.rewrite.correcting import Corrected, Level, Scale, Term
from ir.rewrite.decaying import Gate, Logarithm, logarithm_of, made_of
from ir.rewrite.spans import spans_of

LARGEST = 200  # nodes that are made of a state in its steps
SUMS = ("add", "sub", "neg", "mul", "div")
MOST = 16  # products that a step adds to a state, and factors of one


def corrected(program: Program, recur: int) -> Corrected | None:
    """A state as one that steps scale and add products to, if it is one."""
    before, after = program.nodes[recur].args
    op, inside = program.nodes[before].op, made_of(program, before)
    assert isinstance(op, Before)
    if not is_float(program.nodes[before].dtype) or len(inside) > LARGEST:
        return None
    sums = _Sums(program, before, inside)
    whole, reads = sums.split(after), _reads(program, sums.having, inside)
    if whole is None or not reads:
        return None
    found = program.nodes[reads[0]].op
    assert isinstance(found, Contract)
    levels = {read: sums.split(_state(program, read, sums.having)) for read in reads}
    known = {read: level for read, level in levels.items() if level is not None}
    if len(known) < len(levels) or any(not _is_within(whole, one) for one in known.values()):
        return None
    terms = [_term(program, whole, n, [*known.values()], found.over, inside)
             for n in range(len(whole.parts))]  # fmt: skip
    own = [term for term in terms if term is not None]
    if len(own) < len(terms):
        return None
    return Corrected(
        program, before, recur, op.axis, whole.gate if whole.gate.logarithms else None, tuple(own),
        {read: _level(whole, one, own) for read, one in known.items()}, found.over, inside,
    )  # fmt: skip


@dataclass(frozen=True)
class _Part:
    """What is added to a state, or taken off: a value times factors, and over others."""

    leaf: int
    negative: bool = False
    factors: tuple[int, ...] = ()
    divisors: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Split:
    """The state somewhere in a step: what is left of the one before it, and what is added."""

    gate: Gate
    parts: tuple[_Part, ...]


@dataclass
class _Sums:
    """The sums that a step makes of its state, products with sums multiplied out."""

    program: Program
    before: int
    inside: frozenset[int]

    def split(self, position: int) -> _Split | None:
        """A value that the state is in, by its parts; None if it is no such sum of a few."""
        parts = [*islice(self.parts(position), MOST + 1)]
        gate = _scale(self.program, [part for part in parts if part.leaf == self.before])
        if len(parts) > MOST or gate is None:
            return None
        return _Split(gate, tuple(part for part in parts if part.leaf != self.before))

    def parts(self, position: int) -> Iterator[_Part]:
        node = self.program.nodes[position]
        function = node.op.function if isinstance(node.op, Map) else ""
        if function in ("add", "sub", "neg") and self._is_whole(position):
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
        for part in self.parts(sum_):
            own = (*(part.divisors if divides else part.factors), other)
            yield replace(part, divisors=own) if divides else replace(part, factors=own)

    def _is_sum(self, position: int) -> bool:
        """Whether a factor is the state, or a sum that the state is added up in, or products are
        that a step adds."""
        if position == self.before:
            return True
        node, axes = self.program.nodes[position], {*self.program.nodes[self.before].axes[1:]}
        if not isinstance(node.op, Map) or node.op.function not in SUMS:
            return False
        return position in self.having or (position in self.inside and axes <= {*node.axes})

    @cached_property
    def having(self) -> set[int]:
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


def _reads(program: Program, having: set[int], inside: frozenset[int]) -> tuple[int, ...] | None:
    """The products with a state, all sums over the same axes; None where it is read otherwise."""
    users = {user for position in having for user in program.users(position)} - having
    found, over = [], set[tuple[str, ...]]()
    for user in sorted(users):
        node = program.nodes[user]
        if isinstance(node.op, Recur):
            continue
        own = [arg for arg in node.args if arg in having]
        others = [arg for arg in node.args if arg not in inside]
        if not isinstance(node.op, Contract) or len(own) != 1 or len(others) != 1:
            return None
        over.add(tuple(sorted(node.op.over)))
        if not {*node.op.over} <= {*program.nodes[own[0]].axes[1:]}:
            return None
        found.append(user)
    return tuple(found) if len(over) == 1 else None


def _state(program: Program, read: int, having: set[int]) -> int:
    """What a read is a product with."""
    return next(arg for arg in program.nodes[read].args if arg in having)


def _is_within(whole: _Split, one: _Split) -> bool:
    """Whether all that the state has somewhere in a step it has behind it."""
    scaled = bool(whole.gate.logarithms or not one.gate.logarithms)
    return scaled and len(_matched(whole, one)) == len(one.parts)


def _matched(whole: _Split, one: _Split) -> dict[int, _Part]:
    """The parts of the state somewhere in a step, by the number that each has behind it."""
    found: dict[int, _Part] = {}
    for part in one.parts:
        alike = (n for n, p in enumerate(whole.parts) if p.leaf == part.leaf and n not in found)
        number = next(alike, None)
        if number is not None:
            found[number] = part
    return found


def _level(whole: _Split, one: _Split, terms: Sequence[Term]) -> Level:
    scales = {}
    for number, part in _matched(whole, one).items():
        mine, late = whole.parts[number], terms[number].late
        scales[number] = Scale(
            part.negative != mine.negative,
            _less_those(part.factors, _less_those(mine.factors, late.factors)),
            _less_those(part.divisors, _less_those(mine.divisors, late.divisors)),
        )
    alike = Counter(one.gate.logarithms) == Counter(whole.gate.logarithms)
    return Level(one.gate if one.gate.logarithms else None, alike, scales)


def _less_those(some: Sequence[int], others: Sequence[int]) -> tuple[int, ...]:
    """Without as many of each as the others are."""
    left, found = Counter(others), []
    for one in some:
        if left[one]:
            left[one] -= 1
        else:
            found.append(one)
    return tuple(found)


def _term(
    program: Program, whole: _Split, number: int, reads: Sequence[_Split], over: tuple[str, ...],
    inside: frozenset[int],
) -> Term | None:  # fmt: skip
    """A product by its factors; None where it is none that a read takes apart. With what states
    within the step do not all have it, it is multiplied behind the step alone."""
    part = whole.parts[number]
    late, divided = list[int](), list[int]()
    for one in reads:
        other = _matched(whole, one).get(number)
        if other is not None:
            late += _less_those(_less_those(part.factors, other.factors), late)
            divided += _less_those(_less_those(part.divisors, other.divisors), divided)
    if inside & {*late, *divided}:
        return None
    factors, divisors = _less_those(part.factors, late), _less_those(part.divisors, divided)
    part = _Part(part.leaf, part.negative, factors, divisors)
    found = _factors(program, part, over, inside)
    return found and replace(found, late=Scale(False, tuple(late), tuple(divided)))


def _factors(
    program: Program, part: _Part, over: tuple[str, ...], inside: frozenset[int]
) -> Term | None:
    """What a product has along reads' sums, and what it has besides."""
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
