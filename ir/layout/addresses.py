"""Addresses: what a layout gives for indices that are not known yet, as an expression of them.

The expression of a thread's n-th element is the layout of its tile at (thread, n). Built on
`expressions`, so it has no more shifts and masks than the layout asks for.

>>> from ir.layout.expressions import variable
>>> from ir.layout.swizzle import parse
>>> rows = parse("S(3,4,3) o 0 o (8,128):(128,1)")  # bytes of lines of 128, swizzled
>>> str(address(rows, variable("row", 8), variable("byte", 128, 16)))
'row * 128 + ((byte >> 4) ^ row) * 16'
"""

from __future__ import annotations

from ir.layout.errors import LayoutError
from ir.layout.expressions import (
    ZERO,
    Expression,
    constant,
    exclusive,
    quotient,
    remainder,
    scaled,
    total,
)
from ir.layout.layout import Layout
from ir.layout.swizzle import AnyLayout, Composed, Swizzle


def address(layout: AnyLayout, *places: Expression) -> Expression:
    """The layout's offset at one index, or at a coordinate with a part for each top mode.

    Indices beyond a size go on along the last mode, as they do in `Layout`. Raises LayoutError:
    coordinate for as many parts as there are no modes, and for what may be negative.
    """
    if isinstance(layout, Composed):
        inner = total(constant(layout.offset), address(layout.layout, *places))
        return swizzled(layout.swizzle, inner)
    if len(places) == 1:
        return _along(layout, places[0])
    if len(places) != layout.rank:
        raise LayoutError("coordinate", f"{len(places)} parts for {layout.rank} modes of {layout}")
    return total(*(_along(mode, own) for mode, own in zip(layout.modes, places, strict=True)))


def _along(layout: Layout, index: Expression) -> Expression:
    """One mode: every digit of the index times its stride."""
    *inner, last = layout.flat()
    found = ZERO
    for extent, stride in inner:
        found = total(found, scaled(remainder(index, extent), stride))
        index = quotient(index, extent)
    return total(found, scaled(index, last[1]))


def swizzled(swizzle: Swizzle, offset: Expression) -> Expression:
    """The offset with the bits of the swizzle's source field in its target field."""
    if swizzle.plain:
        return offset
    start = swizzle.base + max(0, swizzle.shift)
    field = remainder(quotient(offset, 1 << start), 1 << swizzle.bits)
    return exclusive(offset, scaled(field, 1 << start - swizzle.shift))


def coordinate(index: Expression, shape: tuple[int, ...]) -> tuple[Expression, ...]:
    """The colexicographic coordinate of an index; the last part is not bounded."""
    found = []
    for extent in shape[:-1]:
        found.append(remainder(index, extent))
        index = quotient(index, extent)
    return (*found, index)
