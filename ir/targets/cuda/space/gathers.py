"""How far apart lie what neighbours read where indices are computed of coordinates.

`x[i, floor(0.5 * j)]` goes along a row as a plain load does, two points to an element; what a hash
of coordinates, or an index that is data, names lies anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ir.of_coordinates import values_of
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.program import Program

SECTOR = 32.0  # bytes that memory gives at least
_SEEN = 33  # neighbours that are looked at, in the middle of an axis


@lru_cache(maxsize=1024)
def apart(program: Program, position: int, size: int) -> Mapping[str, float] | None:
    """Bytes from what one point of an axis reads to what the next one does, in the mean, of no step
    more than a sector, for a load's axes; None where an index is data. `size`: of an element."""
    node = program.nodes[position]
    op = node.op
    assert isinstance(op, Load)
    behind = program.behind(node.args, lambda _: False)
    if not all(isinstance(program.nodes[p].op, Iota | Constant | Map | Cast) for p in behind):
        return None
    found = {}
    for axis in node.axes:
        places = _places(program, position, op, axis, behind)
        steps = np.abs(np.diff(places)) * size
        found[axis] = float(np.minimum(steps, SECTOR).mean()) if len(steps) else 0.0
    return found


def _places(
    program: Program, position: int, op: Load, axis: str, behind: list[int]
) -> NDArray[np.int64]:
    """Where the points of an axis, the others in their middle, find their elements."""
    node, coordinates = program.nodes[position], {}
    for name, extent in program.axes.items():
        seen = min(_SEEN if name == axis else 1, extent)
        coordinates[name] = np.arange(seen, dtype=np.int64) + (extent - seen) // 2
    values = values_of(program, behind, coordinates)
    total = np.zeros(len(coordinates[axis]), dtype=np.int64)
    for index, extent in zip(op.index, program.scope.tensors[op.tensor].shape, strict=True):
        place = np.full(len(total), index.constant, dtype=np.int64)
        for name, factor in index.terms:
            place = place + factor * coordinates[name]
        if index.gather is not None:
            tile = values[node.args[index.gather]].array
            place = place + np.rint(tile).astype(np.int64).ravel()
        total = total * extent + np.clip(place, 0, extent - 1)
    return total
