"""Chunks of states that each step corrects by what it reads of them.

    S = f S + the sum of k v at each step, where values v are affine in products q S with the state

(the delta rule: v = beta (x - k S); Schlag and others, 2021), as it is before the step, once it is
scaled, or once some of the products are added (several Householder matrices a step; Siems and
others, 2025). What is read at a point of a chunk is of the state before the chunk and of the points
before, so that the v of a chunk, U, are where a triangular system says: (I - L) U = X + Y (Q S0),
L[i, s] = y[i] (q[i] . k[s]) decayed from s to i; several v a step are blocks of it (`eliminating`).
Its inverse is known before any state is (the WY form of products of Householder matrices: Bischof
and Van Loan, 1987; by chunks: Yang and others, 2024); a chunk then takes products alone. States
that begin with something are taken so as well, and those to which a step adds several products.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from ir.axes import Axis
from ir.builder import cast, contract, reduce, where
from ir.ops.map import Cast, Constant, Map
from ir.ops.recur import Before, Recur
from ir.program import Program
from ir.rewrite.affine import Affine, added, scaled
from ir.rewrite.cutting import Cut, fresh
from ir.rewrite.decaying import Decays, Gate, decays_of
from ir.rewrite.eliminating import Blocks, Points, Solved
from ir.rewrite.substitution import Place, Unsplit
from ir.tiles import Tile, apply


@dataclass(frozen=True)
class Scale:
    """Factors and divisors of a product that a state has."""

    negative: bool = False
    factors: tuple[int, ...] = ()
    divisors: tuple[int, ...] = ()


@dataclass(frozen=True)
class Term:
    """A product that a step adds to a state: factors along the axes of reads' sums, and others, one
    of which may be made of the state. Behind the step it is also times `late`."""

    negative: bool
    keys: tuple[int, ...]
    values: tuple[int, ...]
    made: int | None = None
    divisors: tuple[int, ...] = ()
    late: Scale = Scale()


@dataclass(frozen=True)
class Level:
    """The state somewhere in a step: what it is scaled with there, all of it (`whole`) or not, and
    the terms, by number, that it has, each times a scale."""

    gate: Gate | None
    whole: bool
    terms: Mapping[int, Scale]


@dataclass(frozen=True)
class Corrected:
    """What a step scales and adds `terms` to. `reads` are sums `over` of products with the state at
    some level; `inside` is what is made of it."""

    program: Program
    before: int
    recur: int
    time: str
    gate: Gate | None
    terms: tuple[Term, ...]
    reads: Mapping[int, Level]
    over: tuple[str, ...]
    inside: frozenset[int]

    @property
    def along(self) -> str:
        return self.time

    def form(self, chunk: int, whole: bool) -> Program | None:
        """By chunks of a length that divides the steps; raises Unsplit."""
        return _Chunks(self, Cut(self.program, (self.time,), chunk, whole)).program()

    @property
    def made(self) -> tuple[int, ...]:
        """The terms that are made of the state, by number, in the order of what they read."""
        numbers = [n for n, term in enumerate(self.terms) if term.made is not None]
        return tuple(sorted(numbers, key=lambda n: self.terms[n].made or 0))


class _Chunks:
    """The program by chunks, being made. Points of a chunk are numbered along several axes: `i`
    that of outputs, `j` of what came before, and `column` of right sides."""

    def __init__(self, state: Corrected, cut: Cut) -> None:
        self.state, self.cut, self.graph = state, cut, cut.graph
        self.i, taken = cut.axis(cut.inner[0]), set(cut.graph.extents)
        self.j, *self.steps, self.column = (
            cut.graph.axis(fresh(f"{state.time}_{word}", taken), cut.length)
            for word in ("before", *("step",) * max(1, len(state.made)), "column")
        )
        self.over = tuple(cut.axis(axis) for axis in state.over)
        self.dtype = state.program.nodes[state.before].dtype
        self.affine: dict[tuple[int, Axis], Affine] = {}
        self.decays: Decays | None = None
        if state.gate is not None:
            gate = state.gate.at(cut, self._places(self.i))
            self.decays = decays_of(cut, gate, self.i.name, self.j)

    def program(self) -> Program:
        state, cut = self.state, self.cut
        made = self._solved()
        values = [
            made[number].known if number in made else self._given(term, self.j)
            for number, term in enumerate(state.terms)
        ]  # fmt: skip
        handed = self._handed(values, made)
        asked = self._asked_for()
        if not self._is_less(made, handed, len(asked)):
            for number, one in made.items():
                values[number] = added(values[number], self._times_state(one.queries, handed))
            made = {}
        for read in asked:
            found = self._read(read, values, made, handed)
            cut.values.give(read, self._places(self.i), found)
        return cut.finished(self._places(self.i))

    def _places(self, at: Axis) -> Mapping[str, Place]:
        return {self.state.time: self.cut.place(at.name)}

    def _handed(self, values: Sequence[Tile | None], made: Mapping[int, Solved]) -> Tile:
        """The state in front of each chunk. A step of the loop along chunks finds what corrections
        add before it multiplies that with keys, which is less than one matrix for both."""
        state, cut, nodes = self.state, self.cut, self.state.program.nodes
        op, along = nodes[state.before].op, cut.axis(cut.outer)
        assert isinstance(op, Before)
        first = cut.values.at(nodes[state.before].args[0], {})
        before = self.graph.add(Before(cut.outer, op.axes, f"{op.label}-chunks"), first)
        after = before
        if self.decays is not None:
            after = before * apply("exp", self.decays.whole)
        for number, (term, value) in enumerate(zip(state.terms, values, strict=True)):
            if number in made:
                value = added(value, self._times_state(made[number].queries, before))
            if value is not None:
                after = after + self._along(self._left(term), value)
        cut.values.give(state.recur, {}, self.graph.add(Recur(cut.outer), before, after))
        handed = after.at({along: along - 1}, fill=0)
        start = nodes[nodes[state.before].args[0]].op
        if isinstance(start, Constant) and not start.value:
            return handed
        return where(self.graph.iota(along) > 0, handed, first)

    def _asked_for(self) -> tuple[int, ...]:
        """Reads that outputs are made of, however steps are corrected."""
        program = self.state.program
        stores = [position for position, _ in program.stores()]
        ends = {*self.state.reads, self.state.recur}
        behind = program.behind(stores, lambda position: position in ends)
        return tuple(read for read in self.state.reads if read in behind)

    def _is_less(self, made: Mapping[int, Solved], handed: Tile, reads: int) -> bool:
        """Whether it is less to multiply the state once for each read, with all that corrections
        add to what that asks for, than once for each correction."""
        asked = (self._points(one.queries.axes, (self.i.name,)) for one in made.values())
        corrections = (self._points(one.queries.axes, handed.axes) for one in made.values())
        return reads * sum(asked) <= sum(corrections)

    def _points(self, *axes: tuple[str, ...]) -> int:
        return math.prod(self.graph.extents[axis] for axis in {*chain(*axes)})

    def _left(self, term: Term) -> Tile:
        """A term's key, and what is left of it at the end of a chunk."""
        key, decays = self._key(term, term.late), self.decays
        return key if decays is None else key * apply("exp", decays.whole - decays.others)

    def _key(self, term: Term, scale: Scale) -> Tile:
        """The factors along reads' sums, at the points before, times a scale."""
        found = self._product(term.keys, self.j)
        if scale.factors:
            found = found * self._product(scale.factors, self.j)
        for divisor in scale.divisors:
            found = found / cast(self.cut.values.at(divisor, self._places(self.j)), self.dtype)
        return -found if scale.negative else found

    def _given(self, term: Term, at: Axis) -> Tile:
        """What is made of no state of a term's other factors."""
        found = self.graph.constant(-1.0 if term.negative else 1.0, self.dtype)
        if term.values:
            product = self._product(term.values, at)
            found = found * product if term.negative else product
        for divisor in term.divisors:
            found = found / self.cut.values.at(divisor, self._places(at))
        return found

    def _product(self, factors: tuple[int, ...], at: Axis) -> Tile:
        places = self._places(at)
        found, *others = (cast(self.cut.values.at(one, places), self.dtype) for one in factors)
        for other in others:
            found = found * other
        return found

    def _solved(self) -> Mapping[int, Solved]:
        """What the terms that are made of the state add to each key, by what it is without the
        state in front of the chunk and what that is multiplied with."""
        made = self.state.made
        if not made:
            return {}
        lower = {(row, one): self._lower(row, one) for row in made for one in made}
        right = {number: self._right(number) for number in made}
        if not all(self._is_square(matrix) for matrix in lower.values()):
            raise Unsplit("corrections that differ from value to value")
        points = Points(self.i, self.j, self.column, self.steps)
        return Blocks(lower, right, points, self.dtype).solved()

    def _lower(self, row: int, one: int) -> Tile:
        """How much of what a term adds at each point is in another one."""
        lower = None
        for read, coefficient in self._corrections(row, self.i).reads.items():
            lower = added(lower, scaled(self._weights(read, one, self.i), coefficient))
        if lower is None:
            raise Unsplit("a value that is made of no read")
        return lower

    def _right(self, number: int) -> Solved:
        found = self._corrections(number, self.column)
        known, queries = found.constant, None
        for read, coefficient in found.reads.items():
            for other, term in enumerate(self.state.terms):
                if term.made is None:
                    weights = self._weights(read, other, self.column)
                    value = self._along(weights, self._given(term, self.j))
                    known = added(known, scaled(value, coefficient))
            queries = added(queries, scaled(self._decayed(read, self.column), coefficient))
        assert queries is not None
        return Solved(known, queries)

    def _corrections(self, number: int, at: Axis) -> Affine:
        term = self.state.terms[number]
        assert term.made is not None
        return self._affine(term.made, at).times(self._given(term, at))

    def _times_state(self, queries: Tile, handed: Tile) -> Tile:
        return contract(queries, handed, self.over, self.dtype)

    def _is_square(self, lower: Tile) -> bool:
        """Whether a system is one for all of a state's values that keys are the same of."""
        state = self.state
        alike = {axis for term in state.terms for key in term.keys for axis in self._axes(key)}
        alike |= {axis for read in state.reads for axis in self._axes(self._query(read))}
        return {*lower.axes} <= {*alike, *self._gated} | {self.i.name, self.j.name, self.cut.outer}

    @property
    def _gated(self) -> set[str]:
        gate = self.state.gate
        logarithms = () if gate is None else gate.logarithms
        return {axis for one in logarithms for axis in self._axes(one.position)}

    def _axes(self, position: int) -> tuple[str, ...]:
        return self.state.program.nodes[position].axes

    def _read(
        self, read: int, values: Sequence[Tile | None], made: Mapping[int, Solved], handed: Tile
    ) -> Tile:
        """A sum of products with the state, at all points of a chunk. The state in front of it is
        multiplied once, with all that corrections by it (`made`) add to what a read asks for."""
        query, found = self._decayed(read, self.i), None
        for number, value in enumerate(values):
            weights = self._weights(read, number, self.i)
            if number in made:
                query = query + contract(weights, made[number].queries, self.j, self.dtype)
            if value is not None:
                found = added(found, self._along(weights, value))
        first = self._times_state(query, handed)
        found = first if found is None else first + found
        return cast(found, self.state.program.nodes[read].dtype)

    def _along(self, weights: Tile, value: Tile) -> Tile:
        """The sum over the points before."""
        if self.j.name in value.axes:
            return contract(weights, value, self.j, self.dtype)
        return reduce("sum", weights, self.j) * value

    def _query(self, read: int) -> int:
        """The factor of a read that is not the state."""
        args = self.state.program.nodes[read].args
        return next(arg for arg in args if arg not in self.state.inside)

    def _asked(self, read: int, at: Axis) -> Tile:
        """What a read multiplies the state with."""
        return cast(self.cut.values.at(self._query(read), self._places(at)), self.dtype)

    def _decayed(self, read: int, at: Axis) -> Tile:
        """The same times what is left there of the state in front of the chunk."""
        total = self._total(read, at)
        return (
            self._asked(read, at) if total is None else self._asked(read, at) * apply("exp", total)
        )

    def _total(self, read: int, at: Axis) -> Tile | None:
        """The decay up to a read: what was there before its step, and what that has scaled."""
        if self.decays is None:
            return None
        level = self.state.reads[read]
        total = self.decays.total if level.whole else self.decays.earlier
        total = total if at == self.i else total.at({self.i: at})
        if level.whole or level.gate is None:
            return total
        return total + level.gate.at(self.cut, self._places(at))

    def _weights(self, read: int, number: int, at: Axis) -> Tile:
        """How much of what a term adds at each point before is in a read; where the state that is
        read has the term already, of its own point too."""
        level, term = self.state.reads[read], self.state.terms[number]
        here, behind = self.graph.iota(at), self.graph.iota(self.j)
        total, key = self._total(read, at), self._key(term, term.late)
        if number not in level.terms:
            return self._products(read, key, at, total, behind < here)
        now = level.terms[number]
        if now == term.late and (level.whole or total is None):
            return self._products(read, key, at, total, behind <= here)
        own = self._products(read, self._key(term, now), at, None, apply("eq", behind, here))
        return self._products(read, key, at, total, behind < here) + own

    def _products(self, read: int, key: Tile, at: Axis, total: Tile | None, seen: Tile) -> Tile:
        """Of what a read asks for and keys, decayed from there, where they are seen."""
        query = self._asked(read, at)
        if total is None or self.decays is None:
            return where(seen, contract(query, key, self.over, self.dtype), 0.0)
        left = apply("exp", where(seen, total - self.decays.others, -math.inf))
        if {*total.axes} & {*self.state.over}:
            return reduce("sum", query * key * left, self.over)
        return contract(query, key, self.over, self.dtype) * left

    def _affine(self, position: int, at: Axis) -> Affine:
        """A value at all points of a chunk, by what it is of reads; raises Unsplit."""
        if (position, at) not in self.affine:
            self.affine[position, at] = self._made_affine(position, at)
        return self.affine[position, at]

    def _made_affine(self, position: int, at: Axis) -> Affine:
        state, node, places = self.state, self.state.program.nodes[position], self._places(at)
        if position not in state.inside:
            return Affine(cast(self.cut.values.at(position, places), self.dtype), {})
        if position in state.reads:
            return Affine(None, {position: None})
        if isinstance(node.op, Cast) and node.dtype == self.dtype:
            return self._affine(node.args[0], at)
        function = node.op.function if isinstance(node.op, Map) else ""
        one, minus = (self.graph.constant(number, self.dtype) for number in (1.0, -1.0))
        if function == "neg":
            return self._affine(node.args[0], at).times(minus)
        if function in ("add", "sub"):
            left, right = (self._affine(arg, at) for arg in node.args)
            return left.plus(right.times(minus) if function == "sub" else right, one)
        free = [arg for arg in node.args if arg not in state.inside]
        if function in ("mul", "div") and len(free) == 1 and (function, free[0]) != (
            "div", node.args[0]
        ):  # fmt: skip
            factor = self.cut.values.at(free[0], places)
            made = next(arg for arg in node.args if arg in state.inside)
            return self._affine(made, at).times(1.0 / factor if function == "div" else factor)
        raise Unsplit("what a step adds is not affine in the state")
