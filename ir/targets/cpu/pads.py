"""Padded copies of tensors that are read outside their bounds (load with a fill value)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.program import Program


@dataclass(frozen=True, slots=True)
class Pad:
    """`tensor` with `before` elements of `fill` in front of each dimension, up to `shape`."""

    tensor: str
    fill: float
    before: tuple[int, ...]
    inner: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * dtype_of(self.dtype).bytes


def reads_padded(op: Load) -> bool:
    """Whether a load reads a padded copy; at indices that tiles hold each is looked at instead."""
    return op.fill is not None and all(index.gather is None for index in op.index)


def pads_of(program: Program) -> dict[tuple[str, float | None], Pad]:
    """One pad per (tensor, fill), wide enough for every load."""
    pads: dict[tuple[str, float | None], Pad] = {}
    for node in program.nodes:
        op = node.op
        if not isinstance(op, Load) or op.fill is None or not reads_padded(op):
            continue
        spec = program.scope.tensors[op.tensor]
        bounds = [index.bounds(program.scope) for index in op.index]
        before = tuple(max(0, -low) for low, _ in bounds)
        after = tuple(max(n, high + 1) for (_, high), n in zip(bounds, spec.shape, strict=True))
        known = pads.get((op.tensor, op.fill))
        if known is not None:
            before = tuple(map(max, before, known.before))
            ends = [s - b for s, b in zip(known.shape, known.before, strict=True)]
            after = tuple(map(max, after, ends))
        if all(b == 0 for b in before) and after == spec.shape:
            continue
        shape = tuple(b + a for b, a in zip(before, after, strict=True))
        pads[(op.tensor, op.fill)] = Pad(op.tensor, op.fill, before, spec.shape, shape, spec.dtype)
    return pads
