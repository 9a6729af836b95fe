"""Which share of a main loop's points a block goes over, where masks end it or let it begin late.

Bounds that are made of coordinates have their mean over these; of what is read the values that an
input says it has tell how it is spread: lengths evenly, distances of neighbouring offsets as the
gaps between random points (David and Nagaraja, Order Statistics, 2003). Of several bounds that
threads of a warp have, the farthest counts.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from ir.ops.load import Load
from ir.program import Program
from ir.rewrite.domain import Condition, ending
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.text.bounds import narrowing

Array = NDArray[np.float64]
_SAMPLE = 64  # points that stand for all


def alive(
    program: Program, axis: str, tiles: dict[str, Array], own: dict[str, Array], rows: int
) -> Array:
    """The share of an axis' points that are gone over, of so many schedules."""
    share, extent = np.ones(rows), program.axes[axis]
    for condition in narrowing(program, axis):
        slope = dict(condition.terms).get(axis, 0)
        lengths = _lengths(program, condition, axis)
        if lengths is None or not slope:
            continue
        along = {a for node, _ in condition.reads for a in program.nodes[node].axes}
        several = prod((np.minimum(tiles[a], program.axes[a]) for a in along), start=np.ones(rows))
        if (several > 1).any() and (slope > 0 or not ending(program, axis)):
            lengths = np.where(several[:, None] > 1, float(extent), lengths[None, :])
        else:
            lengths = np.broadcast_to(lengths, (rows, _SAMPLE))
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
    ranks = np.arange(_SAMPLE + 1)[None, :] / _SAMPLE
    parts = np.diff(ranks ** several[:, None], axis=1)
    return np.asarray((lengths * parts).sum(axis=1))


def _lengths(program: Program, condition: Condition, axis: str) -> Array | None:
    """How many points a bound leaves, as an even sample of its other terms has it; None where
    what is read may be anything."""
    extent, slope = program.axes[axis], dict(condition.terms).get(axis, 0)
    rest = np.full(_SAMPLE, float(condition.constant))
    even = (np.arange(_SAMPLE) + 0.5) / _SAMPLE
    others = [(name, c) for name, c in condition.terms if name != axis]
    for number, (name, c) in enumerate(others):
        turned = np.random.default_rng(number).permutation(even) if number else even
        rest = rest + c * turned * (program.axes[name] - 1)
    if condition.reads:
        read = _of_reads(program, condition.reads, even)
        if read is None:
            return None
        rest = rest + (read if not others else np.random.default_rng(97).permutation(read))
    if slope > 0:
        return np.clip(extent + rest / slope, 0.0, extent)  # from where the bound is 0 on
    return np.clip(rest / -slope + 1.0, 0.0, extent) if slope else None


def _of_reads(
    program: Program, reads: tuple[tuple[int, int], ...], even: Array
) -> Array | None:  # fmt: skip
    """An even sample of what is read, times its coefficients."""
    found = []
    for node, c in reads:
        op = program.nodes[node].op
        assert isinstance(op, Load)
        spec = program.scope.tensors[op.tensor]
        if spec.values is None:
            return None
        found.append((spec, op, c))
    (spec, _, c), *more = found
    values = spec.values
    assert values is not None
    if not more and values.kind == "lengths":
        least, most = values.number("least"), values.number("most")
        return np.asarray(c * (least + even * (most - least)))
    neighbours = len(more) == 1 and more[0][0] is spec and more[0][2] == -c
    if neighbours and values.kind == "offsets" and abs(c) == 1:
        mean = values.number("total") / max(1, spec.shape[-1] - 1)
        return np.asarray(-mean * np.log1p(-even))
    return None
