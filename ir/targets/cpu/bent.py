"""Loads at indices that are a sum of axes inside of a tensor, and bend back at its ends.

Most vectors lie inside: they are read where the sum says, as loads at plain indices are; the others
find each lane's index by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ir.bends import Bend, bends
from ir.ops.load import Load
from ir.rewrite.digits import Sum
from ir.targets.cpu.access import Access
from ir.targets.cpu.lookup import Evaluator, Point, spread_of, steps_of, tested
from ir.targets.cpu.nest import Type, Value


def bent_dimensions(e: Evaluator, node: int, op: Load) -> Mapping[int, Bend]:
    """The dimensions of a load whose indices bend, where these are all that tiles hold, and lanes
    differ in one of them; none otherwise."""
    found = bends(e.program).get(node, {}) if op.fill is None else {}
    moved = any(one.of.terms.get(e.lane) for one in found.values())
    return found if moved and len(found) == sum(i.gather is not None for i in op.index) else {}


def read_bent(
    e: Evaluator, op: Load, access: Access, at: Point, found: Mapping[int, Bend],
    otherwise: Callable[[], Value],
) -> Value:  # fmt: skip
    """The lanes of a vector: from where their sums are, or, if one of them leaves the tensor, what
    `otherwise` reads."""
    b, steps = e.b, steps_of(e, op, access)
    shape = e.program.scope.tensors[op.tensor].shape
    stride, inside, total = access.stride(e.lane), None, None
    for dim, one in found.items():
        along = one.of.terms.get(e.lane, 0)
        first = _first(e, one.of, at)
        here = _stays(e, first, along * ((e.active(at[1]) or e.lanes) - 1), shape[dim])
        inside = here if inside is None else b.op("and", inside, here)
        part = b.op("imul", first, b.constant(steps[dim], first.type))
        total = part if total is None else b.op("iadd", total, part)
        stride += along * steps[dim]
    assert inside is not None
    assert total is not None
    with b.branch(inside) as branch:
        pointer, constant = access.pointer(b, e.place(*at), e.inner)
        value = spread_of(e, access, b.offset(pointer, total), constant, at[1], stride)
        branch.then.yields = (tested(e, access, value),)
        b.otherwise(branch)
        saved, e.memo = e.memo, {}
        other = otherwise()
        branch.other.yields = (other if other.type.lanes else b.splat(other, e.lanes),)
        e.memo = saved
    return branch.results[0]


def _first(e: Evaluator, one: Sum, at: Point) -> Value:
    """A sum at the first lane."""
    total = e.b.constant(one.constant, Type("i64"))
    for axis, factor in one.terms.items():
        along = e.b.convert(e.first(axis, *at), "i64")
        along = e.b.op("imul", along, e.b.constant(factor, along.type)) if factor != 1 else along
        total = e.b.op("iadd", total, along)
    return total


def _stays(e: Evaluator, first: Value, reach: int, extent: int) -> Value:
    """Whether a dimension has all numbers from the first lane's to the last one's."""
    least, most = max(0, -reach), extent - max(0, reach)
    above = e.b.test("le", e.b.constant(least, first.type), first)
    return e.b.op("and", above, e.b.test("lt", first, e.b.constant(most, first.type)))
