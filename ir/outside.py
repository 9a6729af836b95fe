"""Reads at indices that are computed of coordinates, and leave their tensor: refused.

Of an index that is data nobody knows where it is; one that is made of coordinates is the same in
every run. Where it lies outside at some point, and the tensor has no fill, a kernel would read what
is not there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.errors import ProgramError
from ir.of_coordinates import values_of
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.program import Program

_MOST = 1 << 20  # points of an index that are looked at; of more, those at the ends of each axis
_ENDS = 8  # on either side


def refuse_outside(program: Program) -> Program:
    """The program; raises ProgramError where a computed index is outside of a tensor."""
    for node in program.nodes:
        if not isinstance(node.op, Load) or not node.args or node.op.fill is not None:
            continue
        shape = program.scope.tensors[node.op.tensor].shape
        for dim, (index, extent) in enumerate(zip(node.op.index, shape, strict=True)):
            if index.gather is None:
                continue
            own = program.nodes[node.args[index.gather]].axes
            if not {axis for axis, _ in index.terms}.isdisjoint(own):
                continue
            values = _values(program, node.args[index.gather])
            if values is None or not values.size:
                continue
            low, high = index.bounds(program.scope)
            least, most = int(values.min()) + low, int(values.max()) + high
            if least < 0 or most >= extent:
                raise ProgramError(
                    f"{program.name}: load {node.op.tensor}: index of dimension {dim} spans "
                    f"{least}..{most}, the extent is {extent}; give fill= to read outside, or "
                    "keep it inside"
                )
    return program


def _values(program: Program, position: int) -> NDArray[Any] | None:
    """What a whole number is at all points, or at the ends of long axes; None where data says."""
    nodes = program.nodes
    behind = program.behind([position], lambda _: False)
    if not all(isinstance(nodes[p].op, Iota | Constant | Map | Cast) for p in behind):
        return None
    axes = nodes[position].axes
    whole = math.prod(program.axes[axis] for axis in axes) <= _MOST
    coordinates = {axis: _points(program.axes[axis], whole) for axis in program.axes}
    if math.prod(len(coordinates[axis]) for axis in axes) > _MOST:
        return None
    return np.asarray(values_of(program, behind, coordinates)[position].array)


def _points(extent: int, whole: bool) -> NDArray[np.int64]:
    if whole or extent <= 2 * _ENDS:
        return np.arange(extent)
    return np.concatenate([np.arange(_ENDS), np.arange(extent - _ENDS, extent)])
