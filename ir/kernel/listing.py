"""A kernel's loop as people read it: its body, its order, the order with its waits, the text.

Blocks are numbered from the present one, `j`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ir.kernel.barriers import barriers
from ir.kernel.body import TENSOR, Body
from ir.kernel.modulo import Order
from ir.kernel.strip import Strip
from ir.kernel.synchronise import Scheduled, Wait
from ir.kernel.turns import FREE, Turn, turn_of

BEHIND = " behind the last block"
TAKE, GIVE = "take the turn", "pass the turn"


@dataclass(frozen=True, slots=True)
class Listing:
    """The main loop of one kernel. `steps`: a step of it in order, behind `synchronise`.

    A kernel that is not emitted from a body has None and `words` that say so.
    """

    kernel: str
    loop: str
    body: Body | None
    order: str
    words: str
    steps: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        lines = [f"kernel {self.kernel}"]
        if self.body is None:
            lines.append(f"# {self.words}")
        else:
            lines += [f"body of the loop over {self.loop}", *_indented(str(self.body).splitlines())]
            lines += [f"order {self.order}: {self.words}", "step of block j"]
            lines += _indented(self.steps)
        return "\n".join([*lines, "text", *_indented(self.text.splitlines())])


def _indented(lines: tuple[str, ...] | list[str]) -> list[str]:
    return [f"  {line}".rstrip() for line in lines]


def steps_of(scheduled: Scheduled, turns: str = FREE) -> tuple[str, ...]:
    """A step of a scheduled loop, with its waits, the slots that are free behind each, and turns.

    >>> from ir.kernel.modulo import order_named
    >>> from ir.kernel.synchronise import synchronised
    >>> body = Body.parse("a: tensor() -> x takes r\\nb: threads(x) -> y\\nc: tensor(y, z) -> z")
    >>> for line in steps_of(synchronised(order_named(body, "c:1"))):
    ...     print(line)
    wait for r of j
    a of j
    c of j-1
    wait until 0 products run; free r of j
    b of j
    """
    return tuple(_steps(scheduled, turn_of(scheduled, turns)))


def _steps(scheduled: Scheduled, turn: Turn | None) -> Iterator[str]:
    order = scheduled.order
    for place, step in enumerate(scheduled.steps):
        if step.wait is not None:
            yield _wait(step.wait.running, _freed(scheduled, step.wait))
        if turn is not None and turn.ended and turn.give == place:
            yield GIVE
        one = order.body.operations[step.operation]
        block = _block(order.stages[step.operation])
        yield from (f"wait for {ring} of {block}" for ring in one.takes)
        if turn is not None and turn.take == place:
            yield TAKE
        yield f"{one.name} of {block}"
        if turn is not None and not turn.ended and turn.give == place:
            yield GIVE
    if scheduled.left:
        yield _wait(0, _freed(scheduled, Wait(0, scheduled.left))) + BEHIND


def _freed(scheduled: Scheduled, wait: Wait) -> list[str]:
    order = scheduled.order
    return [
        f"{ring} of {_block(order.stages[place] + age)}"
        for place, age in wait.done
        for ring in order.body.operations[place].takes
    ]


def staged_steps(order: Order) -> tuple[str, ...]:
    """A step of a loop whose threads share values, with its barriers."""
    return tuple(_staged_steps(order))


def _staged_steps(order: Order) -> Iterator[str]:
    ahead = {barrier.place: barrier.running for barrier in barriers(order)}
    for number, place in enumerate(order.places):
        if number in ahead:
            running = ahead[number]
            yield "barrier" if running is None else f"{_wait(running, [], 'copy')}; barrier"
        yield f"{order.body.operations[place].name} of {_block(order.stages[place])}"


def strip_steps(strip: Strip) -> tuple[str, ...]:
    """A block of pieces, with its waits and the slots that are free behind each."""
    return tuple(_strip_steps(strip))


def _strip_steps(strip: Strip) -> Iterator[str]:
    made = strip.body.operations
    rings = [*dict.fromkeys(ring for one in made if one.unit == TENSOR for ring in one.takes)]
    yield from (f"wait for {ring} of j" for ring in rings)
    for moment in strip.moments:
        if moment.running is not None:
            yield _wait(moment.running, _slots(rings, moment.freed))
        yield f"{made[moment.operation].name} of piece {moment.piece} of {strip.count}"
    running, freed = strip.end
    if running is not None:
        yield _wait(running, _slots(rings, freed))
    if strip.through:
        yield _wait(0, [s for back in range(strip.pending) for s in _slots(rings, back)]) + BEHIND


def _slots(rings: list[str], back: int | None) -> list[str]:
    return [] if back is None else [f"{ring} of {_block(back)}" for ring in rings]


def _block(back: int) -> str:
    return f"j-{back}" if back else "j"


def _wait(running: int, freed: list[str], what: str = "product") -> str:
    behind = f"; free {', '.join(freed)}" if freed else ""
    many = {"product": "products", "copy": "copies"}[what] if running != 1 else what
    return f"wait until {running} {many} {'runs' if running == 1 else 'run'}{behind}"
