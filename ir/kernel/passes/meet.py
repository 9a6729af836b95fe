"""Barriers and waits for copies: inserted where threads share values that they make themselves.

Those of the scheduled loop are those of `ir.kernel.barriers`, the fewest there are. Elsewhere all
threads meet where an operation touches what another one did since they last met.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ir.kernel.barriers import barriers
from ir.kernel.body import COPY, Operation, conflicts
from ir.kernel.modulo import Order
from ir.kernel.tile_kernel import (
    BARRIER,
    BEFORE,
    BLOCK,
    COMMIT_COPIES,
    COPIED,
    Do,
    If,
    KernelError,
    Loop,
    Scope,
    Statement,
    Sync,
    TileKernel,
    walk,
)


@dataclass(frozen=True, slots=True)
class Meet:
    """Everything that synchronises a kernel whose threads all do the same.

    `order` is that of its loop. `early`: the kernel starts beside the one before it in the stream.
    Raises KernelError where operations that begin a block ahead share what they make.

    >>> from ir.kernel.body import Body
    >>> body = Body.parse(
    ...     "copy: copy() -> x\\nmultiply: threads(x, s) -> s\\nplaces x 3\\nshared x"
    ... )
    >>> kernel = TileKernel.parse('''
    ... kernel k
    ... op copy: copy() -> x
    ... op multiply: threads(x, s) -> s
    ... for block from 0 to 2
    ...   do copy
    ... for block from 0 to blocks order multiply:2
    ...   if left >= 2
    ...     do copy of block+2
    ...   do multiply''')
    >>> for line in str(Meet(Order(body, (0, 2), (0, 1)))(kernel)).splitlines()[3:]:
    ...     print(line)
    for block from 0 to 2
      do copy
      sync commit-copies
    for block from 0 to blocks order multiply:2
      sync copied 1
      sync barrier
      if left >= 2
        do copy of block+2
      sync commit-copies
      do multiply
    sync copied
    """

    order: Order
    early: bool = False

    def __call__(self, kernel: TileKernel) -> TileKernel:
        return kernel.with_body(tuple(_Meeting(self.order, kernel).all(self.early)))


@dataclass
class _Meeting:
    """What threads did since they last met, statement by statement."""

    order: Order
    kernel: TileKernel
    recent: dict[str, Operation] = field(default_factory=dict)
    awaited: int = 0  # blocks whose copies are there, of those that were begun ahead

    def all(self, early: bool) -> Iterator[Statement]:
        if early:
            yield Sync(BEFORE)
        for one in self.kernel.body:
            if isinstance(one, Loop) and one.over == BLOCK:
                yield from self._steady(one) if one.order else self._fill(one)
            else:
                yield from self._once(one)

    # -- what meets

    @property
    def _shared(self) -> frozenset[str]:
        tiles = self.kernel.tiles
        return self.order.body.shared | {one.name for one in tiles if one.residence == "shared"}

    def _done(self, statements: Iterable[Statement]) -> list[Do]:
        return [one for one in walk(tuple(statements)) if isinstance(one, Do)]

    def _operations(self, done: Iterable[Do]) -> dict[str, Operation]:
        return {one.operation: self.kernel.operation(one.operation) for one in done}

    def _clash(self, before: Iterable[Operation], after: Iterable[Operation]) -> bool:
        """Whether threads see in `after` what others did in `before`."""
        later, shared = tuple(after), self._shared
        return any(
            one.name != other.name and conflicts(one, other) & shared
            for one in before for other in later
        )  # fmt: skip

    def _copies_of(self, done: Iterable[Do]) -> int:
        """How many blocks' copies must be there for what reads them."""
        copies = [one for one in self.order.body.operations if one.unit == COPY]
        return max(
            (
                one.at.number + 1 for one in done
                if self._clash(copies, (self.kernel.operation(one.operation),))
            ),
            default=0,
        )  # fmt: skip

    def _met(self, done: list[Do], copies: int = 0) -> Iterator[Statement]:
        """What comes ahead of operations that need the copies of so many blocks."""
        operations = self._operations(done).values()
        due = min(copies, self.order.depth)
        if due > self.awaited:
            yield Sync(COPIED, number=self.order.depth - due)
        if due > self.awaited or self._clash(self.recent.values(), operations):
            yield Sync(BARRIER)
            self.recent.clear()
        self.awaited = max(self.awaited, due)

    # -- ahead of the loop, and behind it

    def _once(self, one: Statement) -> Iterator[Statement]:
        """A step ahead begins when the copies of its blocks are there."""
        done = self._done((one,))
        if isinstance(one, Scope):
            yield from self._met(done, max((do.at.number + 1 for do in done), default=0))
            yield replace(one, body=tuple(self._inside(one.body)))
            return
        yield from self._met(done)
        yield one
        self.recent |= self._operations(done)

    def _inside(self, body: tuple[Statement, ...]) -> Iterator[Statement]:
        """Statements of a step, what they read from copies being there."""
        for one in body:
            operations = self._operations(self._done((one,)))
            if self._clash(self.recent.values(), operations.values()):
                yield Sync(BARRIER)
                self.recent.clear()
            yield one
            self.recent |= operations

    def _fill(self, loop: Loop) -> Iterator[Statement]:
        """Blocks that are begun ahead: each is one group of copies, even if it has none."""
        done = self._done(loop.body)
        operations = self._operations(done)
        if self._clash(operations.values(), operations.values()):
            raise KernelError(f"kernel {self.kernel.name}: what begins a block is shared")
        yield from self._met(done)
        first = loop.body[0] if loop.body else None
        copies = isinstance(first, If) or any(
            self.kernel.operation(one.operation).unit == COPY for one in self._done(loop.body[:1])
        )
        place = int(copies)
        group = Sync(COMMIT_COPIES)
        yield replace(loop, body=(*loop.body[:place], group, *loop.body[place:]))
        yield from (group,) * (self.order.depth - loop.end.number)
        self.recent |= operations

    # -- the loop

    def _steady(self, loop: Loop) -> Iterator[Statement]:
        order = self.order
        found = {one.place: one.running for one in barriers(order)}
        first = min(found, default=len(loop.body))
        head = self._done(loop.body[:first])
        yield from self._met(head, self._copies_of(head))
        yield replace(loop, body=tuple(self._step(loop.body, found)))
        yield Sync(COPIED)
        self.awaited = order.depth
        self.recent |= self._operations(self._done(loop.body[max(found, default=0) :]))

    def _step(
        self, body: tuple[Statement, ...], found: dict[int, int | None]
    ) -> Iterator[Statement]:
        for number, one in enumerate(body):
            if number in found:
                running = found[number]
                yield from () if running is None else (Sync(COPIED, number=running),)
                yield Sync(BARRIER)
            yield one
            operations = self._operations(self._done((one,))).values()
            yield from (Sync(COMMIT_COPIES) for other in operations if other.unit == COPY)
