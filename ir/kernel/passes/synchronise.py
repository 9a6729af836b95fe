"""Waits, fences and frees: inserted where what tensor cores and copies do beside threads asks it.

The waits of a scheduled loop are those of `ir.kernel.synchronise`, those of blocks in pieces of
`ir.kernel.strip`: the fewest, and each as lax as may be. A slot is free when what read it is known
to be done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from ir.kernel.body import STORE, TENSOR, Operation
from ir.kernel.modulo import Order
from ir.kernel.passes.apart import WEIGHERS, frees, reads_ring
from ir.kernel.passes.pairs import PAIR
from ir.kernel.passes.pipeline import Section
from ir.kernel.passes.roles import CONSUMERS
from ir.kernel.strip import Moment, Strip
from ir.kernel.synchronise import Scheduled, synchronised
from ir.kernel.tile_kernel import (
    ADVANCE,
    ALWAYS,
    AWAIT,
    BEFORE,
    BLOCK,
    COMMIT,
    DONE,
    EXPECT,
    FENCE,
    FIRST_GROUP,
    FREE,
    FULL,
    GIVE,
    MEET,
    NESTED,
    NEVER,
    NEXT_TILE,
    PUBLISH,
    RELEASE,
    SKIP,
    STORED,
    TAKE,
    At,
    Do,
    If,
    Loop,
    Role,
    Scope,
    Statement,
    Sync,
    TileKernel,
    When,
    walk,
)
from ir.kernel.turns import DONE as ENDED
from ir.kernel.turns import FREE as NO_TURNS
from ir.kernel.turns import ISSUED, Turn, turn_of


@dataclass(frozen=True)
class Synchronise:
    """Everything that synchronises a kernel of two roles.

    `held`: the ring whose slot a tile keeps. `shared`: consumers work on one tile together.
    `early`: the kernel starts beside the one before it in the stream.

    >>> kernel = TileKernel.parse('''
    ... kernel product
    ... ring r: 2 of a
    ... op fetch: copy() -> a takes r
    ...   copy 0 by tma
    ... op multiply: tensor(a, s) -> s takes r
    ...   mma 1 by wgmma
    ... role producer
    ...   for tile
    ...     for block from 0 to blocks
    ...       do fetch
    ... role consumers
    ...   for tile
    ...     for block from 0 to blocks
    ...       do multiply''')
    >>> for line in str(Synchronise()(kernel)).splitlines()[6:]:
    ...     print(line)
    role producer
      for tile
        for block from 0 to blocks
          sync free r
          sync expect r
          do fetch
          sync advance r
    role consumers
      for tile
        for block from 0 to blocks
          sync full r
          sync fence
          do multiply
          sync commit
          sync await
          sync done multiply
          sync release r
          sync advance r
    """

    order: Order | None = None
    strip: Strip | None = None
    turns: str = NO_TURNS
    held: str = ""
    shared: bool = True
    early: bool = False

    def __call__(self, kernel: TileKernel) -> TileKernel:
        found: list[Statement] = []
        for one in kernel.body:
            if isinstance(one, Role):
                made = self._produced(kernel, one.body)
                if one.name in (WEIGHERS, CONSUMERS):
                    made = _Consumers(self, kernel, one).tiles(one.body)
                one = replace(one, body=tuple(self._around(kernel, tuple(made), one.name)))
            found.append(one)
        return kernel.with_body(tuple(found))

    def _around(
        self, kernel: TileKernel, body: tuple[Statement, ...], role: str
    ) -> Iterator[Statement]:
        """What comes ahead of a role's first access to memory, and behind its last."""
        for one in body:
            if isinstance(one, Loop) and self.early:
                yield Sync(BEFORE)
            if isinstance(one, Loop) and self.turns != NO_TURNS and role == CONSUMERS:
                yield Sync(GIVE, FIRST_GROUP)
            yield one
        parts = (part for one in kernel.operations for part in one.parts)
        if role == CONSUMERS and any(part.kind == STORE and part.by for part in parts):
            yield Sync(STORED)

    def _produced(self, kernel: TileKernel, body: Iterable[Statement]) -> Iterator[Statement]:
        """Copies, each into a free slot."""
        for one in body:
            if isinstance(one, NESTED):
                yield replace(one, body=tuple(self._produced(kernel, one.body)))
                continue
            rings = kernel.operation(one.operation).takes if isinstance(one, Do) else ()
            yield from (Sync(kind, ring) for ring in rings for kind in (FREE, EXPECT))
            yield one
            yield from (Sync(ADVANCE, ring) for ring in rings)

    @cached_property
    def scheduled(self) -> Scheduled | None:
        return None if self.order is None else synchronised(self.order)

    @cached_property
    def turn(self) -> Turn | None:
        return None if self.scheduled is None else turn_of(self.scheduled, self.turns)


class _Consumers:
    """The statements of the consumers of one kernel."""

    def __init__(self, how: Synchronise, kernel: TileKernel, role: Role) -> None:
        self.how, self.kernel, self.role = how, kernel, role
        self.held = how.held if reads_ring(kernel, role, how.held) else ""

    def tiles(self, body: Iterable[Statement]) -> Iterator[Statement]:
        for one in body:
            if isinstance(one, Loop) and one.over != BLOCK:
                one = replace(one, body=tuple(self._tile(one.body)))
            yield one

    def _tile(self, body: tuple[Statement, ...]) -> Iterator[Statement]:
        """A tile: what it holds is there from the start, and free behind its last loop."""
        if not self.how.shared:
            yield Sync(SKIP)
        if self.held:
            yield Sync(FULL, self.held)
        last = max((n for n, one in enumerate(body) if _loops(one)), default=-1)
        for number, one in enumerate(body):
            yield from self._one(one)
            leaves = _loops(one) and not (number < last and _follows(body, number))
            if leaves and number == last and not self.how.shared:
                yield Sync(NEXT_TILE)
            if leaves:
                yield from self._left(one)
            if number == last and self.held:
                yield Sync(RELEASE, self.held)
                yield Sync(ADVANCE, self.held)

    def _left(self, one: Statement) -> Iterator[Statement]:
        """What blocks in pieces leave behind a loop: products that run, slots that they read."""
        strip = self.how.strip
        done = [do for do in walk((one,)) if isinstance(do, Do) and do.piece is not None]
        if strip is None or not strip.through or not done:
            return
        yield Sync(AWAIT)
        rings = self._rings(done)
        freed = (Sync(RELEASE, ring, 1) for ring in rings)
        yield from (If(When("blocks", 1), (one,)) for one in freed)

    # -- one statement

    def _one(self, one: Statement) -> Iterator[Statement]:
        if isinstance(one, Loop) and self._in_pieces(one):
            yield replace(one, body=tuple(self._pieces(one.body)))
        elif isinstance(one, Loop) and self.how.order is not None and self._scheduled(one):
            section = Section(self.how.order.depth)
            yield replace(one, body=tuple(self._section(section)))
        elif isinstance(one, Scope) and one.name.partition(" ")[0] in ("ahead", "behind"):
            yield replace(one, body=tuple(self._section(_section(self.how.order, one.name))))
        elif isinstance(one, Loop) and any(_is_pair(inside) for inside in one.body):
            yield replace(one, body=tuple(self._pairs(one.body)))
        elif isinstance(one, If) and self.how.scheduled is not None:
            yield replace(one, body=tuple(self._scheduled_body(one.body)))
        elif isinstance(one, NESTED):
            yield replace(one, body=tuple(s for inside in one.body for s in self._one(inside)))
        elif isinstance(one, Do) and self._operation(one).unit == TENSOR:
            yield from self._at_once(one)
        else:
            yield one

    def _operation(self, one: Do) -> Operation:
        return self.kernel.operation(one.operation)

    def _rings(self, done: Iterable[Do]) -> tuple[str, ...]:
        """Rings of which tensor cores read slots, in the order of their use."""
        taken = (
            ring for do in done for ring in self._operation(do).takes
            if self._operation(do).unit == TENSOR
        )  # fmt: skip
        without = (self.how.held, *self.kernel.relayed)
        return tuple(ring for ring in dict.fromkeys(taken) if ring not in without)

    def _at_once(self, one: Do) -> Iterator[Statement]:
        """Products that are waited for where they are issued."""
        rings = self._rings([one])
        yield from (Sync(FULL, ring) for ring in rings)
        yield from _issued(one)
        yield Sync(AWAIT)
        yield Sync(DONE, one.operation)
        for ring in rings:
            yield from (Sync(RELEASE, ring),) * frees(self.kernel, self.role, ring)
            yield Sync(ADVANCE, ring)

    # -- a modulo schedule

    def _scheduled(self, loop: Loop) -> bool:
        order = self.how.order
        assert order is not None
        names = {one.name for one in order.body.operations}
        return {do.operation for do in loop.body if isinstance(do, Do)} <= names

    def _scheduled_body(self, body: tuple[Statement, ...]) -> Iterator[Statement]:
        for one in body:
            yield from self._one(one)
        scheduled, order = self.how.scheduled, self.how.order
        assert scheduled is not None
        assert order is not None
        if scheduled.left:
            yield Sync(AWAIT)
            last = Section(order.depth, behind=order.depth)
            yield from self._known(last, scheduled.left, len(order.places))

    def _section(self, section: Section) -> Iterator[Statement]:
        scheduled, turn, order = self.how.scheduled, self.how.turn, self.how.order
        assert scheduled is not None
        assert order is not None
        for place, entry in enumerate(scheduled.steps):
            operation = order.body.operations[entry.operation]
            stage = order.stages[entry.operation]
            if entry.wait is not None:
                yield Sync(AWAIT, number=entry.wait.running)
                yield from self._known(section, entry.wait.done, place)
            if turn is not None and turn.ended and turn.give == place:
                yield Sync(GIVE)
            takes = turn is not None and turn.take == place
            do = Do(operation.name, section.at(stage), later=section.later(stage))
            if operation.unit != TENSOR:
                meets = section.has(stage) and self._stores(operation)
                yield from (Sync(MEET),) * meets  # all groups' products have read what was there
                yield from (do,) * section.has(stage)
                yield from (Sync(PUBLISH),) * meets
            else:
                yield from self._begun(do, section.has(stage), takes, section)
            if turn is not None and not turn.ended and turn.give == place:
                yield Sync(GIVE)

    def _begun(self, do: Do, there: bool, takes: bool, section: Section) -> Iterator[Statement]:
        """Products; where a step lacks them, so that waits and turns count alike, nothing."""
        place = self._place(do.operation)
        first = [ring for ring in self._rings([do]) if self._takers(ring)[0] == place]
        if there:
            yield from (Sync(FULL, ring) for ring in first)
        if takes:
            yield Sync(TAKE)
        if not there:
            yield Sync(COMMIT)
            return
        backs = [self._back(ring, section, place, 0) for ring in self._rings([do])]
        yield from _issued(replace(do, back=max(backs, default=0)))
        yield from (Sync(ADVANCE, ring) for ring in first if len(self._takers(ring)) > 1)

    def _place(self, name: str) -> int:
        assert self.how.order is not None
        return self.how.order.body.place(name)

    def _takers(self, ring: str) -> list[int]:
        """The products of a body that read a slot of a ring, in the order in which they do."""
        order = self.how.order
        assert order is not None
        number = {place: n for n, place in enumerate(order.places)}
        takers = [
            place for place, one in enumerate(order.body.operations)
            if one.unit == TENSOR and ring in one.takes
        ]  # fmt: skip
        return sorted(takers, key=lambda place: (order.stages[place], number[place]))

    def _back(self, ring: str, section: Section, place: int, age: int, at: int = -1) -> int:
        """How many slots ago that was the present one which a product begun `age` steps ago reads;
        0 for what has a ring to itself. `at` is where in the step that is asked, if not at `place`.

        Who reads a slot first goes on to the next one when it has begun.
        """
        order, takers = self.how.order, self._takers(ring)
        assert order is not None
        if len(takers) == 1 or (place == takers[0] and at < 0):
            return 0
        number = {one: n for n, one in enumerate(order.places)}
        here, first = number[place] if at < 0 else at, takers[0]
        lag, own = order.stages[first], order.stages[place] + age
        if section.behind is not None and not section.has(lag):
            return own - section.behind  # all blocks were begun
        return own - lag + int(number[first] < here)

    def _stores(self, operation: Operation) -> bool:
        """Whether threads write what products of all groups read in shared memory."""
        rings = {name for ring in self.kernel.rings for name in ring.tiles}
        shared = {tile.name for tile in self.kernel.tiles if tile.residence == "shared"}
        return bool((shared - rings) & {*operation.writes})

    def _known(
        self, section: Section, done: tuple[tuple[int, int], ...], at: int
    ) -> Iterator[Statement]:
        """What may be read, and the slots that are free, behind a wait ahead of operation `at`."""
        order = self.how.order
        assert order is not None
        for place, age in done:
            when = section.begun(age + order.stages[place])
            if when.of == NEVER:
                continue
            do = Do(order.body.operations[place].name)
            yield Sync(DONE, do.operation)
            free = tuple(self._freed_slots(do, section, place, age, at))
            if free:
                yield from free if when.of == ALWAYS else (If(when, free),)

    def _freed_slots(
        self, do: Do, section: Section, place: int, age: int, at: int
    ) -> Iterator[Statement]:
        """The slots of products that are done, where nobody else reads them later."""
        for ring in self._rings([do]):
            takers = self._takers(ring)
            if takers == [place]:
                yield from (Sync(RELEASE, ring), Sync(ADVANCE, ring))
            elif takers[-1] == place:
                yield Sync(RELEASE, ring, self._back(ring, section, place, age, at))

    # -- blocks in pieces

    def _in_pieces(self, loop: Loop) -> bool:
        return self.how.strip is not None and any(
            isinstance(one, Do) and one.piece is not None for one in loop.body
        )

    def _pieces(self, body: tuple[Statement, ...]) -> Iterator[Statement]:
        """Slots are waited for by whoever reads them first, and left by whoever does last."""
        strip = self.how.strip
        assert strip is not None
        reading = [n for n, one in enumerate(body) if isinstance(one, Do) and self._reads(one)]
        pieces = [one for one in body if isinstance(one, Do) and one.piece is not None]
        rings, moments = self._rings(pieces), iter(strip.moments)
        running, _ = strip.end
        turns = self.how.turns
        products = [one for one in pieces if self._operation(one).unit == TENSOR]
        for number, one in enumerate(body):
            if reading and number == reading[0]:
                yield from (Sync(FULL, ring) for ring in rings)
            if isinstance(one, Do) and one.piece is not None:
                takes = turns != NO_TURNS and one is products[0]
                yield from self._piece(one, next(moments), rings, takes)
                if turns == ISSUED and one is products[-1]:
                    yield Sync(GIVE)
                if one is pieces[-1] and running is not None:
                    yield Sync(AWAIT, number=running)
                if turns == ENDED and one is pieces[-1]:
                    yield Sync(GIVE)
            else:
                yield from self._one(one)
            if reading and number == reading[-1]:
                yield from self._end_of_block(rings)

    def _reads(self, one: Do) -> bool:
        return one.piece is not None or bool(self._operation(one).takes)

    def _piece(
        self, one: Do, moment: Moment, rings: tuple[str, ...], takes: bool
    ) -> Iterator[Statement]:  # fmt: skip
        """A piece behind what it waits for, and behind the group's turn if it `takes` that."""
        if moment.running is not None:
            yield Sync(AWAIT, number=moment.running)
        if moment.freed is not None:
            yield from _freed(rings)
        yield from (Sync(TAKE),) * takes
        yield from _issued(one) if self._operation(one).unit == TENSOR else (one,)

    def _end_of_block(self, rings: tuple[str, ...]) -> Iterator[Statement]:
        assert self.how.strip is not None
        _, freed = self.how.strip.end
        if freed:
            yield from _freed(rings)
        for ring in rings:
            yield from (Sync(RELEASE, ring),) * (freed == 0)
            yield Sync(ADVANCE, ring)

    # -- products in pairs

    def _pairs(self, body: tuple[Statement, ...]) -> Iterator[Statement]:
        for one in body:
            if isinstance(one, Scope) and one.name == PAIR:
                one = replace(one, body=tuple(self._pair(one.body)))
            yield one

    def _pair(self, body: tuple[Statement, ...]) -> Iterator[Statement]:
        """Products, then what waits for each; a slot is free behind the last rows of its block."""
        products = [do for do in body if isinstance(do, Do) and self._operation(do).unit == TENSOR]
        rings, last = self._rings(products), products[-1].at.number
        folds = iter(range(len(products)))
        for one in body:
            assert isinstance(one, Do)
            if one in products:
                if one.at.number and not one.piece:
                    yield from (Sync(ADVANCE, ring) for ring in rings)
                if not one.piece:
                    yield from (Sync(FULL, ring) for ring in rings)
                yield from _issued(one)
                continue
            number = next(folds)
            yield Sync(AWAIT, number=len(products) - 1 - number)
            if self._ends(one):
                back = last - one.at.number
                yield from (Sync(RELEASE, ring, back) for ring in rings)
            yield one
        if self._ends(products[-1]):
            yield from (Sync(ADVANCE, ring) for ring in rings)

    def _ends(self, one: Do) -> bool:
        """Whether products are of the last rows of their block."""
        loops = (s for s in self.kernel.statements() if isinstance(s, Do) and s.piece is not None)
        return one.piece == max(s.piece for s in loops if s.piece is not None)


def _section(order: Order | None, name: str) -> Section:
    assert order is not None
    word, _, number = name.partition(" ")
    return Section(order.depth, **{word: int(number)})


def _is_pair(one: Statement) -> bool:
    return isinstance(one, Scope) and one.name == PAIR


def _loops(one: Statement) -> bool:
    """Whether it has a loop over blocks."""
    return any(isinstance(inside, Loop) and inside.over == BLOCK for inside in walk((one,)))


def _follows(body: tuple[Statement, ...], number: int) -> bool:
    """Whether the next statement is what a loop by twos leaves over."""
    after = body[number + 1] if number + 1 < len(body) else None
    return isinstance(after, Loop) and after.first == At(BLOCK)


def _issued(one: Do) -> tuple[Statement, ...]:
    return (Sync(FENCE), one, Sync(COMMIT))


def _freed(rings: Iterable[str]) -> Iterator[Statement]:
    """The slots of the block before."""
    yield from (If(When(BLOCK, 1), (Sync(RELEASE, ring, 1),)) for ring in rings)
