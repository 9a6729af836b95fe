"""Blocks of a loop that go piece by piece, and whether the pieces of two blocks overlap.

A block is some iterations of a body, its pieces, which take one slot of a ring together. Either all
is done when a block ends, or the pieces of all blocks follow each other as those of one loop do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ir.errors import UsageError
from ir.kernel.body import TENSOR, Body
from ir.kernel.modulo import STRAIGHT, order_named
from ir.kernel.synchronise import Scheduled, synchronised
from ir.kernel.verify import Machine, OrderError, meaning


@dataclass(frozen=True, slots=True)
class Moment:
    """An operation of a piece, and what it waits for first: until at most `running` are not done.

    `freed`: how many blocks ago that one was whose slots the wait tells to be free.
    """

    piece: int
    operation: int
    running: int | None = None
    freed: int | None = None


@dataclass(frozen=True)
class Strip:
    """A block of `count` pieces. `through`: what runs at its end runs into the next block.

    Every block begins with the first places of values that have several.

    >>> body = Body.parse("a: threads() -> x\\nb: tensor(x, s) -> s takes r\\nplaces x 2")
    >>> [(m.piece, m.running, m.freed) for m in Strip(body, 2, True).moments if m.operation == 0]
    [(0, 1, None), (1, 1, 1)]
    """

    body: Body
    count: int
    through: bool = False

    def __post_init__(self) -> None:
        for value, places in self.body.places:
            if self.through and self.count % places:
                raise UsageError(f"strip: {self.count} pieces in {places} places of {value}")

    def __str__(self) -> str:
        return strip_orders(self.body)[-1 if self.through else 0]

    def words(self) -> str:
        """What the order does, for people."""
        return strip_words(self.body, str(self))

    @cached_property
    def pieces(self) -> Scheduled:
        """Pieces one after the other."""
        return synchronised(order_named(self.body, STRAIGHT))

    @cached_property
    def moments(self) -> tuple[Moment, ...]:
        """A block in order, as every one but the first is."""
        if not self._hastens:
            return self._waiting
        return (replace(self._waiting[0], running=None, freed=None), *self._waiting[1:])

    @property
    def end(self) -> tuple[int | None, int | None]:
        """What a block waits for when it ends, and how many blocks ago that was whose slots are
        free then."""
        if not self.through:
            return 0, 0
        first = self._waiting[0]
        if not self._hastens:
            return None, None
        return first.running, None if first.freed is None else first.freed - 1

    @property
    def _hastens(self) -> bool:
        """Whether a block does what the next would wait for first: threads have nothing to do
        between, and slots are free sooner."""
        return self.through and all(one.unit == TENSOR for one in self.body.operations)

    @cached_property
    def _waiting(self) -> tuple[Moment, ...]:
        return tuple(self._moments())

    def _moments(self) -> Iterator[Moment]:
        begun = False
        for piece in range(self.count):
            for step in self.pieces.steps:
                wait = step.wait if self.through or begun else None
                if wait is None:
                    yield Moment(piece, step.operation)
                else:
                    done = ((place, piece - age) for place, age in wait.done)
                    freed = [-(at // self.count) for place, at in done if self._ends(place, at)]
                    yield Moment(piece, step.operation, wait.running, max(freed, default=None))
                begun |= self.body.operations[step.operation].unit == TENSOR

    @property
    def pending(self) -> int:
        """Blocks whose slots are not free when the loop ends and all is done."""
        freed = [moment.freed for moment in self.moments] + [self.end[1]]
        return max((back for back in freed if back is not None), default=0)

    def _ends(self, place: int, piece: int) -> bool:
        """Whether an operation is the last to be done that reads the slots of a piece's block."""
        made = self.body.operations
        takers = [
            number for number in self.pieces.order.places
            if made[number].takes and made[number].unit == TENSOR
        ]  # fmt: skip
        if piece < 0 and not self.through:
            return False
        return place == takers[-1] and piece % self.count == self.count - 1


def running_on(body: Body) -> tuple[str, ...]:
    """Operations that still run when an iteration ends."""
    left = synchronised(order_named(body, STRAIGHT)).left
    return tuple(dict.fromkeys(body.operations[place].name for place, _ in left))


def strip_orders(body: Body) -> tuple[str, ...]:
    """The names of the orders of a body's blocks, the straight one first."""
    through = ",".join(f"{name}:1" for name in running_on(body))
    return (STRAIGHT, through) if through else (STRAIGHT,)


def strip_words(body: Body, name: str) -> str:
    """What an order does, for people."""
    if name == STRAIGHT:
        return "every block is finished before the next begins"
    late = running_on(body)
    early = [one.name for one in body.operations if one.name not in late]
    if not early:
        return f"{' and '.join(late)} of a block while the next is waited for"
    return f"{' and '.join(late)} of a block beside {' and '.join(early)} of the next"


def verify_strip(strip: Strip, blocks: int = 4) -> None:
    """Raises OrderError where blocks do not mean their pieces, or a slot is freed in use."""
    machine = Machine()
    for block in range(blocks):
        for moment in strip.moments:
            if moment.running is not None:
                machine.wait(moment.running)
            if moment.freed is not None and block >= moment.freed:
                _free(strip, machine, block - moment.freed)
            machine.do(strip.body, moment.operation, block * strip.count + moment.piece)
        running, freed = strip.end
        if running is not None:
            machine.wait(running)
        if freed is not None and block >= freed:
            _free(strip, machine, block - freed)
    machine.wait(0)
    for block in range(blocks - strip.pending, blocks):
        _free(strip, machine, block)
    if machine.taken:
        raise OrderError(f"slots of {min(machine.taken)} are never free")
    if machine.values != meaning(strip.body, blocks * strip.count):
        raise OrderError(f"{blocks} blocks of {strip.count} pieces mean something else")


def _free(strip: Strip, machine: Machine, block: int) -> None:
    """The slots of a block: all its pieces have to be begun and done."""
    for piece in range(strip.count):
        for one in strip.body.operations:
            if one.unit == TENSOR:
                machine.free(f"{one.name} of {block * strip.count + piece}")
