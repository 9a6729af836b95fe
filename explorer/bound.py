"""The least time that any right kernel of a program takes on a machine: no less is believed.

Compulsory work (`ir.compulsory`) at the machine's peaks (`ir.peaks`): for each level what cannot
lie nearer already, at the level's bandwidth; products at the rates of all engines together, as
fast as their factors could be multiplied on any of them. Knows no operator and no target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from explorer.outcome import Outcome
from ir.compulsory import Product, compulsory
from ir.dtypes import dtype_of, is_float
from ir.peaks import HEADROOM, LEVELS, Rate, bandwidths_in, rates_in
from ir.program import Program

BELOW = 0.995  # of the bound: clocks of timers are that good
BOUND, BOUND_BY = "bound_seconds", "bound_by"  # the notes of an outcome that is below
_NARROW = 11  # bits of a mantissa that whole numbers of 8 bits may stand in for, no fewer


@dataclass(frozen=True, slots=True)
class Limit:
    """What one resource needs at least."""

    resource: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Bound:
    """The limits of every resource that is known; the largest counts."""

    limits: tuple[Limit, ...] = ()

    @classmethod
    def of(cls, program: Program, facts: Mapping[str, Any]) -> Bound:
        """From a machine's facts and peaks; without those that are not known."""
        work = compulsory(program)
        headroom = float(facts.get(HEADROOM) or 1.0)
        found = [
            Limit(LEVELS.get(one.level, one.level), (work.bytes - one.nearer) / one.per_second)
            for one in bandwidths_in(facts)
        ]
        found += _products(work.products, facts)
        return cls(tuple(Limit(f.resource, f.seconds / headroom) for f in found if f.seconds > 0))

    @property
    def largest(self) -> Limit | None:
        return max(self.limits, key=lambda limit: limit.seconds, default=None)

    @property
    def seconds(self) -> float:
        """0 where nothing is known."""
        return self.largest.seconds if self.largest else 0.0

    def beaten(self, seconds: float) -> bool:
        """Whether no right kernel can have been so fast."""
        return seconds < BELOW * self.seconds

    def judged(self, outcome: Outcome) -> Outcome:
        """The outcome as it is, or where its time is below the bound, one of that kind."""
        largest = self.largest
        if not outcome.ok or outcome.seconds is None or largest is None:
            return outcome
        if not self.beaten(outcome.seconds):
            return outcome
        detail = (
            f"measured {outcome.seconds:.3g} s, but {largest.resource} needs "
            f"{largest.seconds:.3g} s at least"
        )
        notes = (*outcome.notes, (BOUND, largest.seconds), (BOUND_BY, largest.resource))
        return replace(outcome, status="below_roofline", detail=detail, notes=notes)


def _products(groups: Sequence[Sequence[Product]], facts: Mapping[str, Any]) -> list[Limit]:
    """For each kind of product, all of them: engines may work on different kinds side by side."""
    rates = tuple(rates_in(facts))
    work: dict[tuple[tuple[str, ...], str], int] = {}
    for group in groups:
        largest = max(group, key=lambda product: product.operations)
        kinds = {(product.factors, product.accumulates) for product in group}
        if len(kinds) == 1:
            kind = kinds.pop()
            work[kind] = work.get(kind, 0) + largest.operations
    return [
        Limit(f"the arithmetic of {' and '.join(factors)} products", count / peak)
        for (factors, accumulates), count in work.items()
        if (peak := _peak(factors, accumulates, rates))
    ]


def _peak(factors: Sequence[str], accumulates: str, rates: Sequence[Rate]) -> float:
    """What all engines together do at most; 0 where the rate of the factors is not known."""
    if not any(rate.factors in factors for rate in rates):
        return 0.0
    best: dict[str, float] = {}
    for rate in rates:
        if _holds(rate.accumulates, accumulates):
            speed = rate.per_second / min(_pieces(dtype, rate.factors) for dtype in factors)
            best[rate.engine] = max(speed, best.get(rate.engine, 0.0))
    return sum(best.values())


def _pieces(dtype: str, unit: str) -> float:
    """Into how many factors of the unit's type one of the program's is split at least.

    Each piece is multiplied once at the very least, however the pieces of two factors are paired.
    """
    if is_float(dtype) and not is_float(unit) and _digits(dtype) <= _NARROW:
        return float("inf")  # whole numbers have no exponent
    return max(1, _digits(dtype) // _digits(unit))


def _digits(dtype: str) -> int:
    """Binary digits of a number: those of the mantissa, and the first one or the sign."""
    found = dtype_of(dtype)
    return found.mantissa + (found.kind != "uint")


def _holds(unit: str, wanted: str) -> bool:
    """Whether sums of the unit's type may do: as exact as the program's, or as f32, in which sums
    of small whole numbers are exact, and wide ones may be put together."""
    return dtype_of(unit).mantissa >= min(dtype_of(wanted).mantissa, dtype_of("f32").mantissa)
