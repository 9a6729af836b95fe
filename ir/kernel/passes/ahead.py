"""Copies ahead of their use: the first blocks are begun before the loop, later ones inside it.

As in `pipeline`, an operation of stage s is done for block t - s in step t. But the loop goes
through the blocks of the last stage, as multistage kernels do: what it does for later blocks is
left out where there are none, and no code follows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ir.kernel.body import COPY, Operation, conflicts
from ir.kernel.modulo import Order
from ir.kernel.tile_kernel import (
    ALWAYS,
    BLOCK,
    BLOCKS,
    LEFT,
    NEVER,
    SECOND,
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

AHEAD = "ahead"


@dataclass(frozen=True, slots=True)
class Ahead:
    """The loop with the operations of `order` in its order, behind what fills its first slots.

    `fewest`, `most`: how many blocks it has. Operations that copy, and those that change what is
    kept, are done for blocks that there are; what others make of later blocks is never used.

    Raises KernelError for a body that does not begin with its only copy, of stage 0, and for values
    with too few places to be filled so far ahead.

    >>> from ir.kernel.body import Body
    >>> body = Body.parse(
    ...     "copy: copy() -> x\\nmultiply: threads(x, s) -> s\\nplaces x 3\\nshared x"
    ... )
    >>> kernel = TileKernel(
    ...     "k",
    ...     operations=body.operations,
    ...     body=(Loop(BLOCK, tuple(Do(one.name) for one in body.operations)),),
    ... )
    >>> for line in str(kernel).splitlines()[3:]:
    ...     print(line)
    for block from 0 to blocks
      do copy
      do multiply
    >>> for line in str(Ahead(Order(body, (0, 2), (0, 1)))(kernel)).splitlines()[3:]:
    ...     print(line)
    for block from 0 to 2
      if left >= 1
        do copy
    for block from 0 to blocks order multiply:2
      if left >= 3
        do copy of block+2 later always
      do multiply
    """

    order: Order
    fewest: int = 0
    most: int | None = None

    def __call__(self, kernel: TileKernel) -> TileKernel:
        self._check(kernel)
        names = [one.name for one in self.order.body.operations]
        changed = 0

        def change(one: Statement) -> tuple[Statement, ...]:
            nonlocal changed
            done = [inside for inside in getattr(one, "body", ()) if isinstance(inside, Do)]
            if not isinstance(one, Loop) or [inside.operation for inside in done] != names:
                return (one,)
            changed += 1
            return (*self._filled(kernel), self._steady(one))

        body = rewritten(kernel.body, change)
        if changed != 1:
            raise KernelError(f"kernel {kernel.name}: {changed} loops over {', '.join(names)}")
        return kernel.with_body(body)

    def _check(self, kernel: TileKernel) -> None:
        order, turns = self.order, dict(self.order.body.places)
        staged = tuple(zip(order.body.operations, order.stages, strict=True))
        for place, (one, stage) in enumerate(staged):
            if one.unit == COPY and (place or stage):
                raise KernelError(f"kernel {kernel.name}: {one.name} is not what begins a block")
        for one, stage in staged:
            for other, begun in staged:
                if begun == 0 and 0 < stage < order.depth:
                    for value in sorted(conflicts(one, other)):
                        if turns.get(value, 1) < order.depth:
                            have = f"{turns.get(value, 1)} places"
                            raise KernelError(
                                f"kernel {kernel.name}: {value} has {have}, "
                                f"{other.name} fills {order.depth} ahead of {one.name}"
                            )

    # -- ahead of the loop

    def _filled(self, kernel: TileKernel) -> Iterator[Statement]:
        """What is begun first, for all blocks ahead; then the rest of each step."""
        order = self.order
        if not order.depth:
            return
        end = order.depth if self.most is None else min(order.depth, self.most)
        begun = [n for n, stage in enumerate(order.stages) if stage == 0]
        yield Loop(BLOCK, tuple(self._begun(kernel, begun, end)), end=At("", end))
        for step in range(1, order.depth):
            inside = tuple(
                self._guarded_at(place, step - order.stages[place])
                for place in order.places if 0 < order.stages[place] <= step
            )  # fmt: skip
            if inside:
                yield Scope(f"{AHEAD} {step}", inside)

    def _begun(self, kernel: TileKernel, begun: list[int], end: int) -> Iterator[Statement]:
        """Operations of stage 0 for one block ahead."""
        operations = [self.order.body.operations[place] for place in begun]
        copies = tuple(Do(one.name) for one in operations if one.unit == COPY)
        short = self.fewest < end
        yield from (If(When(LEFT, 1), copies),) if short else copies
        others = tuple(one for one in operations if one.unit != COPY)
        for done in self._in_parts(kernel, others):
            one = kernel.operation(done.operation)
            yield If(When(LEFT, 1), (done,)) if short and self._exact(one) else done

    def _in_parts(self, kernel: TileKernel, operations: tuple[Operation, ...]) -> Iterator[Do]:
        """Part by part, where operations hand on local values: fewer are there at a time."""
        local = self.order.body.local
        found = [kernel.operation(one.name) for one in operations]
        counts = {len(one.parts) for one in found}
        handed = all(local & {*one.reads, *one.writes} for one in found)
        if len(found) < 2 or not handed or len(counts) != 1 or counts <= {0, 1}:
            yield from (Do(one.name) for one in found)
            return
        for piece in range(counts.pop()):
            yield from (Do(one.name, piece=piece) for one in found)

    def _guarded_at(self, place: int, number: int) -> Statement:
        """An operation of block `number`."""
        one = self.order.body.operations[place]
        done = Do(one.name, At("", number), later=When(ALWAYS if number else NEVER))
        if number < self.fewest or not self._exact(one):
            return done
        return If(When(BLOCKS, number + 1), (done,))

    # -- the loop

    def _steady(self, loop: Loop) -> Loop:
        body = tuple(map(self._step, self.order.places))
        return replace(loop, body=body, order=str(self.order))

    def _step(self, place: int) -> Statement:
        one = self.order.body.operations[place]
        ahead = self.order.depth - self.order.stages[place]
        done = Do(one.name, At(BLOCK, ahead), later=When(ALWAYS) if ahead else SECOND)
        return If(When(LEFT, ahead + 1), (done,)) if ahead and self._exact(one) else done

    def _exact(self, one: Operation) -> bool:
        """Whether an operation is done only for blocks that there are."""
        body = self.order.body
        passing = body.local | {value for value, _ in body.places}
        return one.unit == COPY or not {*one.writes} <= passing
