"""Slots that are filled in parts: products begin with what is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ir.kernel.tile_kernel import (
    COMMIT,
    FENCE,
    FULL,
    NESTED,
    Do,
    Role,
    Statement,
    Sync,
    TileKernel,
)


@dataclass(frozen=True, slots=True)
class Arrive:
    """Slots of `ring` are filled in so many `parts`: products of `operation` are issued in as many
    pieces, each behind the part that it reads; whatever else reads a slot waits for all of them.

    >>> kernel = TileKernel.parse('''
    ... kernel chain
    ... ring r: 2 of a
    ... op first: tensor(a) -> s takes r
    ...   mma 1
    ... op second: tensor(a, t) -> t takes r
    ...   mma 2
    ... role weighers
    ...   for block from 0 to blocks
    ...     sync full r
    ...     sync fence
    ...     do first
    ...     sync commit
    ... role consumers
    ...   for block from 0 to blocks
    ...     sync full r''')
    >>> for line in str(Arrive("r", 2, "first")(kernel)).splitlines()[6:]:
    ...     print(line)
    role weighers
      for block from 0 to blocks
        sync full r
        sync fence
        do first piece 0
        sync commit
        sync full r 1
        sync fence
        do first piece 1
        sync commit
    role consumers
      for block from 0 to blocks
        sync full r
        sync full r 1
    """

    ring: str
    parts: int
    operation: str

    def __call__(self, kernel: TileKernel) -> TileKernel:
        found: list[Statement] = []
        for one in kernel.body:
            if isinstance(one, Role):
                one = replace(one, body=tuple(self._arriving(one.body)))
            found.append(one)
        return kernel.with_body(tuple(found))

    def _arriving(self, body: tuple[Statement, ...]) -> Iterator[Statement]:
        pieces = any(isinstance(one, Do) and one.operation == self.operation for one in body)
        for number, one in enumerate(body):
            if isinstance(one, NESTED):
                yield replace(one, body=tuple(self._arriving(one.body)))
            elif one == Sync(FULL, self.ring):
                yield from self._waits(1 if pieces else self.parts)
            elif isinstance(one, Do) and one.operation == self.operation:
                yield replace(one, piece=0)
            elif one == Sync(COMMIT) and self._issues(body[number - 1]):
                yield one
                yield from self._others(body[number - 1])
            else:
                yield one

    def _waits(self, count: int) -> Iterator[Statement]:
        return (Sync(FULL, self.ring, part) for part in range(count))

    def _issues(self, one: Statement) -> bool:
        return isinstance(one, Do) and one.operation == self.operation

    def _others(self, one: Statement) -> Iterator[Statement]:
        """The pieces behind the first."""
        assert isinstance(one, Do)
        for part in range(1, self.parts):
            yield Sync(FULL, self.ring, part)
            yield from (Sync(FENCE), replace(one, piece=part), Sync(COMMIT))
