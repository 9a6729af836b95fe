"""Wide numbers as sums of narrow ones: which of them are multiplied. Knows no program.

A number of 24 bits is the sum of three of 8 bits; of the nine products of two such sums those count
that may change the last bit (Henry, Tang and Heinecke, 2019).
"""

from __future__ import annotations

PART = "bf16"  # the type of parts
WIDEST = 3  # parts of a number of f32
LAST = 2  # places, each of 8 bits, down to which products count
PRODUCTS = 6  # of parts that a product of two numbers of f32 is
LONGEST = 16384  # points of a sum: of longer ones tensor cores lose more than a sum in f32 does
STEPWISE = 4096  # of a sum to which parts, or products, are added in turn, step by step


def pairs_of(counts: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Which parts of two factors, which have so many, are multiplied, the least first: tensor cores
    drop bits of what they add to a large sum."""
    left, right = counts
    found = [(i, j) for i in range(left) for j in range(right) if i + j <= LAST]
    return tuple(sorted(found, key=lambda pair: -sum(pair)))
