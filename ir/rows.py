"""Axes along which all of a program is the same at every coordinate, and parts of it along them.

Of such an axis any stretch can be computed by itself: everything reads its own coordinate alone,
nothing sums along it, and tensors that have it have it outermost, so that a stretch of each lies
together. Knows no target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from math import prod

from ir.ops.base import Op
from ir.ops.load import Index, Load
from ir.ops.read import Read
from ir.ops.recur import Before
from ir.ops.scatter import Scatter
from ir.ops.store import Store
from ir.program import Program


def row_axes(program: Program) -> tuple[str, ...]:
    """Axes whose stretches can be computed one by one."""
    if any(spec.packs for spec in program.tensors):
        return ()
    return tuple(axis for axis, extent in program.extents if extent > 1 and _is_row(program, axis))


def tensors_along(program: Program, axis: str) -> tuple[str, ...]:
    """The tensors that have a row axis."""
    found = dict[str, None]()
    for node in program.nodes:
        op = node.op
        read = isinstance(op, Load) and any(axis in dict(index.terms) for index in op.index)
        if isinstance(op, Load | Store) and (read or isinstance(op, Store)):
            found[op.tensor] = None
    return tuple(found)


def stretch(program: Program, axis: str, count: int) -> Program:
    """The program of `count` coordinates of a row axis."""
    along = tensors_along(program, axis)
    tensors = tuple(
        replace(spec, shape=_shortened(spec.shape, count)) if spec.name in along else spec
        for spec in program.tensors
    )
    extents = tuple((name, count if name == axis else n) for name, n in program.extents)
    return replace(program, extents=extents, tensors=tensors)


def _shortened(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    place = next(place for place, extent in enumerate(shape) if extent != 1)
    return (*shape[:place], count, *shape[place + 1 :])


def _is_row(program: Program, axis: str) -> bool:
    extent, shapes = program.axes[axis], {spec.name: spec.shape for spec in program.tensors}
    along: dict[str, bool] = {}
    for node in program.nodes:
        op = node.op
        if isinstance(op, Scatter):
            return False
        if isinstance(op, Load):
            has = any(axis in dict(index.terms) for index in op.index)
            if along.setdefault(op.tensor, has) != has:
                return False
            if has and not _outermost(op.index, axis, shapes[op.tensor], extent):
                return False
        elif isinstance(op, Store):
            place = op.axes.index(axis) if axis in op.axes else -1
            shape = shapes[op.tensor]
            if place < 0 or prod(shape[:place]) != 1 or shape[place] != extent:
                return False
        elif isinstance(op, Read):
            axes = program.nodes[node.args[0]].axes
            pairs = zip(axes, op.index, strict=True)
            if any(not _own(index, axis, name == axis) for name, index in pairs):
                return False
        elif op.axis == axis if isinstance(op, Before) else _names(op, axis):
            return False
    return True


def _outermost(index: Sequence[Index], axis: str, shape: tuple[int, ...], extent: int) -> bool:
    """Whether a tensor is read at the axis's own coordinate in its outermost dimension."""
    places = [place for place, one in enumerate(index) if axis in dict(one.terms)]
    place = places[0]
    alone = len(places) == 1 and _own(index[place], axis, True)
    return alone and shape[place] == extent and prod(shape[:place]) == 1


def _own(index: Index, axis: str, here: bool) -> bool:
    """Whether an index is the coordinate of the axis, where it is that dimension's, else not at
    all."""
    return index == Index(((axis, 1),)) if here else axis not in dict(index.terms)


def _names(op: Op, axis: str) -> bool:
    """Whether an op says something of the axis: that it sums along it, or counts it."""
    values = [getattr(op, field.name) for field in fields(op)]  # type: ignore[arg-type]
    return any(axis == value or (isinstance(value, tuple) and axis in value) for value in values)
