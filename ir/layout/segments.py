"""Choosing which tile bits select the 128-byte line, so that no access has two lines in one bank.

Owns the search for a subspace that meets given subspaces as little as possible. Knows no widths,
no instructions and no hardware limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ir.layout import f2

NODES = 400
"""Steps of the search among three and more spans, each some 0.1 ms."""


@dataclass(frozen=True, slots=True)
class Demand:
    """A span that the segments should avoid; meeting it in d dimensions costs weight * 2^d."""

    span: f2.Columns
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Segments:
    """`basis` of the chosen subspace, ascending; `fewest`: proved that none costs less."""

    basis: f2.Columns
    fewest: bool


def cost(basis: Sequence[int], demands: Sequence[Demand]) -> int:
    """Sum over the demands of weight * 2^(dimensions of their span that lie in `basis`' span)."""
    own = f2.rank(basis)
    return sum(
        demand.weight << own + f2.rank(demand.span) - f2.rank((*basis, *demand.span))
        for demand in demands
    )


def least_cost(demands: Sequence[Demand], bits: int, size: int) -> int:
    """What `size` dimensions of `bits` cannot go below, by counting dimensions."""
    return sum(demand.weight << max(0, f2.rank(demand.span) + size - bits) for demand in demands)


def choose_segments(demands: Sequence[Demand], fixed: f2.Columns, bits: int, size: int) -> Segments:
    """`size` of `bits` dimensions, apart from `fixed`, that cost the demands the least.

    At least one demand's span must contain `fixed`, and `fixed` fits bits - size dimensions. One
    or two spans have a common complement, which is written down directly (arXiv 2505.23819):
    vectors outside both, then XORs of one vector of either side, which are in neither. Three and
    more may have none over F2; then a search of at most NODES steps takes over. Unit vectors are
    preferred, the high ones, so that low offset bits stay bank bits.
    """
    room = bits - size
    spans = _maximal(_avoidable(demand.span, fixed, room) for demand in demands) or [fixed]
    if len(spans) <= 2:
        return Segments(_common_complement(spans[0], spans[-1], bits, room), True)
    return _Search(demands, fixed, bits, size).run()


def _avoidable(span: f2.Columns, fixed: f2.Columns, room: int) -> f2.Columns:
    """`span`, or of one too large to be avoided a part of `room` dimensions that has `fixed`.

    Whoever avoids such a part meets the whole span in as few dimensions as there are.
    """
    inside = f2.intersection(fixed, span)
    return (inside + f2.independent(span, inside))[:room]


def _maximal(spans: Iterator[f2.Columns]) -> list[f2.Columns]:
    """Without those that lie within another: whoever avoids the larger avoids them too."""
    kept: list[tuple[f2.Columns, f2.Span]] = []
    for span in sorted(spans, key=len, reverse=True):
        if not any(all(vector in other for vector in span) for _, other in kept):
            kept.append((span, f2.Span(span)))
    return [span for span, _ in kept]


def _common_complement(first: f2.Columns, second: f2.Columns, bits: int, room: int) -> f2.Columns:
    """A complement of both spans, after filling each up to `room` dimensions.

    They are filled with each other's vectors before others: what they share costs no XOR.
    """
    units = tuple(1 << bit for bit in range(bits))
    one = (first + f2.independent(second + units, first))[:room]
    other = (second + f2.independent(one + units, second))[:room]
    shared = f2.intersection(one, other)
    left = f2.independent(_units_first(one, bits), shared)
    right = f2.independent(_units_first(other, bits), shared)
    outside = f2.complement(one + other, bits)
    crossed = tuple(here ^ there for here, there in zip(left, right, strict=True))
    return tuple(sorted(outside + crossed))


def _units_first(span: f2.Columns, bits: int) -> f2.Columns:
    inside = f2.Span(span)
    units = (1 << bit for bit in range(bits) if 1 << bit in inside)
    return f2.independent((*units, *span))


class _Search:
    """Depth first over echelon bases in the sum of all spans, cheapest vectors first.

    Works modulo what all spans share with `fixed`; vectors outside the sum of the spans cost
    nothing and are taken first.
    """

    def __init__(self, demands: Sequence[Demand], fixed: f2.Columns, bits: int, size: int) -> None:
        shared = fixed
        for demand in demands:
            shared = f2.intersection(shared, demand.span)
        everything = tuple(vector for demand in demands for vector in demand.span)
        self.outside = f2.complement(everything, bits)[-size:] if size else ()
        self.free = f2.independent(_units_first(everything, bits), shared)
        self.need = size - len(self.outside)
        self.bound = least_cost(demands, bits, size)
        self.weights = tuple(demand.weight for demand in demands)
        self.spans = tuple(self._reduced(demand.span, shared) for demand in demands)
        self.fixed = self._reduced(fixed, shared)
        self.best: tuple[int, f2.Columns] | None = None
        self.nodes = 0

    def run(self) -> Segments:
        self._descend((), tuple(self.weights))
        assert self.best is not None
        total, chosen = self.best
        basis = self.outside + f2.multiply(self.free, chosen)
        return Segments(tuple(sorted(basis)), total == self.bound or self.nodes < NODES)

    def _reduced(self, vectors: f2.Columns, shared: f2.Columns) -> f2.Columns:
        """Vectors as coordinates over `free`, modulo `shared`."""
        span = f2.Span(shared + self.free)
        return f2.independent(span.reduce(vector)[1] >> len(shared) for vector in vectors)

    def _descend(self, chosen: f2.Columns, costs: tuple[int, ...]) -> None:
        if len(chosen) == self.need:
            if self.best is None or sum(costs) < self.best[0]:
                self.best = (sum(costs), chosen)
            return
        for candidate, grown in self._candidates(chosen, costs):
            if self._finished(sum(grown)):
                return
            self._descend((*chosen, candidate), grown)

    def _finished(self, reached: int) -> bool:
        if self.best is None:
            return False
        return reached >= self.best[0] or self.nodes >= NODES or self.best[0] == self.bound

    def _candidates(
        self, chosen: f2.Columns, costs: tuple[int, ...]
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Vectors with a higher top bit than the last one, by cost, then by number of terms."""
        self.nodes += 1
        dimensions = len(self.free)
        least = 1 << chosen[-1].bit_length() if chosen else 1
        beyond = 1 << dimensions - (self.need - len(chosen)) + 1
        met = [self._members(span + chosen)[least:beyond] for span in self.spans]
        added = sum(weight * inside for weight, inside in zip(costs, met, strict=True)) + np.zeros(
            beyond - least, np.int64
        )
        legal = np.flatnonzero(~self._members(self.fixed + chosen)[least:beyond])
        terms = np.array([(least + int(place)).bit_count() for place in legal])
        for place in legal[np.lexsort((legal, terms, added[legal]))]:
            grown = (cost << int(inside[place]) for cost, inside in zip(costs, met, strict=True))
            yield least + int(place), tuple(grown)

    def _members(self, vectors: f2.Columns) -> NDArray[np.bool_]:
        """Which of all coordinates over `free` lie in the span of `vectors`."""
        dimensions = len(self.free)
        checks = f2.annihilator(vectors, dimensions)
        syndromes = np.zeros(1 << dimensions, np.int64)
        for bit, column in enumerate(f2.transpose(checks, dimensions)):
            syndromes[1 << bit : 2 << bit] = syndromes[: 1 << bit] ^ column
        return np.asarray(syndromes == 0, dtype=np.bool_)
