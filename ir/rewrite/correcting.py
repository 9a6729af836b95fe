"""Chunks of states that each step corrects by what it reads of them.

    S = f S + the sum of k v at each step, where one v is affine in products q S with the state

(the delta rule: v = beta (x - k S); Schlag and others, 2021). What is read at a point of a chunk is
of the state before the chunk and of the points before, so that the v of a chunk, U, are where a
triangular system says: (I - L) U = X + Y (Q S0), L[i, s] = y[i] (q[i] . k[s]) decayed from s to i.
Its inverse is known before any state is (the WY form of products of Householder matrices: Bischof
and Van Loan, 1987; by chunks: Yang and others, 2024); a chunk then takes products alone. States
that begin with something are taken so as well, and those to which a step adds several products.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ir.axes import Axis
from ir.builder import cast, contract, reduce, where
from ir.forward import solved
from ir.ops.map import Cast, Constant, Map
from ir.ops.recur import Before, Recur
from ir.program import Program
from ir.rewrite.cutting import Cut, fresh
from ir.rewrite.decaying import Decays, Gate, decays_of
from ir.rewrite.substitution import Place, Unsplit
from ir.tiles import Tile, apply


@dataclass(frozen=True)
class Term:
    """A product that a step adds to a state: factors along the axes of reads' sums, and others, one
    of which may be made of the state."""

    negative: bool
    keys: tuple[int, ...]
    values: tuple[int, ...]
    made: int | None = None
    divisors: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Affine:
    """A constant and reads times coefficients; None is 0 of the one, and 1 of the others."""

    constant: Tile | None
    reads: Mapping[int, Tile | None]


@dataclass(frozen=True)
class _Solved:
    """What is added to each key of a chunk: `known`, and `queries` times the state before it."""

    known: Tile | None
    queries: Tile


@dataclass(frozen=True)
class Corrected:
    """What a step scales and adds `terms` to. `reads` are sums `over` of products with the state
    before a step, once it is `scaled`, or behind the step; `inside` is what is made of it."""

    program: Program
    before: int
    scaled: int | None
    after: int
    recur: int
    time: str
    gate: Gate | None
    terms: tuple[Term, ...]
    reads: tuple[int, ...]
    over: tuple[str, ...]
    inside: frozenset[int]

    @property
    def along(self) -> str:
        return self.time

    def form(self, chunk: int, whole: bool) -> Program | None:
        """By chunks of a length that divides the steps; raises Unsplit."""
        return _Chunks(self, Cut(self.program, (self.time,), chunk, whole)).program()

    @property
    def states(self) -> tuple[int | None, ...]:
        return self.before, self.scaled, self.after


class _Chunks:
    """The program by chunks, being made. Points of a chunk are numbered along several axes: `i`
    that of outputs, `j` of what came before, and `column` of right sides."""

    def __init__(self, state: Corrected, cut: Cut) -> None:
        self.state, self.cut, self.graph = state, cut, cut.graph
        self.i, taken = cut.axis(cut.inner[0]), set(cut.graph.extents)
        self.j, self.step, self.column = (
            cut.graph.axis(fresh(f"{state.time}_{word}", taken), cut.length)
            for word in ("before", "step", "column")
        )
        self.over = tuple(cut.axis(axis) for axis in state.over)
        self.dtype = state.program.nodes[state.before].dtype
        self.decays: Decays | None = None
        if state.gate is not None:
            gate = state.gate.at(cut, self._places(self.i))
            self.decays = decays_of(cut, gate, self.i.name, self.j)

    def program(self) -> Program:
        state, cut = self.state, self.cut
        given = [None if t.made is None else self._solved(t, t.made) for t in state.terms]
        values = [
            self._given(term, self.j) if one is None else one.known
            for term, one in zip(state.terms, given, strict=True)
        ]  # fmt: skip
        handed = self._handed(values, next((one for one in given if one is not None), None))
        sides = [
            (self._key(term), value if one is None else _sum(value, self._times_state(one, handed)))
            for term, one, value in zip(state.terms, given, values, strict=True)
        ]  # fmt: skip
        for read in state.reads:
            found = self._read(read, sides, handed)
            cut.values.give(read, self._places(self.i), found)
        return cut.finished(self._places(self.i))

    def _places(self, at: Axis) -> Mapping[str, Place]:
        return {self.state.time: self.cut.place(at.name)}

    def _handed(self, values: Sequence[Tile | None], made: _Solved | None) -> Tile:
        """The state in front of each chunk; the loop along chunks takes no more than it must."""
        state, cut, nodes = self.state, self.cut, self.state.program.nodes
        op, along = nodes[state.before].op, cut.axis(cut.outer)
        assert isinstance(op, Before)
        first = cut.values.at(nodes[state.before].args[0], {})
        before = self.graph.add(Before(cut.outer, op.axes, f"{op.label}-chunks"), first)
        after = before
        if self.decays is not None:
            after = before * apply("exp", self.decays.whole)
        for term, value in zip(state.terms, values, strict=True):
            key, turned = self._left(term), term.made is not None
            if value is not None:
                after = after + self._along(key, value)
            if turned and made is not None:
                after = after + self._turned(key, made, before)
        cut.values.give(state.recur, {}, self.graph.add(Recur(cut.outer), before, after))
        handed = after.at({along: along - 1}, fill=0)
        start = nodes[nodes[state.before].args[0]].op
        if isinstance(start, Constant) and not start.value:
            return handed
        return where(self.graph.iota(along) > 0, handed, first)

    def _turned(self, key: Tile, made: _Solved, before: Tile) -> Tile:
        """What a chunk's corrections by the state add to it: one matrix times the state."""
        names = self.cut.apart(self.state.over)
        rows = {own: self.cut.axis(name) for own, name in zip(self.over, names, strict=True)}
        matrix = contract(key.at(rows), made.queries, self.j, self.dtype)
        found = contract(matrix, before, self.over, self.dtype)
        return found.at({row: own for own, row in rows.items()})

    def _left(self, term: Term) -> Tile:
        """A term's key, and what is left of it at the end of a chunk."""
        key, decays = self._key(term), self.decays
        return key if decays is None else key * apply("exp", decays.whole - decays.others)

    def _key(self, term: Term) -> Tile:
        """The factors along reads' sums, at the points before."""
        return self._product(term.keys, self.j)

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

    def _solved(self, term: Term, made: int) -> _Solved:
        """What a term that is made of the state adds to each key, by what it is without the state
        in front of the chunk and what that is multiplied with."""
        lower = None
        for read, coefficient in self._corrections(term, made, self.i).reads.items():
            weights = self._weights(read, self._key(term), self.i)
            lower = _sum(lower, _scaled(weights, coefficient))
        found = self._corrections(term, made, self.column)
        known, queries = found.constant, None
        for read, coefficient in found.reads.items():
            for other in self.state.terms:
                if other is not term:
                    weights = self._weights(read, self._key(other), self.column)
                    value = self._along(weights, self._given(other, self.j))
                    known = _sum(known, _scaled(value, coefficient))
            queries = _sum(queries, _scaled(self._decayed(read, self.column), coefficient))
        if lower is None or queries is None or not self._is_square(lower):
            raise Unsplit("corrections that differ from value to value")
        own = (self.i.name, self.j.name)
        points = tuple(self.cut.axis(axis) for axis in lower.axes if axis not in own)
        unit = where(self.graph.iota(self.i) == self.graph.iota(self.column), 1.0, 0.0)
        axes = (*points, self.i, self.column)
        inverse = solved(-lower, cast(unit, self.dtype), axes, self.j, self.step)
        inverse = inverse.at({self.i: self.j})
        return _Solved(
            None if known is None else contract(inverse, known, self.column, self.dtype),
            contract(inverse, queries, self.column, self.dtype),
        )

    def _corrections(self, term: Term, made: int, at: Axis) -> _Affine:
        return _times(self._affine(made, at), self._given(term, at))

    def _times_state(self, made: _Solved, handed: Tile) -> Tile:
        return contract(made.queries, handed, self.over, self.dtype)

    def _is_square(self, lower: Tile) -> bool:
        """Whether a system is one for all of a state's values that keys are the same of."""
        state = self.state
        alike = {axis for term in state.terms for key in term.keys for axis in self._axes(key)}
        alike |= {axis for read in state.reads for axis in self._axes(_query(state, read))}
        return {*lower.axes} <= {*alike, *self._gated} | {self.i.name, self.j.name, self.cut.outer}

    @property
    def _gated(self) -> set[str]:
        gate = self.state.gate
        logarithms = () if gate is None else gate.logarithms
        return {axis for one in logarithms for axis in self._axes(one.position)}

    def _axes(self, position: int) -> tuple[str, ...]:
        return self.state.program.nodes[position].axes

    def _read(self, read: int, sides: Sequence[tuple[Tile, Tile | None]], handed: Tile) -> Tile:
        """A sum of products with the state, at all points of a chunk."""
        found = contract(self._decayed(read, self.i), handed, self.over, self.dtype)
        for key, value in sides:
            if value is not None:
                found = found + self._along(self._weights(read, key, self.i), value)
        return cast(found, self.state.program.nodes[read].dtype)

    def _along(self, weights: Tile, value: Tile) -> Tile:
        """The sum over the points before."""
        if self.j.name in value.axes:
            return contract(weights, value, self.j, self.dtype)
        return reduce("sum", weights, self.j) * value

    def _asked(self, read: int, at: Axis) -> Tile:
        """What a read multiplies the state with."""
        return cast(self.cut.values.at(_query(self.state, read), self._places(at)), self.dtype)

    def _decayed(self, read: int, at: Axis) -> Tile:
        """The same times what is left there of the state in front of the chunk."""
        total = self._total(read, at)
        return (
            self._asked(read, at) if total is None else self._asked(read, at) * apply("exp", total)
        )

    def _total(self, read: int, at: Axis) -> Tile | None:
        """The decay up to a read: before its step scales the state, or behind that."""
        if self.decays is None:
            return None
        early = self.state.before in self.state.program.nodes[read].args
        total = self.decays.earlier if early else self.decays.total
        return total if at == self.i else total.at({self.i: at})

    def _weights(self, read: int, key: Tile, at: Axis) -> Tile:
        """How much of what each point before adds is in a read; behind a step, of its own too."""
        query, total = self._asked(read, at), self._total(read, at)
        place, behind = self.graph.iota(at), self.graph.iota(self.j)
        stepped = self.state.after in self.state.program.nodes[read].args
        seen = behind <= place if stepped else behind < place
        if total is None or self.decays is None:
            return where(seen, contract(query, key, self.over, self.dtype), 0.0)
        left = apply("exp", where(seen, total - self.decays.others, -math.inf))
        if {*total.axes} & {*self.state.over}:
            return reduce("sum", query * key * left, self.over)
        return contract(query, key, self.over, self.dtype) * left

    def _affine(self, position: int, at: Axis) -> _Affine:
        """A value at all points of a chunk, by what it is of reads; raises Unsplit."""
        state, node, places = self.state, self.state.program.nodes[position], self._places(at)
        if position not in state.inside:
            return _Affine(cast(self.cut.values.at(position, places), self.dtype), {})
        if position in state.reads and state.after not in node.args:
            return _Affine(None, {position: None})
        if isinstance(node.op, Cast) and node.dtype == self.dtype:
            return self._affine(node.args[0], at)
        function = node.op.function if isinstance(node.op, Map) else ""
        minus = self.graph.constant(-1.0, self.dtype)
        if function == "neg":
            return _times(self._affine(node.args[0], at), minus)
        if function in ("add", "sub"):
            left, right = (self._affine(arg, at) for arg in node.args)
            return _added(left, _times(right, minus) if function == "sub" else right)
        free = [arg for arg in node.args if arg not in state.inside]
        if function in ("mul", "div") and len(free) == 1 and (function, free[0]) != (
            "div", node.args[0]
        ):  # fmt: skip
            factor = self.cut.values.at(free[0], places)
            made = next(arg for arg in node.args if arg in state.inside)
            return _times(self._affine(made, at), 1.0 / factor if function == "div" else factor)
        raise Unsplit("what a step adds is not affine in the state")


def _times(value: _Affine, factor: Tile) -> _Affine:
    reads = {read: _scaled(factor, one) for read, one in value.reads.items()}
    return _Affine(None if value.constant is None else value.constant * factor, reads)


def _added(left: _Affine, right: _Affine) -> _Affine:
    if left.reads.keys() & right.reads.keys():
        raise Unsplit("a read that counts twice")
    return _Affine(_sum(left.constant, right.constant), {**left.reads, **right.reads})


def _scaled(tile: Tile, coefficient: Tile | None) -> Tile:
    return tile if coefficient is None else tile * coefficient


def _sum(left: Tile | None, right: Tile | None) -> Tile | None:
    return right if left is None else left if right is None else left + right


def _query(state: Corrected, read: int) -> int:
    """The factor of a read that is not the state."""
    return next(arg for arg in state.program.nodes[read].args if arg not in state.states)
