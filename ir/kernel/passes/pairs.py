"""Products that begin anew in every block, some rows at a time, and what is made of each.

What a block's products are folded with is loaded a step before. In pairs, the second of two runs
while what came of the first is folded; where a block has one part of rows, two blocks are a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ir.kernel.tile_kernel import (
    BLOCK,
    BLOCKS,
    NEVER,
    At,
    Do,
    Loop,
    Scope,
    Statement,
    TileKernel,
    When,
    rewritten,
)

PAIR = "products"


@dataclass(frozen=True, slots=True)
class Unit:
    """Products of some rows: of how many blocks later, which rows of the block, whether its
    last."""

    ahead: int
    rows: int
    last: bool


def groups_of(rows: int, blocks: int, together: int) -> list[list[Unit]]:
    """The products of so many blocks of so many parts of rows, those that run together.

    >>> [len(group) for group in groups_of(2, 1, 2)], [len(group) for group in groups_of(1, 2, 2)]
    ([2], [2])
    """
    units = [Unit(b, r, r == rows - 1) for b in range(blocks) for r in range(rows)]
    return [units[first : first + together] for first in range(0, len(units), together)]


@dataclass(frozen=True, slots=True)
class Pairs:
    """A loop that does `load`, `multiply` and `fold`: products of one part of `rows`, `together` at
    a time.

    >>> kernel = TileKernel("k", body=(Loop(BLOCK, (Do("load"), Do("multiply"), Do("fold"))),))
    >>> for line in str(Pairs(1, 2, "load", "multiply", "fold")(kernel)).splitlines()[1:12]:
    ...     print(line)
    do load of 0 later never
    do load of 1 later never
    for block from 0 to blocks by 2 order pairs
      do load of block+2
      do load of block+3
      scope products
        do multiply piece 0
        do multiply of block+1 piece 0
        do fold piece 0
        do fold of block+1 piece 0
    for block from block to blocks order pairs
    """

    rows: int
    together: int
    load: str
    multiply: str
    fold: str

    def __call__(self, kernel: TileKernel) -> TileKernel:
        def change(one: Statement) -> tuple[Statement, ...]:
            names = [inside.operation for inside in getattr(one, "body", ()) if _is_do(inside)]
            if not isinstance(one, Loop) or self.multiply not in names:
                return (one,)
            return tuple(self._loops())

        return kernel.with_body(rewritten(kernel.body, change))

    def _loops(self) -> Iterator[Statement]:
        blocks = 1 if self.rows % self.together == 0 else 2
        for number in range(blocks):
            yield Do(self.load, At("", number), later=When(NEVER))
        order = "pairs" if self.together > 1 else "straight"
        yield Loop(BLOCK, tuple(self._step(blocks)), step=blocks, order=order)
        if blocks > 1:
            yield Loop(BLOCK, tuple(self._step(1)), first=At(BLOCK), end=At(BLOCKS), order=order)

    def _step(self, blocks: int) -> Iterator[Statement]:
        for number in range(blocks):
            yield Do(self.load, At(BLOCK, blocks + number))
        for group in groups_of(self.rows, blocks, self.together):
            body: list[Statement] = [
                Do(self.multiply, At(BLOCK, unit.ahead), unit.rows) for unit in group
            ]
            body += [Do(self.fold, At(BLOCK, unit.ahead), unit.rows) for unit in group]
            yield Scope(PAIR, tuple(body))


def _is_do(one: Statement) -> bool:
    return isinstance(one, Do)
