"""Registers of what tensor cores write or read while others work: where they live.

A value that is written once before its loop has them from there on. Others have them in the
innermost body that is no loop over blocks and has all that touches them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ir.kernel.body import START
from ir.kernel.tile_kernel import (
    BLOCK,
    NESTED,
    Alloc,
    Do,
    Loop,
    Statement,
    TileKernel,
    walk,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Registers for the kernel's tiles that are in registers.

    >>> kernel = TileKernel.parse('''
    ... kernel k
    ... registers s: f32[i 64] of 3
    ... op a: tensor() -> s
    ...   mma 3
    ... for tile
    ...   if blocks >= 1
    ...     for block from 0 to blocks
    ...       do a''')
    >>> for line in str(Place()(kernel)).splitlines()[5:7]:
    ...     print(line)
      if blocks >= 1
        registers s
    """

    def __call__(self, kernel: TileKernel) -> TileKernel:
        started = {
            name for one in kernel.operations for name in one.writes
            if any(part.kind == START for part in one.parts)
        }  # fmt: skip
        names = tuple(
            tile.name for tile in kernel.tiles
            if tile.residence == "registers" and tile.name not in started
        )  # fmt: skip
        return kernel.with_body(tuple(self._placed(kernel, kernel.body, names)))

    def _placed(
        self, kernel: TileKernel, body: tuple[Statement, ...], names: tuple[str, ...]
    ) -> Iterator[Statement]:
        """The statements, with registers for what no single one of them has all uses of."""
        here: list[str] = []
        inside: dict[int, list[str]] = {place: [] for place in range(len(body))}
        for name in names:
            places = [n for n, one in enumerate(body) if _touches(kernel, one, name)]
            nested = len(places) == 1 and isinstance(body[places[0]], NESTED)
            one = body[places[0]] if nested else None
            loops = isinstance(one, Loop) and one.over == BLOCK
            if nested and not loops:
                inside[places[0]].append(name)
            elif places:
                here.append(name)
        if here:
            yield Alloc(tuple(here))
        for place, one in enumerate(body):
            if isinstance(one, NESTED) and inside[place]:
                one = replace(one, body=tuple(self._placed(kernel, one.body, tuple(inside[place]))))
            yield one


def _touches(kernel: TileKernel, one: Statement, name: str) -> bool:
    operations = (kernel.operation(do.operation) for do in walk((one,)) if isinstance(do, Do))
    return any(name in (*found.reads, *found.writes) for found in operations)
