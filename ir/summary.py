"""What there is to say about a space: its size, the share that is legal, what each rule removes.

Estimated from draws where a space is too large to be counted. Knows spaces by what they offer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ir.columns import Decision
from ir.parts import groups_of
from ir.schedule import Value

if TYPE_CHECKING:
    from ir.space import Space

EXACT_SIZE = 200_000  # a space no larger than this is counted, not sampled
SURE_HITS = 1_000  # legal draws after which an estimate of their share is good to 3 percent


@dataclass(frozen=True, slots=True)
class Summary:
    """What there is to say about a space; `removed` holds (constraint, needs, share alone)."""

    size: int
    legal_share: float
    exact: bool
    decisions: tuple[Decision, ...]
    pinned: tuple[tuple[str, Value], ...]
    removed: tuple[tuple[str, str, float], ...]

    @property
    def legal(self) -> int:
        """Legal schedules, an estimate unless `exact`."""
        return round(self.size * self.legal_share)


def described(space: Space, rng: np.random.Generator) -> Summary:
    """All of it; counted if the space is small enough."""
    exact = space.size <= EXACT_SIZE
    if exact:
        share = sum(len(chunk) for chunk in space.exhaustive()) / space.size
    else:
        share = legal_share(space, rng)
    alone = removed(space, rng)
    return Summary(
        space.size,
        share,
        exact,
        space.decisions,
        tuple(space.pinned.items()),
        tuple((c.name, c.needs, alone[c.name]) for c in space.constraints),
    )


def legal_share(space: Space, rng: np.random.Generator, rows: int = 100_000) -> float:
    """Share of all schedules that are legal, estimated from up to 20 times `rows` draws.

    Constraints that read nothing in common are independent, so each such part is estimated
    by itself, with more draws where few are legal.
    """
    if space.shape.governing:
        legal = sum(legal_share(branch, rng, rows) * branch.size for branch in space.branches)
        return legal / space.size
    groups = groups_of(space.reads)
    parts = [
        (replace(space, constraints=tuple(space.constraints[n] for n in rules)), space.reads[rules])
        for rules in groups
    ]
    first = space.shape.draw(rng, 1)
    forced = space.shape.in_force(first)[0]
    share, draws = 1.0, 0
    hits = np.zeros(len(parts), dtype=np.int64)
    while parts:
        read = np.logical_or.reduce([reads.any(axis=0) for _, reads in parts])
        columns = np.flatnonzero(read & forced)
        drawn = np.repeat(first, rows, axis=0)  # one for all: they look at different columns
        drawn[:, columns] = space.shape.uniform(rng, rows, columns)
        hits += [int(part.legal(drawn).sum()) for part, _ in parts]
        draws += rows
        known = (hits >= SURE_HITS) | (draws >= 20 * rows)
        share *= float(np.prod(hits[known] / draws))
        parts = [part for part, done in zip(parts, known, strict=True) if not done]
        hits = hits[~known]
    return share


def removed(space: Space, rng: np.random.Generator, rows: int = 20_000) -> dict[str, float]:
    """For each constraint, the share of independent draws that it alone removes."""
    shares = space.violations(space.shape.draw(rng, rows)).mean(axis=0)
    return {c.name: float(s) for c, s in zip(space.constraints, shares, strict=True)}


def nothing_legal(space: Space, rng: np.random.Generator) -> str:
    """Why no legal schedule was found: the tightest rule."""
    alone = removed(space, rng)
    worst = max(alone, key=lambda name: alone[name])
    rule = next(c for c in space.constraints if c.name == worst)
    pins = ", ".join(f"{name}={value}" for name, value in space.pinned.items())
    given = f" with {pins} pinned" if pins else ""
    share = f"removes {alone[worst]:.1%} of all schedules by itself"
    return f"no legal schedule found{given}; the tightest, {worst} ({rule.needs}), {share}"
