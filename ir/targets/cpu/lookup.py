"""Loads at indices that tiles hold: offsets are added up, once where all lanes have the same.

Then lanes read their neighbours from there; else every lane has an offset of its own.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from ir.ops.load import Load
from ir.program import Program
from ir.targets.cpu.access import Access, Site
from ir.targets.cpu.nest import Builder, Type, Value

Point = tuple[int, int]  # row and vector of a register tile


class Evaluator(Protocol):
    """What is asked of the evaluator of a register tile."""

    @property
    def b(self) -> Builder: ...
    @property
    def program(self) -> Program: ...
    @property
    def lane(self) -> str: ...
    @property
    def lanes(self) -> int: ...
    @property
    def inner(self) -> str: ...

    memo: Any

    def value(self, node: int, i: int, j: int) -> Value: ...
    def varies(self, node: int) -> bool: ...
    def place(self, i: int, j: int) -> Site: ...
    def coordinate(self, axis: str, i: int, j: int) -> Value: ...
    def first(self, axis: str, i: int, j: int) -> Value: ...
    def active(self, j: int) -> int: ...
    def neighbours(
        self, access: Access, pointer: Value, at: int, j: int, stride: int | None = None
    ) -> Value: ...


def look_up(e: Evaluator, node: int, op: Load, access: Access, at: Point) -> Value:
    """The value of a load at one point; `fill` wherever an index is outside."""
    if op.fill is not None:
        return _filled(e, node, op, access, at)
    pointer, constant = access.pointer(e.b, e.place(*at), e.inner)
    alike = _alike(e, node, op)
    total = None if alike or not e.varies(node) else _lane_offsets(e, access.stride(e.lane))
    for dim, step in enumerate(steps_of(e, op, access)):
        if op.index[dim].gather is None:
            continue
        offset = _scaled(e, _chosen(e, node, op, dim, at), step)
        total = offset if total is None else _joined(e, "iadd", total, offset)
    assert total is not None
    if alike:
        value = e.neighbours(access, e.b.offset(pointer, total), constant, at[1])
        return tested(e, access, value)
    return _read(e, access, e.b.offset(pointer, constant), total, at)


def _filled(e: Evaluator, node: int, op: Load, access: Access, at: Point) -> Value:
    """Reads element 0 for what is outside, and takes the fill instead."""
    b, total, inside = e.b, None, None
    shape = e.program.scope.tensors[op.tensor].shape
    alike = _alike(e, node, op) and not any(
        e.lane in dict(op.index[dim].terms) and _ever_outside(e, op, dim, shape[dim])
        for dim in range(len(shape))
    )
    for dim, step in enumerate(steps_of(e, op, access)):
        place = _place(e, node, op, dim, at, first=alike)
        here = _within(e, op, dim, place, shape[dim])
        if here is not None:
            inside = here if inside is None else _joined(e, "and", inside, here)
        part = _scaled(e, place, step)
        total = part if total is None else _joined(e, "iadd", total, part)
    assert total is not None
    assert inside is not None
    if total.type.lanes and not inside.type.lanes:
        inside = b.splat(inside, e.lanes)
    total = b.select(inside, total, b.constant(0, total.type))
    if alike:
        value = e.neighbours(access, b.offset(access.base, total), 0, at[1])
        value = tested(e, access, value)
        inside = b.splat(inside, e.lanes) if value.type.lanes else inside
    else:
        value = _read(e, access, access.base, total, at)
    fill = b.constant(op.fill or 0, value.type)
    return b.select(inside, value, fill)


def _alike(e: Evaluator, node: int, op: Load) -> bool:
    """Whether no index that a tile holds differs from lane to lane."""
    gathers = (index.gather for index in op.index if index.gather is not None)
    return not any(e.varies(e.program.nodes[node].args[gather]) for gather in gathers)


def _place(e: Evaluator, node: int, op: Load, dim: int, at: Point, first: bool) -> Value:
    """The whole index of a dimension: of every lane, or of the `first` one."""
    coordinate = e.first if first else e.coordinate
    index = op.index[dim]
    total = e.b.constant(index.constant, Type("i64"))
    for axis, coefficient in index.terms:
        along = e.b.convert(coordinate(axis, *at), "i64")
        along = along if coefficient == 1 else _scaled(e, along, coefficient)
        total = _joined(e, "iadd", total, along)
    if index.gather is not None:
        total = _joined(e, "iadd", total, _chosen(e, node, op, dim, at))
    return total


def _within(e: Evaluator, op: Load, dim: int, place: Value, extent: int) -> Value | None:
    """Whether an index is inside its dimension; None where it always is."""
    if not _ever_outside(e, op, dim, extent):
        return None
    least = e.b.test("le", e.b.constant(0, place.type), place)
    return e.b.op("and", least, e.b.test("lt", place, e.b.constant(extent, place.type)))


def _ever_outside(e: Evaluator, op: Load, dim: int, extent: int) -> bool:
    low, high = op.index[dim].bounds(e.program.scope)
    return op.index[dim].gather is not None or low < 0 or high >= extent


def _chosen(e: Evaluator, node: int, op: Load, dim: int, at: Point) -> Value:
    """The index that a tile holds for a dimension."""
    gather = op.index[dim].gather
    assert gather is not None
    tile = e.program.nodes[node].args[gather]
    unsigned = e.program.nodes[tile].dtype == "u8"
    return e.b.convert(e.value(tile, *at), "i64", unsigned)


def steps_of(e: Evaluator, op: Load, access: Access) -> list[int]:
    """Bytes from one element to the next, by dimension."""
    shape = e.program.scope.tensors[op.tensor].shape
    return [Type(_stored(access)).bytes * math.prod(shape[d + 1 :]) for d in range(len(shape))]


def _stored(access: Access) -> str:
    return "i8" if access.scalar == "i1" else access.scalar


def _scaled(e: Evaluator, value: Value, factor: int) -> Value:
    return e.b.op("imul", value, e.b.constant(factor, value.type))


def _joined(e: Evaluator, op: str, left: Value, right: Value) -> Value:
    """An operation of scalars, or of vectors if either is one."""
    if bool(left.type.lanes) != bool(right.type.lanes):
        left, right = (v if v.type.lanes else e.b.splat(v, e.lanes) for v in (left, right))
    return e.b.op(op, left, right)


def _lane_offsets(e: Evaluator, stride: int) -> Value:
    type = Type("i64", e.lanes)
    return e.b.op("imul", e.b.lanes(type), e.b.constant(stride, type))


def _read(e: Evaluator, access: Access, base: Value, offsets: Value, at: Point) -> Value:
    scalar = _stored(access)
    if offsets.type.lanes:
        offsets = _of_active(e, offsets, e.active(at[1]))
        value = e.b.gather_at(Type(scalar, e.lanes), base, offsets)
    else:
        value = e.b.load(Type(scalar), e.b.offset(base, offsets))
    return tested(e, access, value)


def tested(e: Evaluator, access: Access, value: Value) -> Value:
    """What was read, of truths whether it is one."""
    if access.scalar == "i1":
        return e.b.test("ne", value, e.b.constant(0, value.type))
    return value


def spread_of(
    e: Evaluator, access: Access, pointer: Value, at: int, j: int, stride: int
) -> Value:  # fmt: skip
    """What the lanes of vector j read that are so many bytes apart."""
    value = e.neighbours(access, pointer, at, j, stride)
    return value if value.type.lanes else e.b.splat(value, e.lanes)


def _of_active(e: Evaluator, offsets: Value, active: int) -> Value:
    """Offsets of idle lanes become 0, which is inside the tensor as its first lane is."""
    if not active:
        return offsets
    lanes = e.b.lanes(offsets.type)
    inside = e.b.test("lt", lanes, e.b.constant(active, lanes.type))
    return e.b.select(inside, offsets, e.b.constant(0, offsets.type))
