"""Which tiles a sum in parts begins with: those whose blocks are as many as the processors."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod
from typing import Any

from ir.schedule import Value

LEFT = 8  # seeds ahead of the small ones, of kernels without groups of consumers


def filling(kernel: Any, seeds: Sequence[dict[str, Value]], parts: int) -> list[dict[str, Value]]:
    """Of a kernel's seeds with one group of consumers the two whose tiles, in so many parts each,
    are nearest to one for each processor, fewer and more; others where there is no such choice."""
    alone = [values for values in seeds if values.get(kernel.name("consumers")) == 1]
    if not alone:
        return list(seeds[LEFT:][:1])
    shares: dict[float, dict[str, Value]] = {}
    for values in alone:
        shares.setdefault(_share(kernel, values, parts), values)
    fewer, more = (
        (share for share in shares if share <= 1),
        (share for share in shares if share > 1),
    )
    found = (max(fewer, default=None), min(more, default=None))
    return [shares[share] for share in found if share is not None]


def _share(kernel: Any, values: dict[str, Value], parts: int) -> float:
    """Blocks for each processor."""
    axes, roles = kernel.program.axes, kernel.roles
    tiles = prod(
        ceil(axes[axis] / int(values.get(kernel.name(f"tile.{axis}"), axes[axis])))
        for axis in (*roles.rows, *roles.columns)
    )
    batches = prod(axes[axis] for axis in roles.batch)
    return float(tiles * batches * parts / int(kernel.hardware["sms"]))
