"""Loads of later steps of a loop, under way while the present step is computed.

Every step takes what was asked for as many steps ago, and asks for what will be needed as many
steps later; the first steps are asked for before the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ir.kernel.body import COPIES, COPY, MAP, THREADS, Operation, Part
from ir.kernel.tile_kernel import (
    BLOCK,
    BLOCKS,
    LEFT,
    Alloc,
    At,
    Do,
    If,
    Loop,
    Ring,
    Scope,
    Statement,
    TileKernel,
    When,
    rewritten,
)

CP_ASYNC, WORDS = "cp.async", "words"


@dataclass(frozen=True, slots=True)
class LoadAhead:
    """Copies that a loop makes `depth` steps before their step: `by` cp.async to rings in shared
    memory, or, one step, as words to registers.

    Only copies for which no instruction is said. Steps behind the end are not asked for. A loop in
    a tile gets a scope of its own with what comes ahead of it.

    >>> kernel = TileKernel.parse('''
    ... kernel total
    ... registers X: f32[k 64] of 0
    ... op load.0: copy() -> X
    ...   copy 0
    ... op reduce.1: threads(X, sum_1) -> sum_1
    ...   reduce 1
    ... for block from 0 to blocks
    ...   do load.0
    ...   do reduce.1''')
    >>> print(LoadAhead(3, CP_ASYNC)(kernel))
    kernel total
    registers X: f32[k 64] of 0
    shared X_ahead: f32[k 64] of 0
    ring ahead.0: 3 of X_ahead
    op ask.0: copy() -> X_ahead takes ahead.0
      copy 0 by cp.async
    op take.0: threads(X_ahead) -> X takes ahead.0
      map 0
    op reduce.1: threads(X, sum_1) -> sum_1
      reduce 1
    scope load.0
      registers ahead.0
      for block from 0 to 3
        if left >= 1
          do ask.0
      for block from 0 to blocks
        do take.0
        if left >= 4
          do ask.0 of block+3
        do reduce.1
    """

    depth: int
    by: str

    def __call__(self, kernel: TileKernel) -> TileKernel:
        loads = {one.name: _Load(self, kernel, one) for one in kernel.operations if _loads(one)}

        def change(one: Statement) -> tuple[Statement, ...]:
            if not isinstance(one, Loop) or one.end != At(BLOCKS):
                return (one,)
            done = [inside.operation for inside in one.body if isinstance(inside, Do)]
            found = [loads[name] for name in done if name in loads]
            return tuple(_ahead(one, found)) if found else (one,)

        made = loads.values()
        tiles = {tile.name: tile for load in made for tile in load.tiles}
        rings = tuple(load.ring for load in made if self.by == CP_ASYNC)
        return replace(
            kernel,
            tiles=(*kernel.tiles, *tiles.values()),
            rings=(*kernel.rings, *rings),
            operations=tuple(_operations(kernel, loads)),
            body=rewritten(kernel.body, change),
        )


class _Load:
    """What becomes of one operation: asking, taking, and where values are between the two."""

    def __init__(self, how: LoadAhead, kernel: TileKernel, one: Operation) -> None:
        self.name, self.depth = one.name, how.depth
        end = one.name.removeprefix("load")
        there = {tile.name: tile for tile in kernel.tiles}
        residence = "shared" if how.by == CP_ASYNC else "registers"
        self.tiles = tuple(
            replace(there[name], name=f"{name}_ahead", residence=residence) for name in one.writes
        )
        names = tuple(tile.name for tile in self.tiles)
        self.ring = Ring(f"ahead{end}", names, how.depth)
        takes = (self.ring.name,) if how.by == CP_ASYNC else ()
        self.registers = Alloc(takes or names)
        asked = tuple(Part(COPIES, part.node, how.by) for part in one.parts)
        taken = tuple(Part(MAP, part.node) for part in one.parts)
        self.ask = Operation(f"ask{end}", COPY, one.reads, names, takes, asked)
        self.take = Operation(f"take{end}", THREADS, names, one.writes, takes, taken)

    def asked(self, over: str, later: int) -> If:
        """Asking for the step so many later, if there is one."""
        return If(When(LEFT, later + 1), (Do(self.ask.name, At(over, later)),))

    def filled(self, over: str) -> Loop:
        """Asking for the first steps."""
        return Loop(over, (self.asked(over, 0),), end=At("", self.depth))


def _loads(one: Operation) -> bool:
    return one.unit == COPY and bool(one.parts) and not any(part.by for part in one.parts)


def _operations(kernel: TileKernel, loads: dict[str, _Load]) -> Iterator[Operation]:
    for one in kernel.operations:
        if one.name in loads:
            yield from (loads[one.name].ask, loads[one.name].take)
        else:
            yield one


def _ahead(loop: Loop, loads: list[_Load]) -> Iterator[Statement]:
    """A loop that takes and asks, and what comes before it."""
    here = {load.name: load for load in loads}
    before: list[Statement] = []
    for load in loads:
        before += (load.registers, load.filled(loop.over))
    body: list[Statement] = []
    for one in loop.body:
        if isinstance(one, Do) and one.operation in here:
            load = here[one.operation]
            body += (replace(one, operation=load.take.name), load.asked(loop.over, load.depth))
        else:
            body.append(one)
    found = (*before, replace(loop, body=tuple(body)))
    if loop.over == BLOCK:
        yield Scope(loads[0].name, found)
    else:
        yield from found
