"""What a right kernel may be off, by trial: a program run again with every rounding drawn.

The forward analysis of `ir.propagation` takes operands' errors as if they had nothing in common.
Where a value meets itself again, step after step (h + g (x - h) in a recurrence, a maximum taken of
sums that hold it), it adds up what would cancel, until it says nothing. Monte Carlo arithmetic
(Parker, *Monte Carlo arithmetic: exploiting randomness in floating-point arithmetic*, UCLA
CSD-970002, 1997; the stochastic arithmetic of Vignes before it) has no such trouble: each result is
moved by a random part of its own error, and how far outputs come apart is what roundings do to
them. Knows no program and no lowering.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np

from ir.ops.base import Array, Error, TileArray
from ir.reduced import all_within
from ir.roundoff import FLUSHED, FORMATS

RUNS, COPIES = 8, 4  # in all, and of them in one evaluation, where it has room for them
_FINITE = FORMATS["f64"].largest
_FLUSHED = max(FLUSHED.values())
_WIDTH = 12.0**0.5  # of a range in which all numbers are as likely, over the root of their variance
REACHES = 8.0  # times the largest distance of so many runs: what is close in all of them by chance
BESIDE, NEAR, NEARER = 32, 4.0, 4.0  # neighbours, the part of theirs that one has, and of its own
_AT_ONCE = BESIDE << 19  # elements that are compared with their neighbours


@dataclass(frozen=True)
class Noise:
    """Draws of one run of `runs`, on the arrays of `xp`, of roundings that are `scale` times their
    size; of which one in so many `times` is drawn, as large as all of them together."""

    seed: int
    xp: Any = np
    scale: float = 1.0
    runs: int = RUNS
    times: int = 1
    shares: dict[str, float] = field(default_factory=dict)

    @cached_property
    def draws(self) -> Any:
        return self.xp.random.default_rng(self.seed if self.times == 1 else (self.seed, self.times))

    def moved(self, tile: TileArray, error: Error | None, name: str) -> TileArray:
        """A result moved by part of its own error; of what elements may share, half is the same for
        all results of that `name`. One of which nothing is known is no number from there on."""
        array = tile.array
        by: Any = 0.0
        if error is None or array.dtype.kind != "f":
            return TileArray(tile.axes, array)
        if not isinstance(error.wide, float) or error.wide:
            by = error.wide * self._between(array.shape, self._together(name))
        if not isinstance(error.spread, float) or error.spread:
            by = by + _WIDTH * np.sqrt(error.spread) * self._between(array.shape)
        if self.scale != 1.0 or not all_within(by, _FINITE):
            by = self.xp.where(self.xp.isfinite(by), self.scale * by, np.nan)
        if self.seed % 2:  # what is too small for a type may be nothing in it
            small = abs(array) < _FLUSHED
            if not isinstance(small, np.ndarray) or small.any():
                by = self.xp.where(small & (abs(array) < error.wide), -array, by)
        return TileArray(tile.axes, array + by)

    def _between(self, shape: tuple[int, ...], middle: float = 0.0) -> Array:
        """Numbers half to either side of a middle; what they have by themselves adds up as the root
        of their number, and what they share as that."""
        drawn: Array = self.draws.random(shape, dtype=np.float32)
        if self.times == 1:
            drawn += np.float32(middle - 0.5)
            return drawn
        drawn -= np.float32(0.5)
        drawn *= np.float32(self.times**0.5)
        drawn += np.float32(self.times * middle)
        return drawn

    def _together(self, name: str) -> float:
        """Half of a share between -1 and 1, the same for all results of a name."""
        if name not in self.shares:
            self.shares[name] = np.random.default_rng((self.seed, crc32(name.encode()))).uniform(
                -0.5, 0.5
            )
        return self.shares[name]


def distance(found: Array, exact: Array) -> Array:
    """How far results lie apart; 0 where both are the same infinity or no number."""
    with np.errstate(all="ignore"):
        apart = np.abs(found.astype(np.float64) - exact.astype(np.float64))
        same = (found == exact) | ((found != found) & (exact != exact))
    return np.where(same, 0.0, np.where(apart == apart, apart, np.inf))


def beside(reaches: Array) -> Array:
    """What elements may be off at least, by their neighbours in memory.

    Of many million elements a few are close in all runs by chance, and as far off as others are. So
    one has a `NEAR`-th of what those beside it have in the mean, up to `NEARER` times its own: that
    of a smaller number beside larger ones is its own business, and none stays none.
    """
    found = reaches.reshape(-1).copy()
    whole = found.size - found.size % BESIDE
    for start in range(0, whole, _AT_ONCE):
        part = found[start : min(start + _AT_ONCE, whole)].reshape(-1, BESIDE)
        known = np.where(np.isfinite(part), part, 0.0)
        least = known.mean(axis=1, keepdims=True) / NEAR
        np.maximum(part, np.minimum(least, NEARER * part), out=part)
    return found.reshape(reaches.shape)
