"""Elimination over F2 on Python integers: vectors are bit masks, matrices tuples of columns.

Owns rank, membership, kernels, solutions and complements. Knows nothing of layouts or hardware.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Columns = tuple[int, ...]


class Span:
    """The span of the vectors added so far; expressions are in terms of the earliest of them.

    A vector is expressed in the greedy basis (each vector that was independent when it was added),
    so the expression is unique, and uses later vectors only where earlier ones do not suffice.
    """

    __slots__ = ("_count", "_pivots")

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        self._pivots: dict[int, tuple[int, int]] = {}  # top bit -> (reduced vector, combination)
        self._count = 0
        for vector in vectors:
            self.add(vector)

    @property
    def rank(self) -> int:
        return len(self._pivots)

    def reduce(self, vector: int) -> tuple[int, int]:
        """(remainder, mask of the added vectors whose XOR is `vector` ^ remainder).

        The remainder is 0 exactly when `vector` lies in the span.
        """
        pivots = self._pivots
        combination = 0
        while vector:
            pivot = pivots.get(vector.bit_length())
            if pivot is None:
                break
            vector ^= pivot[0]
            combination ^= pivot[1]
        return vector, combination

    def add(self, vector: int) -> bool:
        """Add `vector`; whether it was independent of the ones before."""
        remainder, combination = self.reduce(vector)
        if remainder:
            self._pivots[remainder.bit_length()] = (remainder, combination | 1 << self._count)
        self._count += 1
        return remainder != 0

    def express(self, vector: int) -> int | None:
        """Mask of the added vectors whose XOR is `vector`; None outside the span."""
        remainder, combination = self.reduce(vector)
        return None if remainder else combination

    def __contains__(self, vector: int) -> bool:
        return self.reduce(vector)[0] == 0

    def copy(self) -> Span:
        """An independent Span of the same vectors."""
        other = Span()
        other._pivots = dict(self._pivots)
        other._count = self._count
        return other


def rank(vectors: Iterable[int]) -> int:
    """Dimension of the span of `vectors`."""
    pivots: dict[int, int] = {}
    for vector in vectors:
        while vector:
            top = vector.bit_length()
            pivot = pivots.get(top)
            if pivot is None:
                pivots[top] = vector
                break
            vector ^= pivot
    return len(pivots)


def apply(columns: Sequence[int], coordinate: int) -> int:
    """The matrix times the bits of `coordinate`: the XOR of the columns that it selects."""
    image = 0
    while coordinate:
        lowest = coordinate & -coordinate
        image ^= columns[lowest.bit_length() - 1]
        coordinate ^= lowest
    return image


def multiply(left: Sequence[int], right: Sequence[int]) -> Columns:
    """Columns of left times right: first `right`, then `left`."""
    return tuple(apply(left, column) for column in right)


def transpose(columns: Sequence[int], rows: int) -> Columns:
    """The columns of the transposed matrix, one for each of the `rows` lowest bits."""
    return tuple(
        sum((column >> row & 1) << index for index, column in enumerate(columns))
        for row in range(rows)
    )


def independent(vectors: Iterable[int], beside: Iterable[int] = ()) -> Columns:
    """Those of `vectors`, in order, that are independent of `beside` and of the ones before."""
    span = Span(beside)
    return tuple(vector for vector in vectors if span.add(vector))


def complement(vectors: Iterable[int], bits: int) -> Columns:
    """The unit vectors, lowest first, that complete the span of `vectors` to all `bits` bits."""
    return independent((1 << bit for bit in range(bits)), vectors)


def kernel(columns: Sequence[int]) -> Columns:
    """A basis of the coordinates that the matrix maps to 0."""
    span = Span()
    basis = []
    for index, column in enumerate(columns):
        remainder, combination = span.reduce(column)
        if not remainder:
            basis.append(combination | 1 << index)
        span.add(column)
    return tuple(basis)


def annihilator(vectors: Sequence[int], bits: int) -> Columns:
    """A basis of the masks whose AND with every vector of the span has an even number of ones.

    A vector of `bits` bits lies in the span exactly when all of them have even parity on it.
    """
    return kernel(transpose(independent(vectors), bits))


def intersection(left: Sequence[int], right: Sequence[int]) -> Columns:
    """A basis of span(left) and span(right) in common."""
    first, second = independent(left), independent(right)
    mask = (1 << len(first)) - 1
    shared = (apply(first, null & mask) for null in kernel(first + second))
    return independent(shared)


def solve(columns: Sequence[int], targets: Iterable[int]) -> tuple[int | None, ...]:
    """For each target the coordinate that the matrix maps to it, or None; free bits are 0."""
    span = Span(columns)
    return tuple(span.express(target) for target in targets)


def inverse(columns: Sequence[int]) -> Columns | None:
    """The inverse of a square matrix of len(columns) bits, or None where it is singular."""
    bits = len(columns)
    span = Span(columns)
    if span.rank < bits or any(column >> bits for column in columns):
        return None
    return tuple(span.reduce(1 << bit)[1] for bit in range(bits))


def members(basis: Sequence[int]) -> tuple[int, ...]:
    """All 2^len(basis) combinations, in the order of their coordinates."""
    found = [0]
    for vector in basis:
        found += [member ^ vector for member in found]
    return tuple(found)
