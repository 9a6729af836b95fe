"""Products that are issued a block ahead of what threads make of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ir.kernel.tile_kernel import (
    ADVANCE,
    AWAIT,
    BLOCK,
    BLOCKS,
    DONE,
    NEVER,
    RELEASE,
    At,
    Do,
    If,
    Loop,
    Role,
    Statement,
    Sync,
    TileKernel,
    When,
    rewritten,
)


@dataclass(frozen=True, slots=True)
class IssueAhead:
    """Products of `operation` begin before the block before is gone on with: what they came to is
    taken out of their registers by `take` first.

    >>> kernel = TileKernel.parse('''
    ... kernel chain
    ... ring r: 2 of a
    ... op scores: tensor(a) -> s takes r
    ...   mma 1
    ... op take: threads(s) ->
    ...   take 1
    ... op weigh: threads(s) -> w
    ...   map 2
    ... role weighers
    ...   for block from 0 to blocks
    ...     sync full r
    ...     sync fence
    ...     do scores
    ...     sync commit
    ...     sync await
    ...     sync done scores
    ...     sync advance r
    ...     do weigh''')
    >>> for line in str(IssueAhead("weighers", "scores", "take")(kernel)).splitlines()[8:]:
    ...     print(line)
    role weighers
      if blocks >= 1
        sync full r
        sync fence
        do scores of 0 later never
        sync commit
        sync advance r
        for block from 0 to blocks-1
          sync await
          sync done scores
          do take
          sync full r
          sync fence
          do scores of block+1
          sync commit
          sync advance r
          do weigh
        for block from blocks-1 to blocks
          sync await
          sync done scores
          do take
          do weigh
    """

    role: str
    operation: str
    take: str

    def __call__(self, kernel: TileKernel) -> TileKernel:
        body = tuple(
            replace(one, body=rewritten(one.body, self._ahead))
            if isinstance(one, Role) and one.name == self.role else one
            for one in kernel.body
        )  # fmt: skip
        return kernel.with_body(body)

    def _ahead(self, one: Statement) -> tuple[Statement, ...]:
        if not isinstance(one, Loop) or one.over != BLOCK or Sync(AWAIT) not in one.body:
            return (one,)
        where = one.body.index(Sync(AWAIT))
        issued, behind = one.body[:where], one.body[where:]
        done = behind.index(Sync(DONE, self.operation)) + 1
        slots = tuple(_moves(behind[done:]))
        rest = behind[done + len(slots) :]
        moves = tuple(s for s in slots if s.kind == ADVANCE)
        freed = tuple(replace(s, number=1) for s in slots if s.kind == RELEASE)
        taken: tuple[Statement, ...] = (*behind[:done], *freed, Do(self.take))
        following = (*self._of(issued, At(BLOCK, 1)), *moves)
        most = replace(one, body=(*taken, *following, *rest), end=At(BLOCKS, -1))
        last = replace(one, body=(*taken, *rest), first=At(BLOCKS, -1))
        first = self._of(issued, At("", 0), When(NEVER))
        return (If(When(BLOCKS, 1), (*first, *moves, most, last)),)

    def _of(
        self, issued: tuple[Statement, ...], at: At, later: When | None = None
    ) -> tuple[Statement, ...]:
        """What issues the products, of a block."""
        found: list[Statement] = []
        for one in issued:
            if isinstance(one, Do):
                one = replace(one, at=at, later=later or one.later)
            found.append(one)
        return tuple(found)


def _moves(body: tuple[Statement, ...]) -> Iterator[Sync]:
    """What frees slots, or goes on to the next ones, as far as there is nothing else."""
    for one in body:
        if not isinstance(one, Sync) or one.kind not in (RELEASE, ADVANCE):
            return
        yield one
