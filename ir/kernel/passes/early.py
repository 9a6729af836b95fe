"""What threads read for a block, read before they wait for what tensor cores do in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ir.kernel.tile_kernel import NESTED, Do, Statement, TileKernel, rewritten


@dataclass(frozen=True, slots=True)
class Early:
    """`loads` at the head of every step that has `first`, of that block.

    >>> kernel = TileKernel.parse('''
    ... kernel k
    ... op fetch: threads(A) -> a
    ...   map 1
    ... op multiply: tensor(s) -> s
    ...   mma 3
    ... op fold: threads(s, a) -> t
    ...   reduce 4
    ... for block from 0 to blocks
    ...   do multiply
    ...   do fold''')
    >>> for line in str(Early("fetch", "multiply")(kernel)).splitlines()[7:]:
    ...     print(line)
    for block from 0 to blocks
      do fetch
      do multiply
      do fold
    """

    loads: str
    first: str

    def __call__(self, kernel: TileKernel) -> TileKernel:
        def change(one: Statement) -> tuple[Statement, ...]:
            if not isinstance(one, NESTED):
                return (one,)
            body = one.body
            found = [do for do in body if isinstance(do, Do) and do.operation == self.first]
            if not found:
                return (one,)
            ahead = Do(self.loads, at=found[0].at, later=found[0].later)
            return (replace(one, body=(ahead, *body)),)

        return kernel.with_body(rewritten(kernel.body, change))
