"""A modulo schedule put into effect: steps before the loop, the loop, and steps behind it.

An operation of stage s is done for block t - s in step t. What of a step there is, and for which
block, is what a section says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ir.kernel.body import THREADS
from ir.kernel.modulo import Order
from ir.kernel.tile_kernel import (
    ALWAYS,
    BLOCK,
    BLOCKS,
    NEVER,
    At,
    Do,
    If,
    KernelError,
    Loop,
    Scope,
    Statement,
    TileKernel,
    When,
    rewritten,
)


@dataclass(frozen=True, slots=True)
class Section:
    """A step before the loop (`ahead`), of it, or behind it (`behind`): which iterations it has.

    >>> section = Section(1, behind=0)
    >>> [section.has(0), section.has(1), str(section.at(1)), str(section.later(1))]
    [False, True, 'blocks-1', 'blocks >= 2']
    """

    depth: int
    ahead: int | None = None
    behind: int | None = None

    @property
    def name(self) -> str:
        return f"ahead {self.ahead}" if self.ahead is not None else f"behind {self.behind}"

    def has(self, stage: int) -> bool:
        """Whether it has an operation of that stage."""
        if self.ahead is not None:
            return self.ahead >= stage
        return self.behind is None or stage > self.behind

    def at(self, stage: int) -> At:
        """An operation's block."""
        if self.ahead is not None:
            return At("", self.ahead - stage)
        if self.behind is not None:
            return At(BLOCKS, self.behind - stage)
        return At(BLOCK, -stage)

    def begun(self, back: int) -> When:
        """When there is a block `back` steps and stages before this step."""
        if self.ahead is not None:
            return When(ALWAYS if self.ahead >= back else NEVER)
        if self.behind is not None:
            if self.behind >= back:
                return When(NEVER)
            least = back - self.behind
            return When(ALWAYS) if least <= 1 else When(BLOCKS, least)
        return When(ALWAYS) if self.depth >= back else When(BLOCK, back)

    def later(self, stage: int) -> When:
        """When an operation's block is not the first."""
        return self.begun(stage + 1)


def sections_of(order: Order) -> tuple[Section, ...]:
    """All steps that are no others': those ahead, one of the loop, those behind."""
    depth = order.depth
    ahead = (Section(depth, ahead=number) for number in range(depth))
    return (*ahead, Section(depth), *(Section(depth, behind=number) for number in range(depth)))


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The loop with the operations of `order` in its order. `free`: masks touch only some blocks.

    >>> from ir.kernel.body import Body
    >>> from ir.kernel.modulo import order_named
    >>> body = Body.parse("a: tensor() -> x\\nb: threads(x) -> y\\nc: tensor(y, z) -> z")
    >>> kernel = TileKernel(
    ...     "k",
    ...     operations=body.operations,
    ...     body=(Loop(BLOCK, tuple(Do(one.name) for one in body.operations)),),
    ... )
    >>> for line in str(Pipeline(order_named(body, "c:1"))(kernel)).splitlines()[4:]:
    ...     print(line)
    if blocks >= 1
      scope ahead 0
        do a of 0 later never
        do b of 0 later never
      for block from 1 to blocks order c:1
        do a later always
        do c of block-1 later block >= 2
        do b later always
      scope behind 0
        do c of blocks-1 later blocks >= 2
    """

    order: Order
    free: bool = False

    def __call__(self, kernel: TileKernel) -> TileKernel:
        names = {one.name for one in self.order.body.operations}
        changed = 0

        def change(one: Statement) -> tuple[Statement, ...]:
            nonlocal changed
            done = [inside for inside in getattr(one, "body", ()) if isinstance(inside, Do)]
            if not isinstance(one, Loop) or {inside.operation for inside in done} != names:
                return (one,)
            changed += 1
            return self._pipelined(one)

        body = rewritten(kernel.body, change)
        if changed != 1:
            raise KernelError(f"kernel {kernel.name}: {changed} loops over {', '.join(names)}")
        return kernel.with_body(body)

    def _pipelined(self, loop: Loop) -> tuple[Statement, ...]:
        order = self.order
        found: list[Statement] = []
        for section in sections_of(order):
            inside = tuple(self._done(section))
            if section.ahead is None and section.behind is None:
                found.append(
                    replace(loop, body=inside, first=At("", order.depth), order=str(order),
                            free=self._stage_of_threads)
                )  # fmt: skip
            else:
                found.append(Scope(section.name, inside))
        return (If(When(BLOCKS, 1), tuple(found)),)

    @property
    def _stage_of_threads(self) -> int | None:
        """How many blocks ago those are that threads work on, where that is one number."""
        order = self.order
        stages = {
            stage
            for one, stage in zip(order.body.operations, order.stages, strict=True)
            if one.unit == THREADS
        }
        return stages.pop() if self.free and len(stages) == 1 else None

    def _done(self, section: Section) -> list[Statement]:
        order = self.order
        return [
            Do(order.body.operations[place].name, section.at(order.stages[place]),
               later=section.later(order.stages[place]))
            for place in order.places if section.has(order.stages[place])
        ]  # fmt: skip
