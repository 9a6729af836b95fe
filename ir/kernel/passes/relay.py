"""Rings that threads fill: what is left there is told between the roles that share them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ir.kernel.body import TENSOR, Operation
from ir.kernel.tile_kernel import (
    ADVANCE,
    DONE,
    FREE,
    FULL,
    MEET,
    NESTED,
    PUBLISH,
    RELEASE,
    Do,
    Role,
    Statement,
    Sync,
    TileKernel,
)


@dataclass(frozen=True, slots=True)
class Relay:
    """Whoever fills a slot waits until it is free and publishes it; whoever reads it waits until it
    is full ahead of the first operation that does so, and frees it behind the last.

    >>> kernel = TileKernel.parse('''
    ... kernel chain
    ... shared w: bf16[i 64] of 1
    ... ring r: 1 of w
    ... op weigh: threads(x) -> w takes r
    ...   convert 1
    ... op multiply: tensor(w, s) -> s takes r
    ...   mma 2
    ... role weighers
    ...   for block from 0 to blocks
    ...     do weigh
    ... role consumers
    ...   for block from 0 to blocks
    ...     do multiply
    ...     sync await
    ...     sync done multiply''')
    >>> for line in str(Relay()(kernel)).splitlines()[7:]:
    ...     print(line)
    role weighers
      for block from 0 to blocks
        sync free r
        do weigh
        sync publish r
        sync advance r
    role consumers
      for block from 0 to blocks
        sync full r
        do multiply
        sync await
        sync done multiply
        sync release r
        sync advance r
    """

    def __call__(self, kernel: TileKernel) -> TileKernel:
        found: list[Statement] = []
        for one in kernel.body:
            if isinstance(one, Role):
                one = replace(one, body=tuple(self._relayed(kernel, one.body)))
            found.append(one)
        return kernel.with_body(tuple(found))

    def _relayed(self, kernel: TileKernel, body: tuple[Statement, ...]) -> Iterator[Statement]:
        taken = {
            number: _read(kernel, one) for number, one in enumerate(body) if isinstance(one, Do)
        }  # fmt: skip
        ends = dict(_ends(kernel, body, taken))
        waited: set[str] = set()
        for number, one in enumerate(body):
            if isinstance(one, NESTED):
                yield replace(one, body=tuple(self._relayed(kernel, one.body)))
                continue
            filled = _filled(kernel, one) if isinstance(one, Do) else ()
            yield from (Sync(FREE, ring) for ring in filled)
            for ring in taken.get(number, ()):
                if ring not in waited:
                    yield Sync(FULL, ring)
                    waited.add(ring)
            yield one
            for ring in filled:
                yield from (Sync(PUBLISH, ring), Sync(ADVANCE, ring))
            for ring, read_by_threads in ends.get(number, ()):
                yield from (Sync(MEET),) * read_by_threads
                yield from (Sync(RELEASE, ring), Sync(ADVANCE, ring))


def _filled(kernel: TileKernel, one: Do) -> tuple[str, ...]:
    """The relayed rings of which an operation fills a slot."""
    operation = kernel.operation(one.operation)
    return tuple(
        ring.name for ring in kernel.rings
        if ring.name in kernel.relayed and {*ring.tiles} & {*operation.writes}
    )  # fmt: skip


def _read(kernel: TileKernel, one: Do) -> tuple[str, ...]:
    """Those of which it reads one."""
    operation = kernel.operation(one.operation)
    return tuple(
        ring for ring in operation.takes
        if ring in kernel.relayed and ring not in _filled(kernel, one)
    )  # fmt: skip


def _ends(
    kernel: TileKernel, body: tuple[Statement, ...], taken: dict[int, tuple[str, ...]]
) -> Iterator[tuple[int, list[tuple[str, bool]]]]:
    """Behind which statements slots are free: the last reader's, or what says that it is done."""
    found: dict[int, list[tuple[str, bool]]] = {}
    for ring in kernel.relayed:
        readers = [number for number, rings in taken.items() if ring in rings]
        if not readers:
            continue
        last = readers[-1]
        one = body[last]
        assert isinstance(one, Do)
        operation: Operation = kernel.operation(one.operation)
        tensor = operation.unit == TENSOR
        where = body.index(Sync(DONE, operation.name), last) if tensor else last
        found.setdefault(where, []).append((ring, not tensor))
    yield from found.items()
