"""Reads at indices that are computed of coordinates, and leave their tensor or tile: refused.

Of an index that is data nobody knows where it is; one that is made of coordinates is the same in
every run. Where it lies outside at some point, and there is no fill, a kernel would read what
is not there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.errors import ProgramError
from ir.of_coordinates import values_of
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.program import Node, Program

_MOST = 1 << 20  # points of an index that are looked at; of more, those at the ends of each axis
_ENDS = 8  # on either side


def refuse_outside(program: Program) -> Program:
    """The program; raises ProgramError where a computed index is outside of what it reads."""
    for node in program.nodes:
        op = node.op
        if not isinstance(op, Load | Read) or op.fill is not None:
            continue
        for name, index, extent in _dimensions(program, node):
            if index.gather is not None:
                _refuse(program, name, index, node.args[index.gather], extent)
    return program


def _dimensions(program: Program, node: Node) -> Iterator[tuple[str, Index, int]]:
    """The dimensions of what a node reads, as messages have them: their indices and extents."""
    if isinstance(node.op, Load):
        shape = program.scope.tensors[node.op.tensor].shape
        for dim, (index, extent) in enumerate(zip(node.op.index, shape, strict=True)):
            yield f"load {node.op.tensor}: index of dimension {dim}", index, extent
    elif isinstance(node.op, Read):
        axes = program.nodes[node.args[0]].axes
        for axis, index in zip(axes, node.op.index, strict=True):
            yield f"read at {axis}: the index", index, program.axes[axis]


def _refuse(program: Program, name: str, index: Index, gather: int, extent: int) -> None:
    own = program.nodes[gather].axes
    if not {axis for axis, _ in index.terms}.isdisjoint(own):
        return
    values = _values(program, gather)
    if values is None or not values.size:
        return
    low, high = index.bounds(program.scope)
    least, most = int(values.min()) + low, int(values.max()) + high
    if least < 0 or most >= extent:
        raise ProgramError(
            f"{program.name}: {name} spans {least}..{most}, the extent is {extent}; "
            "give fill= to read outside, or keep it inside"
        )


def _values(program: Program, position: int) -> NDArray[Any] | None:
    """What a whole number is at all points, or at the ends of long axes; None where data says."""
    nodes = program.nodes
    behind = program.behind([position], lambda _: False)
    if not all(isinstance(nodes[p].op, Iota | Constant | Map | Cast) for p in behind):
        return None
    axes = nodes[position].axes
    whole = math.prod(program.axes[axis] for axis in axes) <= _MOST
    coordinates = {axis: _points(program.axes[axis], whole) for axis in axes}
    if math.prod(len(coordinates[axis]) for axis in axes) > _MOST:
        return None
    return np.asarray(values_of(program, behind, coordinates)[position].array)


def _points(extent: int, whole: bool) -> NDArray[np.int64]:
    if whole or extent <= 2 * _ENDS:
        return np.arange(extent)
    return np.concatenate([np.arange(_ENDS), np.arange(extent - _ENDS, extent)])
