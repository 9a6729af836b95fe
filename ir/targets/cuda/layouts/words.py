"""In which order a product's columns lie in the registers that another product sums over.

A thread packs the sums that it has to words, and these are what it holds of the other product's
operand. Where the two differ, points change places, and so do the lines that the first product
reads. Both come from the instructions' own layouts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.layout.algebra import coalesce, composition, from_modes, right_inverse
from ir.layout.instructions.rows import suffix
from ir.layout.layout import Layout
from ir.targets.cuda.layouts.lanes import REGISTER, operand
from ir.targets.cuda.layouts.placed import Step, ThreadValues
from ir.targets.cuda.prelude.families import WGMMA_KINDS

ALONG = 1  # the side of sums and operands that is summed over next
TWICE = 2  # instructions along it: points change places within what one of them sums over


@lru_cache(maxsize=16)
def word_order(dtype: str) -> tuple[tuple[int, int], ...]:
    """Digits (size, stride) of the points that columns are, column by column; empty where each is
    its own point. Refusal "registers" for a type of which a register does not hold several."""
    if dtype_of(dtype).bits >= REGISTER:
        raise Refusal("registers", f"operands from registers are of 8 or 16 bits, not {dtype}")
    depth = WGMMA_KINDS[dtype].k
    points = TWICE * depth
    name = f"wgmma.m64n{points}k{depth}.{suffix(dtype)}.rs"
    sums, read = operand(name, "c"), operand(name, "a")
    repeated = ThreadValues(read.threads, (*read.values, Step(ALONG, TWICE, depth)))
    columns, summed = (from_modes(_along(held)) for held in (sums, repeated))
    found = coalesce(composition(summed, right_inverse(columns)))
    return () if found == Layout(points, 1) else found.flat()


def _along(held: ThreadValues) -> Iterator[tuple[int, int]]:
    """What of a thread and its values moves along the side, fastest first."""
    for step in (*held.threads, *held.values):
        if step.axis == ALONG:
            yield step.size, step.stride
