"""Merges of an extreme and of sums relative to it, which take many values as easily as two.

`(max(a0, b0), add(mul(a1, exp(sub(a0, max(a0, b0)))), mul(b1, exp(sub(b0, max(a0, b0))))))` is such
a merge: of any number of values, state 0 is the largest, and state 1 the sum of each one's state 1
times exp(state 0 - largest). That is one exponential for each value, and no division in turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ir.merges import Apply, Merge, State, Term

_SIDES = (0, 1)


@dataclass(frozen=True, slots=True)
class Scaled:
    """State `extreme` is the `function` (max or min) of all; every other one is scaled to it."""

    extreme: int
    function: str


@lru_cache(maxsize=256)
def scaled_of(merge: Merge) -> Scaled | None:
    """How a merge is one of many values, if it is."""
    for number, term in enumerate(merge.results):
        for function in ("max", "min"):
            found = Scaled(number, function)
            if _is_extreme(term, found) and merge.states > 1:
                rest = (n for n in range(merge.states) if n != number)
                if all(_is_scaled(merge, n, found) for n in rest):
                    return found
    return None


def _is_extreme(term: Term, scaled: Scaled) -> bool:
    sides = {State(side, scaled.extreme) for side in _SIDES}
    return isinstance(term, Apply) and term.function == scaled.function and set(term.args) == sides


def _is_scaled(merge: Merge, number: int, scaled: Scaled) -> bool:
    """Whether a state is the sum of both sides', each times the exponential of how far it is from
    the extreme, which is never above 1."""
    term, extreme = merge.results[number], merge.results[scaled.extreme]
    if not isinstance(term, Apply) or term.function != "add":
        return False
    wanted = []
    for side in _SIDES:
        apart: tuple[Term, ...] = (State(side, scaled.extreme), extreme)
        apart = apart if scaled.function == "max" else apart[::-1]
        factor = Apply("exp", (Apply("sub", apart),))
        wanted.append({Apply("mul", pair) for pair in _both_ways(State(side, number), factor)})
    return any(
        first in wanted[0] and second in wanted[1] for first, second in _both_ways(*term.args)
    )


def _both_ways(left: Term, right: Term) -> tuple[tuple[Term, Term], tuple[Term, Term]]:
    return (left, right), (right, left)
