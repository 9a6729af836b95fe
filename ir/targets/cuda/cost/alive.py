"""Which share of a main loop's points a block goes over, where masks end it or let it begin late.

Of several bounds that threads of a warp have, the farthest counts.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from ir.program import Program
from ir.rewrite.domain import ending
from ir.rewrite.lengths import SAMPLE, lengths_of
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.text.bounds import narrowing

Array = NDArray[np.float64]


def alive(
    program: Program, axis: str, tiles: dict[str, Array], own: dict[str, Array], rows: int
) -> Array:
    """The share of an axis' points that are gone over, of so many schedules."""
    share, extent = np.ones(rows), program.axes[axis]
    for condition in narrowing(program, axis):
        slope = dict(condition.terms).get(axis, 0)
        lengths = lengths_of(program, condition, axis)
        if lengths is None or not slope:
            continue
        along = {a for node, _ in condition.reads for a in program.nodes[node].axes}
        several = prod((np.minimum(tiles[a], program.axes[a]) for a in along), start=np.ones(rows))
        if (several > 1).any() and (slope > 0 or not ending(program, axis)):
            lengths = np.where(several[:, None] > 1, float(extent), lengths[None, :])
        else:
            lengths = np.broadcast_to(lengths, (rows, SAMPLE))
        others = [np.minimum(tiles[a], program.axes[a]) / own[a] for a in along]
        warp = np.minimum(prod(others, start=np.ones(rows)), WARP / 4)
        each = prod((own[a] for a in along), start=np.ones(rows)) * warp
        reach = sum(
            abs(c) * (np.minimum(tiles[name], program.axes[name]) - 1)
            for name, c in condition.terms
            if name != axis
        )
        most = _most_of(np.sort(lengths, axis=1), each) + reach / abs(slope) + tiles[axis] / 2
        share = share + np.clip(most / extent, 0.0, 1.0) - 1.0
    return np.asarray(np.clip(share, 1.0 / extent, 1.0))


def _most_of(lengths: Array, several: Array) -> Array:
    """What the largest of so many of a sorted sample is in the mean."""
    ranks = np.arange(SAMPLE + 1)[None, :] / SAMPLE
    parts = np.diff(ranks ** several[:, None], axis=1)
    return np.asarray((lengths * parts).sum(axis=1))
