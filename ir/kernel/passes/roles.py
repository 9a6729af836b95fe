"""Who does what: copies that a unit of their own makes get a role, with the loops around them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ir.kernel.body import COPIES
from ir.kernel.tile_kernel import (
    NESTED,
    Do,
    Merge,
    Role,
    Statement,
    Sync,
    TileKernel,
)

PRODUCER, CONSUMERS = "producer", "consumers"


@dataclass(frozen=True, slots=True)
class Roles:
    """Copies by `copiers` to the producer, everything else to the consumers.

    >>> kernel = TileKernel.parse('''
    ... kernel product
    ... op fetch: copy(A) -> a
    ...   copy 0 by tma
    ... op multiply: tensor(a, s) -> s takes r
    ...   mma 1 by wgmma
    ... for block from 0 to blocks
    ...   do fetch
    ...   do multiply''')
    >>> print(*Roles(("tma",))(kernel).body[0].body, sep="; ")
    for block from 0 to blocks
    >>> for line in str(Roles(("tma",))(kernel)).splitlines()[5:]:
    ...     print(line)
    role producer
      for block from 0 to blocks
        do fetch
    role consumers
      for block from 0 to blocks
        do multiply
    """

    copiers: tuple[str, ...]

    def __call__(self, kernel: TileKernel) -> TileKernel:
        roles = (
            Role(PRODUCER, self._kept(kernel, kernel.body, True)),
            Role(CONSUMERS, self._kept(kernel, kernel.body, False)),
        )
        return kernel.with_body(roles)

    def _kept(
        self, kernel: TileKernel, body: tuple[Statement, ...], copies: bool
    ) -> tuple[Statement, ...]:
        found: list[Statement] = []
        for one in body:
            if isinstance(one, Merge) and copies:
                continue
            if isinstance(one, NESTED):
                inside = self._kept(kernel, one.body, copies)
                if inside or not one.body:
                    found.append(replace(one, body=inside))
            elif isinstance(one, Sync) or self._copies(kernel, one) == copies:
                found.append(one)
        return tuple(found)

    def _copies(self, kernel: TileKernel, one: Statement) -> bool:
        if not isinstance(one, Do):
            return False
        parts = kernel.operation(one.operation).parts
        return bool(parts) and all(p.kind == COPIES and p.by in self.copiers for p in parts)
