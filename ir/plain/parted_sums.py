"""Long sums of few results: a part for every thread of a group, which are added up behind.

A `Spread` gives each of its points to one thread, and what that sums is its own work: of the norm
of a grid that is all of it. Terms are dealt out instead, neighbours to neighbours; partial sums are
in an array, and are dealt out again while they are many. The last ones of a single result are a
fold, which all threads do together. Knows no target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from ir.merges import NAMED, merge_of
from ir.plain.accesses import every, scalars_of, written
from ir.plain.block import Names
from ir.plain.code import (
    GROUP,
    Accumulate,
    Array,
    Assign,
    Call,
    Claim,
    Element,
    If,
    Let,
    Loop,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.jammed import renamed
from ir.plain.scalars import index, plus, times
from ir.plain.strides import Walk, elements
from ir.plain.sums import names_of

FEW, RESULTS = 8, 256  # of a shared loop, beyond which lanes share what each sums, and threads
COLUMNS = 1 << 15  # the same, of sums of columns, which no lanes can share
LARGE = 1 << 22  # terms of all columns that are worth more threads than there are results
LONG, LONGER = 128, 1 << 16  # terms that are worth parts, of few results and of more
TERMS, AGAIN = 128, 32  # of a part, and of a sum of parts
SHARED = 4096  # terms of a fold by all threads
ROOM = 1 << 18  # partial sums at a time


def with_parted_sums(kernel: PlainKernel) -> PlainKernel:
    """The kernel with its long sums of few results in parts."""
    if not kernel.cooperative:
        return kernel
    maker = _Maker(kernel)
    body = tuple(with_spreads(kernel.body, maker.spread))
    return replace(kernel, arrays=(*kernel.arrays, *maker.arrays), body=body)


def with_spreads(
    statements: Sequence[Statement], change: Callable[[Spread], Iterator[Statement]]
) -> Iterator[Statement]:
    """Statements that all threads come to together, with what `change` makes of shared loops."""
    for s in statements:
        if isinstance(s, Spread):
            yield from change(s)
        elif isinstance(s, Loop):
            yield replace(s, body=tuple(with_spreads(s.body, change)))
        elif isinstance(s, If):
            body, other = (tuple(with_spreads(side, change)) for side in (s.body, s.other))
            yield replace(s, body=body, other=other)
        else:
            yield s


@dataclass(frozen=True, slots=True)
class SumLoops:
    """A nest of loops that adds to variables, which begin with 0: what is known ahead of it, the
    loops, what one iteration does, and what is behind. `across`: neighbours are of other results,
    as in columns of a matrix."""

    ahead: tuple[Let, ...]
    loops: tuple[tuple[Name, int], ...]
    body: tuple[Statement, ...]
    sums: tuple[Name, ...]
    behind: tuple[Statement, ...]
    across: bool

    @property
    def terms(self) -> int:
        return prod(extent for _, extent in self.loops)

    def worth(self, results: int) -> bool:
        """Whether so many results leave most threads of a group without work."""
        if results <= FEW or (results <= RESULTS and self.terms >= LONGER):
            return True
        return self.across and results * self.terms >= LARGE


def sum_of(spread: Spread) -> SumLoops | None:
    """The first long sum of a shared loop; None if there is none, or more than sums before it."""
    for place, statement in enumerate(spread.body):
        if not isinstance(statement, Let | Loop):
            return None
        if not isinstance(statement, Loop):
            continue
        loops, body = _nest(statement)
        begun = {s.name: s for s in spread.body[:place] if isinstance(s, Let)}
        sums = _added(body)
        zeros = all(
            name in begun and isinstance(value := begun[name].value, Number) and value.value == 0
            for name in sums
        )
        found = SumLoops(
            tuple(s for name, s in begun.items() if name not in sums), loops, body, sums,
            spread.body[place + 1 :], _is_across(spread, loops, body),
        )  # fmt: skip
        changed = {s.name for s in every(found.behind) if isinstance(s, Assign)}
        apart = not changed & {s.name for s in found.ahead}
        return found if sums and zeros and apart and found.terms >= LONG else None
    return None


def _is_across(
    spread: Spread, loops: Sequence[tuple[Name, int]], body: Sequence[Statement]
) -> bool:
    """Whether terms read what lies beside the next result's, and not beside the next term's."""
    lets = {s.name.name: s.value for s in (*spread.body, *body) if isinstance(s, Let)}
    names = [loops[-1][0].name, *(name.name for name, _ in spread.variables[-1:])]
    read = [e for s in every(body) for e in elements(scalars_of(s))]
    strides = [tuple(Walk(name, lets).stride(e.index) for name in names) for e in read]
    return any(own[1:] == (1,) and own[0] not in (0, 1) for own in strides)


def _nest(loop: Loop) -> tuple[tuple[tuple[Name, int], ...], tuple[Statement, ...]]:
    """Loops that hold nothing but each other, and what the innermost one does."""
    loops, body = [(loop.variable, loop.extent)], loop.body
    while len(body) == 1 and isinstance(inner := body[0], Loop):
        loops.append((inner.variable, inner.extent))
        body = inner.body
    return tuple(loops), body


def _added(body: Sequence[Statement]) -> tuple[Name, ...]:
    """Variables of others that an iteration adds to, each once, and does nothing else to others
    with; none if it does more."""
    inside = tuple(every(body))
    if written(body) or not all(isinstance(s, Let | Assign | If) for s in inside):
        return ()
    own = {s.name for s in inside if isinstance(s, Let)}
    added = [s for s in body if isinstance(s, Assign) and s.name not in own]
    names = {s.name.name for s in added}
    others = [s for s in inside if isinstance(s, Assign) and s.name not in own and s not in added]
    read = [name for s in inside for value in _values(s) for name in names_of(value)]
    alike = all(
        isinstance(s.value, Call) and s.value.function == "add" and s.value.args[0] == s.name
        for s in added
    )
    once = len(names) == len(added) and all(read.count(name) == 1 for name in names)
    return tuple(s.name for s in added) if alike and once and not others else ()


def _values(statement: Statement) -> tuple[Scalar, ...]:
    if isinstance(statement, Let | Assign):
        return (statement.value,)
    return (statement.condition,) if isinstance(statement, If) else ()


class _Maker:
    def __init__(self, kernel: PlainKernel) -> None:
        self.names, self.arrays = Names(names_in(kernel)), list[Array]()

    def spread(self, spread: Spread) -> Iterator[Statement]:
        results = prod(extent for _, extent in spread.variables)
        found = sum_of(spread) if results <= COLUMNS else None
        if found is None or not found.worth(results):
            yield spread
            return
        if results == 1 and found.terms <= SHARED:
            yield from self._folds(found)
        else:
            yield from self._dealt(spread, found, results)

    def _folds(self, found: SumLoops) -> Iterator[Statement]:
        """The terms of a single result, one fold for each variable that is added to."""
        yield from found.ahead
        for name in found.sums:
            at = Name(self.names.fresh("term"))
            body = (*self._coordinates(found, at), *found.body)
            (value,) = (s.value for s in body if isinstance(s, Assign) and s.name == name)
            assert isinstance(value, Call)
            kept = tuple(s for s in body if not (isinstance(s, Assign) and s.name in found.sums))
            yield self._again(self._fold(name, at, found.terms, kept, value.args[1]))
        yield from self._rest(Spread((), found.behind))

    def _fold(
        self, name: Name, at: Name, extent: int, body: tuple[Statement, ...], value: Scalar
    ) -> Accumulate:
        return Accumulate(at, extent, False, body, (value,), (name,), merge_of(NAMED["sum"]))

    def _rest(self, spread: Spread) -> Iterator[Statement]:
        """What is behind a sum, which may hold another."""
        if spread.body:
            yield from self.spread(spread)

    def _coordinates(self, found: SumLoops, number: Scalar) -> Iterator[Let]:
        """The variables of the loops at a term."""
        inner = found.terms
        for place, (name, extent) in enumerate(found.loops):
            inner //= extent
            rest = Call("floordiv", (number, index(inner)), "i64") if inner > 1 else number
            yield Let(name, Call("mod", (rest, index(extent)), "i64") if place else rest)

    def _dealt(self, spread: Spread, found: SumLoops, results: int) -> Iterator[Statement]:
        """Partial sums of the terms, and of these again, until few are left."""
        least = SHARED if results == 1 else AGAIN
        count = self._parts(found.terms, TERMS, ROOM // results)
        arrays = [self._array(name, results * count) for name in found.sums]
        yield self._first(spread, found, count, arrays)
        while count > least:
            fewer = self._parts(count, AGAIN, ROOM // results)
            more = [self._array(name, results * fewer) for name in found.sums]
            yield self._more(spread, found, (arrays, count), (more, fewer))
            arrays, count = more, fewer
        if results == 1:
            yield from found.ahead
            for name, array in zip(found.sums, arrays, strict=True):
                at = Name(self.names.fresh("part"))
                yield self._fold(name, at, count, (), Element(array.name, at, array.dtype))
            yield from self._rest(Spread((), found.behind))
            return
        at = Name(self.names.fresh("part"))
        loop = Loop(at, count, tuple(
            _add(name, Element(array.name, self._place(spread, found, count, at), array.dtype))
            for name, array in zip(found.sums, arrays, strict=True)
        ))  # fmt: skip
        zeros = tuple(_zero(name) for name in found.sums)
        yield replace(spread, body=(*found.ahead, *zeros, loop, *found.behind))

    @staticmethod
    def _parts(terms: int, each: int, most: int) -> int:
        """How many parts of about `each` terms, two at least, all alike where that can be."""
        wanted = max(1, min(-(-terms // each), most))
        end = min(2 * wanted, most + 1, terms // 2 + 1)
        alike = (n for n in range(wanted, end) if terms % n == 0)
        return next(alike, wanted)

    def _first(
        self, spread: Spread, found: SumLoops, count: int, arrays: Sequence[Array]
    ) -> Statement:
        """Of every part all terms, so many apart."""
        part, turn, term = (Name(self.names.fresh(stem)) for stem in ("part", "turn", "term"))
        body = (*self._coordinates(found, term), *found.body)
        number = Let(term, plus(part, times(turn, count)))
        loop = self._turns(found.terms, count, turn, number, body)
        zeros = tuple(_zero(name) for name in found.sums)
        writes = tuple(
            Write(array.name, self._place(spread, found, count, part), name)
            for name, array in zip(found.sums, arrays, strict=True)
        )
        points = self._points(spread, found, (part, count))
        return self._again(Spread(points, (*found.ahead, *zeros, loop, *writes)))

    def _more(
        self, spread: Spread, found: SumLoops, given: tuple[Sequence[Array], int],
        made: tuple[Sequence[Array], int],
    ) -> Statement:  # fmt: skip
        """Of every part of the parts all of these, so many apart."""
        (arrays, count), (more, fewer) = given, made
        part, turn, term = (Name(self.names.fresh(stem)) for stem in ("part", "turn", "term"))
        number = Let(term, plus(part, times(turn, fewer)))
        body = tuple(
            _add(name, Element(array.name, self._place(spread, found, count, term), array.dtype))
            for name, array in zip(found.sums, arrays, strict=True)
        )
        loop = self._turns(count, fewer, turn, number, body)
        writes = tuple(
            Write(array.name, self._place(spread, found, fewer, part), name)
            for name, array in zip(found.sums, more, strict=True)
        )
        zeros = tuple(_zero(name) for name in found.sums)
        points = self._points(spread, found, (part, fewer))
        return self._again(Spread(points, (*zeros, loop, *writes)))

    @staticmethod
    def _points(
        spread: Spread, found: SumLoops, part: tuple[Name, int]
    ) -> tuple[tuple[Name, int], ...]:
        """Results and parts, those last that are neighbours where terms lie."""
        return (part, *spread.variables) if found.across else (*spread.variables, part)

    @staticmethod
    def _turns(
        terms: int, parts: int, turn: Name, number: Let, body: tuple[Statement, ...]
    ) -> Loop:
        """A loop over the terms of a part, of which the last may be none."""
        if terms % parts:
            inside = Call("lt", (number.name, index(terms)), "bool")
            body = (If(inside, body),)
        return Loop(turn, -(-terms // parts), (number, *body))

    def _array(self, name: Name, size: int) -> Array:
        array = Array(self.names.fresh("parts"), name.dtype, size, GROUP)
        self.arrays.append(array)
        return array

    @staticmethod
    def _place(spread: Spread, found: SumLoops, count: int, part: Scalar) -> Scalar:
        """Where a part of a result is."""
        own: Scalar = index(0)
        for name, extent in spread.variables:
            own = plus(times(own, extent), name)
        if found.across:
            return plus(times(part, prod(extent for _, extent in spread.variables)), own)
        return plus(times(own, count), part)

    def _again(self, statement: Statement) -> Statement:
        """A statement with variables of its own, for others have been made of the same."""
        own = statement.states if isinstance(statement, Accumulate) else ()
        names = {
            name.name: self.names.fresh(name.name.rpartition("_")[0] or name.name)
            for s in every((statement,))
            for name in _defined(s)
            if name not in own
        }
        return renamed(statement, names)


def names_in(kernel: PlainKernel) -> set[str]:
    """Names of arrays and variables."""
    taken = {array.name for array in kernel.arrays} | {name.name for name, _ in kernel.points}
    return taken | {name.name for s in every(kernel.body) for name in _defined(s)}


def _defined(statement: Statement) -> tuple[Name, ...]:
    if isinstance(statement, Let | Claim):
        return (statement.name,)
    if isinstance(statement, Loop):
        return (statement.variable,)
    if isinstance(statement, Accumulate):
        return (statement.variable, *statement.states)
    if isinstance(statement, Spread):
        return tuple(name for name, _ in statement.variables)
    return ()


def _zero(name: Name) -> Let:
    return Let(name, Number(0.0 if name.dtype[0] == "f" else 0, name.dtype))


def _add(name: Name, value: Scalar) -> Assign:
    return Assign(name, Call("add", (name, value), name.dtype))
