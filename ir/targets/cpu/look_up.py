"""Loads at indices that tiles hold: a sum of offsets, gathered, and the fill value outside.

Knows how an evaluator finds values and places; no loops, no schedules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ir.dtypes import NARROW
from ir.ops.load import Index, Load
from ir.ops.map import Constant
from ir.program import Program
from ir.targets.cpu.access import Access, Site
from ir.targets.cpu.nest import Builder, Type, Value


class Values(Protocol):
    """What a look-up asks of an evaluator."""

    b: Builder
    program: Program
    lane: str
    lanes: int
    inner: str
    masks: Mapping[int, int]

    def value(self, node: int, i: int, j: int) -> Value:
        """A node's value in row i, vector j."""
        ...

    def varies(self, node: int) -> bool:
        """Whether it differs between lanes."""
        ...

    def unsigned(self, node: int) -> bool:
        """Whether its whole numbers have no sign."""
        ...

    def place(self, i: int, j: int) -> Site:
        """The site of row i, vector j."""
        ...

    def iota(self, axis: str, i: int, j: int) -> Value:
        """The coordinate along an axis, as i32."""
        ...

    def constant(self, op: Constant) -> Value:
        """A constant's value."""
        ...

    def truth(self, value: Value) -> Value:
        """Bytes as truth values."""
        ...


class LookUp:
    """One load `node` whose `op` has dimensions indexed by tiles."""

    def __init__(self, values: Values, op: Load, node: int) -> None:
        self.values, self.op, self.node = values, op, node
        self.b, self.lanes = values.b, values.lanes
        self.args = values.program.nodes[node].args
        self.dtype = values.program.nodes[node].dtype
        self.inside: list[Value] = []

    def value(self, access: Access, i: int, j: int) -> Value:
        """The elements of row i, vector j."""
        pointer, at = access.pointer(self.b, self.values.place(i, j), self.values.inner)
        total: Value | None = None
        if self.values.varies(self.node):
            total = self._lane_offsets(access.stride(self.values.lane))
        for dim, index in enumerate(self.op.index):
            if index.gather is None:
                continue
            place = self._place(dim, index, self.args[index.gather], i, j)
            offset = self.b.op("imul", place, self.b.constant(access.steps[dim], place.type))
            total = offset if total is None else self._joined("iadd", total, offset)
        assert total is not None
        value = self._read(access, self.b.offset(pointer, at), total, self.values.masks.get(j, 0))
        return self._filled(value) if self.inside else value

    def _read(self, access: Access, base: Value, total: Value, active: int) -> Value:
        scalar = "i8" if self.dtype == "bool" else access.scalar
        if total.type.lanes:
            value = self.b.gather_at(Type(scalar, self.lanes), base, self._active(total, active))
        else:
            value = self.b.load(Type(scalar), self.b.offset(base, total))
        return self.values.truth(value) if self.dtype == "bool" else value

    def _active(self, offsets: Value, active: int) -> Value:
        """Offsets of idle lanes become 0, which is inside the tensor as its first lane is."""
        if not active:
            return offsets
        lanes = self.b.lanes(offsets.type)
        inside = self.b.test("lt", lanes, self.b.constant(active, lanes.type))
        return self.b.select(inside, offsets, self.b.constant(0, offsets.type))

    def _lane_offsets(self, stride: int) -> Value:
        type = Type("i64", self.lanes)
        return self.b.op("imul", self.b.lanes(type), self.b.constant(stride, type))

    def _place(self, dim: int, index: Index, chosen: int, i: int, j: int) -> Value:
        """The tile's part of an index; with a fill value, no further than the tensor reaches."""
        found = self.values.value(chosen, i, j)
        found = self.b.convert(found, "i64", self.values.unsigned(chosen))
        if self.op.fill is None:
            return found
        extent = self.values.program.scope.tensors[self.op.tensor].shape[dim]
        known = self._affine(index, i, j)
        whole = found if known is None else self._joined("iadd", found, known)
        first, last = (self.b.constant(end, whole.type) for end in (0, extent - 1))
        kept = self.b.op("imin", self.b.op("imax", whole, first), last)
        self.inside.append(self.b.test("eq", whole, kept))
        return kept if known is None else self._joined("isub", kept, known)

    def _affine(self, index: Index, i: int, j: int) -> Value | None:
        """What axes and a constant add to an index; None for nothing."""
        if not index.terms and not index.constant:
            return None
        total = self.b.constant(index.constant, Type("i64"))
        for axis, coefficient in index.terms:
            place = self.b.convert(self.values.iota(axis, i, j), "i64")
            step = self.b.op("imul", place, self.b.constant(coefficient, place.type))
            total = self._joined("iadd", total, step)
        return total

    def _joined(self, op: str, left: Value, right: Value) -> Value:
        """Two values, of which one may be the same in all lanes."""
        if left.type.lanes or right.type.lanes:
            left, right = self._wide(left), self._wide(right)
        return self.b.op(op, left, right)

    def _wide(self, value: Value) -> Value:
        return value if value.type.lanes else self.b.splat(value, self.lanes)

    def _filled(self, value: Value) -> Value:
        """What was loaded where all indices were inside, else the fill value."""
        value = self.b.convert(value, "f32") if self.dtype in NARROW else value
        fill = self.values.constant(Constant(self.op.fill or 0, self.dtype))
        for inside in self.inside:
            if value.type.lanes:
                value = self.b.select(self._wide(inside), value, self._wide(fill))
            else:
                value = self.b.select(inside, value, fill)
        return value
