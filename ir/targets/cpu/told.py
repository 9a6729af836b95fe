"""Bounds of loops that tensors tell: what a condition reads, over the points of present regions.

A number may be read at places of which the region of each axis has one point, or at the blocks of
so many points that a region lies in (`table[rows >> 6]`): then the most of a few.
"""

from __future__ import annotations

from functools import reduce
from itertools import product
from typing import TYPE_CHECKING

from ir.ops.load import Index as Place
from ir.ops.load import Load
from ir.rewrite.domain import MOST_READ, Condition, block_of
from ir.targets.cpu.nest import Index, Type

if TYPE_CHECKING:
    from ir.targets.cpu.lower import Lowering

_READ = 4  # bytes of one


def most_read(low: Lowering, condition: Condition) -> Index | None:
    """The most that what a condition reads adds to it; None where few numbers do not tell."""
    total: Index = 0
    for node, coefficient in condition.reads:
        values = [low.b.mul(_at(low, node, one), coefficient) for one in _places(low, node)]
        if not values:
            return None
        total = low.b.add(total, reduce(low.b.maximum, values))
    return total


def _at(low: Lowering, node: int, place: tuple[Index, ...]) -> Index:
    """The number that a load finds at an index for each dimension."""
    op = low.program.nodes[node].op
    assert isinstance(op, Load)
    at: Index = 0
    for index, extent in zip(place, low.program.scope.tensors[op.tensor].shape, strict=True):
        at = low.b.add(low.b.mul(at, extent), index)
    pointer = low.b.offset(low.pointers[op.tensor], low.b.mul(at, _READ))
    return low.b.convert(low.b.load(Type("i32"), pointer), "i64")


def _places(low: Lowering, node: int) -> list[tuple[Index, ...]]:
    """Where a load reads in the present regions; nothing where that is not told, or too many."""
    op = low.program.nodes[node].op
    if not isinstance(op, Load) or op.fill is not None:
        return []
    found = list(product(*(_along(low, node, one) for one in op.index)))
    return found if len(found) <= MOST_READ else []


def _along(low: Lowering, node: int, index: Place) -> list[Index]:
    """The indices of one dimension."""
    if any(low.regions[axis].size > 1 for axis, _ in index.terms):
        return []
    start: Index = index.constant
    for axis, coefficient in index.terms:
        start = low.b.add(start, low.b.mul(low.regions[axis].low, coefficient))
    if index.gather is None:
        return [start]
    blocks = _blocks(low, low.program.nodes[node].args[index.gather])
    return [low.b.add(start, block) for block in blocks]


def _blocks(low: Lowering, position: int) -> list[Index]:
    """Of a coordinate that is shifted to the right, what it may be in its region."""
    found = block_of(low.program, position)
    if found is None:
        return []
    axis, points = found
    region = low.regions[axis]
    first = low.b.index("idiv", region.low, points)
    last = low.b.index("idiv", low.b.sub(region.high, 1), points)
    count = 1 if region.size == 1 else (region.size - 2) // points + 2
    return [
        low.b.minimum(low.b.add(first, number), last) for number in range(min(count, MOST_READ + 1))
    ]
