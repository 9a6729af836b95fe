"""How many points of an axis a bound leaves, by what inputs say that they are.

Bounds that are made of coordinates are as these are; of what is read the values that an input says
it has tell how it is spread: lengths, and distances of neighbouring offsets, as they are drawn
(`ir.values`), evenly or with a skew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ir.ops.load import Load
from ir.program import Program
from ir.rewrite.domain import Condition

Array = NDArray[np.float64]
SAMPLE = 64  # points that stand for all


def lengths_of(program: Program, condition: Condition, axis: str) -> Array | None:
    """How many points a bound leaves, as an even sample of its other terms has it; None where
    what is read may be anything."""
    extent, slope = program.axes[axis], dict(condition.terms).get(axis, 0)
    rest = np.full(SAMPLE, float(condition.constant))
    even = (np.arange(SAMPLE) + 0.5) / SAMPLE
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
    if values.kind not in ("lengths", "offsets"):
        return None
    power = 1 + int(values.number("skew"))
    if not more and values.kind == "lengths":
        least, most = values.number("least"), values.number("most")
        return np.asarray(c * (least + even**power * (most - least)))
    neighbours = len(more) == 1 and more[0][0] is spec and more[0][2] == -c
    if neighbours and values.kind == "offsets" and abs(c) == 1:
        mean = values.number("total") / max(1, spec.shape[-1] - 1)
        return np.asarray(mean * (1 + power) * even**power)
    return None
