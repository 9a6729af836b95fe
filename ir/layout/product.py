"""Products of layouts: one repeated as another says (CuTe's products)."""

from __future__ import annotations

from ir.layout.algebra import Tiler, as_layout, complement, composition, paired
from ir.layout.divide import parts_of, tiled, zipped
from ir.layout.layout import Layout, concat


def logical_product(layout: Layout, tiler: Tiler) -> Layout:
    """(layout, its repetitions): the second mode walks copies of the first in tiler's order.

    With a tuple mode by mode, further modes as they are. Raises LayoutError: rank for too long a
    tuple, and what complement and composition raise.
    """
    if isinstance(tiler, tuple):
        parts = [logical_product(*pair) for pair in paired(layout, tiler)]
        return concat(*parts, *layout.modes[len(tiler) :])
    copies = as_layout(tiler)
    free = complement(layout, layout.size * copies.cosize)
    return concat(layout, composition(free, copies))


def zipped_product(layout: Layout, tiler: Tiler) -> Layout:
    """(blocks, repetitions): what logical_product gives, gathered; further modes join the
    repetitions."""
    return zipped(*parts_of(layout, tiler, logical_product))


def tiled_product(layout: Layout, tiler: Tiler) -> Layout:
    """(blocks, repetitions, repetitions, ...): zipped_product with these side by side."""
    return tiled(*parts_of(layout, tiler, logical_product))


def flat_product(layout: Layout, tiler: Tiler) -> Layout:
    """(block, block, ..., repetitions, repetitions, ...): everything side by side."""
    blocks, copies = parts_of(layout, tiler, logical_product)
    return concat(*blocks, *copies)
