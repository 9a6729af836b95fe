"""What threads wait for that all do the same: their own copies, each other, the kernel before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ir.kernel.body import COPY, THREADS
from ir.kernel.tile_kernel import (
    ADVANCE,
    BARRIER,
    BEFORE,
    BLOCKS,
    CLUSTER,
    COMMIT_COPIES,
    COPIED,
    EXCHANGED,
    NESTED,
    OVERLAID,
    TILE,
    Alloc,
    At,
    Do,
    Loop,
    Scope,
    Statement,
    Sync,
    TileKernel,
    walk,
)


@dataclass(frozen=True, slots=True)
class Waits:
    """Everything that synchronises a kernel of one role whose threads copy for themselves.

    The copies of one step are one group. `early`: the kernel starts beside the one before it in the
    stream, and asks for nothing but prefetches before that has ended. `exchanges`: warps write for
    each other, which must have been read before the next tile. Rings of a kernel take turns in one
    place, where each divides the bytes among threads in its own way: threads meet between them.
    `cluster`: blocks read what others of their cluster have, and none ends before all have read.

    >>> kernel = TileKernel.parse('''
    ... kernel total
    ... shared X_ahead: f32[k 64] of 0
    ... ring ahead.0: 2 of X_ahead
    ... op ask.0: copy() -> X_ahead takes ahead.0
    ...   copy 0 by cp.async
    ... op take.0: threads(X_ahead) -> X takes ahead.0
    ...   map 0
    ... for block from 0 to 2
    ...   if left >= 1
    ...     do ask.0
    ... for block from 0 to blocks
    ...   do take.0
    ...   if left >= 3
    ...     do ask.0 of block+2''')
    >>> for line in str(Waits(early=True)(kernel)).splitlines()[7:]:
    ...     print(line)
    sync kernel-before
    for block from 0 to 2
      if left >= 1
        do ask.0
      sync commit-copies
    for block from 0 to blocks
      sync copied 1
      do take.0
      if left >= 3
        do ask.0 of block+2
      sync commit-copies
      sync advance ahead.0
    sync copied
    """

    early: bool = False
    exchanges: bool = False
    cluster: bool = False

    def __call__(self, kernel: TileKernel) -> TileKernel:
        body = list(self._body(kernel, kernel.body))
        if self.early:
            asked = sum(1 for _ in _prefetches(kernel, body))
            body.insert(asked, Sync(BEFORE))
        if self.cluster:
            body.append(Sync(CLUSTER))
        return kernel.with_body(tuple(body))

    def _body(self, kernel: TileKernel, body: Iterable[Statement]) -> Iterator[Statement]:
        for one in body:
            if isinstance(one, Loop):
                yield from self._loop(kernel, one)
            elif isinstance(one, Alloc):
                if self._is_overlaid(kernel, one):
                    yield Sync(BARRIER, OVERLAID)
                yield one
            elif isinstance(one, NESTED):
                yield replace(one, body=tuple(self._body(kernel, one.body)))
            else:
                yield one

    @staticmethod
    def _is_overlaid(kernel: TileKernel, one: Alloc) -> bool:
        """Whether another ring was where one begins."""
        rings = [ring.name for ring in kernel.rings]
        tiles = any(isinstance(loop, Loop) and loop.over == TILE for loop in walk(kernel.body))
        before = rings[1:] if not tiles or len(rings) < 2 else rings
        return bool({*one.names} & {*before})

    def _loop(self, kernel: TileKernel, loop: Loop) -> Iterator[Statement]:
        """A loop: what a step asks for is a group, what it takes is waited for; behind the last
        step, nothing is under way."""
        main, taken = loop.end == At(BLOCKS), False
        body: list[Statement] = []
        for one in loop.body:
            takes = _rings(kernel, one, THREADS)
            taken |= bool(takes)
            body += (Sync(COPIED, number=kernel.ring(name).slots - 1) for name in takes)
            body += self._body(kernel, (one,))
            for name in _rings(kernel, one, COPY):
                body += (Sync(COMMIT_COPIES), *(Sync(ADVANCE, name),) * main)
        if main and loop.over == TILE and self.exchanges:
            body.append(Sync(BARRIER, EXCHANGED))
        yield replace(loop, body=tuple(body))
        if taken:
            yield Sync(COPIED)


def _rings(kernel: TileKernel, one: Statement, unit: str) -> tuple[str, ...]:
    """Rings of what a unit does in one statement of a loop that is itself no loop."""
    done: Iterable[Statement] = () if isinstance(one, (Loop, Scope)) else walk((one,))
    found = (kernel.operation(do.operation) for do in done if isinstance(do, Do))
    return tuple(name for each in found if each.unit == unit for name in each.takes)


def _prefetches(kernel: TileKernel, body: Iterable[Statement]) -> Iterator[Statement]:
    """The statements at the beginning that only ask for what nothing waits for."""
    for one in body:
        done = [kernel.operation(do.operation) for do in walk((one,)) if isinstance(do, Do)]
        if not done or any(found.unit != COPY or found.writes for found in done):
            return
        yield one
