"""The Hilbert curve over a grid of tiles: neighbours in time are neighbours in both directions."""

from __future__ import annotations

from functools import lru_cache

LONGEST = 128  # tiles along a side of a grid that is walked so


@lru_cache(maxsize=64)
def hilbert_order(rows: int, columns: int) -> tuple[tuple[int, int], ...]:
    """All (row, column) of a grid in the order of the curve over the smallest square around it.

    The curve is built level by level from four turned copies (D. Hilbert, Math. Ann. 38, 1891).
    """
    side, curve = 1, [(0, 0)]
    while side < max(rows, columns):
        first = [(y, x) for x, y in curve]
        last = [(2 * side - 1 - y, side - 1 - x) for x, y in curve]
        second = [(x, y + side) for x, y in curve]
        third = [(x + side, y + side) for x, y in curve]
        curve = [*first, *second, *third, *last]
        side *= 2
    return tuple((x, y) for x, y in curve if x < rows and y < columns)
