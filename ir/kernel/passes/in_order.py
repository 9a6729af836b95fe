"""Products of a unit that ends each before its threads' next instruction, of what threads copy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ir.kernel.tile_kernel import (
    AWAIT,
    COMMIT,
    EXPECT,
    FENCE,
    MEET,
    NESTED,
    PUBLISH,
    Statement,
    Sync,
    TileKernel,
    rewritten,
)

_GONE = (AWAIT, COMMIT, FENCE, EXPECT)  # what products and copies need that run by themselves


@dataclass(frozen=True, slots=True)
class InOrder:
    """Without waits for products, and without bytes of copies that end by themselves; what threads
    leave for products is there where threads have met.

    >>> kernel = TileKernel.parse('''
    ... kernel k
    ... op multiply: tensor(s) -> s
    ...   mma 3
    ... for block from 0 to blocks
    ...   sync publish
    ...   sync fence
    ...   do multiply
    ...   sync commit
    ...   sync await 0''')
    >>> for line in str(InOrder()(kernel)).splitlines()[3:]:
    ...     print(line)
    for block from 0 to blocks
      sync meet
      do multiply
    """

    def __call__(self, kernel: TileKernel) -> TileKernel:
        def change(one: Statement) -> tuple[Statement, ...]:
            if isinstance(one, NESTED) or not isinstance(one, Sync):
                return (one,)
            if one.kind in _GONE:
                return ()
            return (replace(one, kind=MEET) if one.kind == PUBLISH else one,)

        return kernel.with_body(rewritten(kernel.body, change))
