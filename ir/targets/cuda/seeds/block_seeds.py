"""Seeds of block kernels whose sums are over axes that cannot be walked together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ir.columns import Mask
from ir.schedule import Schedule, Value
from ir.space import Space
from ir.targets.cuda.layouts.frame import WARP

if TYPE_CHECKING:
    from ir.targets.cuda.space.block import BlockKernel

OWN = (16, 8, 32)  # points of a whole axis in one thread


def legal_seeds(space: Space, found: Sequence[Mapping[str, Value]]) -> Mask:
    """Which of these values are legal."""
    return space.legal(np.array([space.encode(Schedule.of("cuda", own)) for own in found]))


def whole_seeds(kernel: BlockKernel) -> list[dict[str, Value]]:
    """Some of the summed axes are whole, the others walked point by point; many are illegal."""
    found = []
    for looped, own in product(reversed(kernel.shape.loops), OWN):
        values: dict[str, Value] = {}
        for axis, extent in kernel.program.axes.items():
            whole = axis in kernel.shape.reduced and axis not in looped
            tile = kernel.reach(axis, extent) if whole else 1
            values[kernel.name(f"tile.{axis}")] = tile
            values[kernel.name(f"own.{axis}")] = min(own, tile)
        _widen(kernel, values)
        for lane in kernel.shape.lanes:
            vector = min(kernel.widest, int(values[kernel.name(f"own.{lane}")]))
            found.append(values | {kernel.name("lanes"): lane, kernel.name("vector"): vector})
    return found


def _widen(kernel: BlockKernel, values: dict[str, Value]) -> None:
    """Larger tiles of what is not summed, until a block has a few warps."""
    for axis, extent in reversed(kernel.program.axes.items()):
        name, tile = kernel.name(f"tile.{axis}"), 1
        if axis in kernel.shape.reduced:
            continue
        while kernel.threads(values) < 4 * WARP and tile < kernel.reach(axis, extent):
            tile *= 2
            values[name] = tile
