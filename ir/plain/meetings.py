"""Where the threads of a group have to meet: between accesses of one element by two of them.

What a thread writes is there for the others once all have met, and is not written over before.
Iterations of two shared loops with the same extents are the same threads'; where both touch an
array at the same place of their point, each thread goes on with what it left itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from ir.plain.accesses import arrays_in, every, nested, scalars_of
from ir.plain.code import (
    Accumulate,
    Claim,
    Combine,
    Let,
    Loop,
    Name,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.scalars import rebuilt
from ir.plain.strides import elements
from ir.plain.sums import names_of

Place = tuple[tuple[int, ...], int, Scalar]  # extents of a shared loop, lanes that share, the index
Placing = Callable[[Scalar], Place | None]


@dataclass(frozen=True, slots=True)
class Access:
    """Of an array, at a place of a thread's own point, or anywhere (None)."""

    array: str
    writes: bool
    place: Place | None = None

    def clashes(self, other: Access) -> bool:
        """Whether two threads may be at one element, one of them to change it."""
        apart = self.array != other.array or not (self.writes or other.writes)
        return not apart and (self.place is None or self.place != other.place)


def contended(statements: Iterable[Statement]) -> frozenset[str]:
    """Arrays that are written, and touched at another place of the text too."""
    found, changed = Counter[str](), set[str]()
    for s in every(statements):
        found.update(set(arrays_in(scalars_of(s))))
        if isinstance(s, Write | Combine | Claim):
            found[s.array] += 2 if isinstance(s, Claim) else 1
            changed.add(s.array)
    return frozenset(array for array in changed if found[array] > 1)


def accesses_of(statements: Iterable[Statement], share: int = 1) -> Iterator[Access]:
    """Of all threads together; a shared loop's iterations each have `share` lanes."""
    for statement in statements:
        if isinstance(statement, Spread):
            yield from _of_points(statement, share)
            continue
        yield from accesses_here(statement)
        for block in nested(statement):
            yield from accesses_of(block, share)


def accesses_here(statement: Statement) -> Iterator[Access]:
    """Of a statement itself, without those of its blocks."""
    yield from _of(statement, lambda index: None)


def anywhere(statements: Iterable[Statement]) -> Iterator[Access]:
    """Of statements whose iterations any threads may have."""
    for statement in every(statements):
        yield from accesses_here(statement)


def _of_points(spread: Spread, share: int) -> Iterator[Access]:
    extents = tuple(extent for _, extent in spread.variables)
    own: dict[Scalar, Scalar] = {
        name: Name(f"point {number}") for number, (name, _) in enumerate(spread.variables)
    }
    for statement, known in _within(spread.body, own):
        bound = {name.name for name in known.values() if isinstance(name, Name)}

        def place(
            index: Scalar, known: Mapping[Scalar, Scalar] = known, bound: set[str] = bound
        ) -> Place | None:
            found = rebuilt(index, known.get)
            if {*names_of(found)} <= bound and not any(elements((found,))):
                return extents, share, found
            return None

        yield from _of(statement, place)


def _within(
    statements: Iterable[Statement], known: Mapping[Scalar, Scalar], depth: int = 0
) -> Iterator[tuple[Statement, Mapping[Scalar, Scalar]]]:
    """Statements of an iteration, with what variables are there: of loops by how deep they are."""
    known = dict(known)
    for statement in statements:
        yield statement, known
        inside = known
        if isinstance(statement, Let):
            known = {**known, statement.name: rebuilt(statement.value, known.get)}
        elif isinstance(statement, Loop | Accumulate):
            around = Name(f"loop {depth} of {statement.extent}")
            inside = {**known, statement.variable: around}
        for block in nested(statement):
            yield from _within(block, inside, depth + 1)


def _of(statement: Statement, place: Placing) -> Iterator[Access]:
    for element in elements(scalars_of(statement)):
        yield Access(element.array, False, place(element.index))
    if isinstance(statement, Write | Combine | Claim):
        own = isinstance(statement, Write)  # iterations may meet in what they combine
        yield Access(statement.array, True, place(statement.index) if own else None)


class Order:
    """What threads of a group may still be at, since they all met."""

    def __init__(self, statements: Iterable[Statement], own: frozenset[str]) -> None:
        self._arrays = contended(statements) - own
        self._since: frozenset[Access] = frozenset()

    def clashes(self, accesses: Iterable[Access]) -> bool:
        """Whether threads have to meet before these."""
        return any(a.clashes(b) for a in self._shared(accesses) for b in self._since)

    def note(self, accesses: Iterable[Access]) -> None:
        self._since |= self._shared(accesses)

    def met(self) -> None:
        self._since = frozenset()

    @contextmanager
    def perhaps(self) -> Iterator[None]:
        """What is noted inside may not be reached."""
        before = self._since
        yield
        self._since |= before

    def _shared(self, accesses: Iterable[Access]) -> frozenset[Access]:
        return frozenset(access for access in accesses if access.array in self._arrays)
