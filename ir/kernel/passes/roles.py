"""Who does what: copies that a unit of their own makes get a role, with the loops around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ir.kernel.body import COPIES
from ir.kernel.tile_kernel import (
    NESTED,
    Do,
    Role,
    Statement,
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
            Role(PRODUCER, kept(kernel.body, lambda do: self._copies(kernel, do))),
            Role(CONSUMERS, kept(kernel.body, lambda do: not self._copies(kernel, do))),
        )
        return kernel.with_body(roles)

    def _copies(self, kernel: TileKernel, one: Do) -> bool:
        parts = kernel.operation(one.operation).parts
        return bool(parts) and all(p.kind == COPIES and p.by in self.copiers for p in parts)


def kept(body: tuple[Statement, ...], wanted: Callable[[Do], bool]) -> tuple[Statement, ...]:
    """The statements with the operations that are `wanted` alone, without what is then empty."""
    found: list[Statement] = []
    for one in body:
        if isinstance(one, NESTED):
            inside = kept(one.body, wanted)
            if inside or not one.body:
                found.append(replace(one, body=inside))
        elif not isinstance(one, Do) or wanted(one):
            found.append(one)
    return tuple(found)
