"""Some operations of the consumers become those of a role of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ir.kernel.body import TENSOR, Operation
from ir.kernel.passes.roles import CONSUMERS, kept
from ir.kernel.tile_kernel import BLOCK, Do, Loop, Role, Statement, TileKernel, rewritten, walk

WEIGHERS = "weighers"


@dataclass(frozen=True, slots=True)
class Apart:
    """`own` operations to the role of weighers, those of `both` to both, with the loops around.

    What one leaves the other is in rings that threads fill, which `Relay` synchronises.

    >>> kernel = TileKernel.parse('''
    ... kernel chain
    ... op weigh: threads(x) -> w takes r
    ...   convert 1
    ... op multiply: tensor(w, s) -> s takes r
    ...   mma 2
    ... role consumers
    ...   for block from 0 to blocks free 0
    ...     do weigh
    ...     do multiply''')
    >>> for line in str(Apart(("weigh",))(kernel)).splitlines()[5:]:
    ...     print(line)
    role weighers
      for block from 0 to blocks free 0
        do weigh
    role consumers
      for block from 0 to blocks
        do multiply
    """

    own: tuple[str, ...]
    both: tuple[str, ...] = ()

    def __call__(self, kernel: TileKernel) -> TileKernel:
        found: list[Statement] = []
        for one in kernel.body:
            if not isinstance(one, Role) or one.name != CONSUMERS:
                found.append(one)
                continue
            found.append(Role(WEIGHERS, kept(one.body, self._weighs)))
            rest = kept(one.body, lambda do: do.operation in self.both or not self._weighs(do))
            found.append(replace(one, body=rewritten(rest, _unmasked)))
        return kernel.with_body(tuple(found))

    def _weighs(self, do: Do) -> bool:
        return do.operation in (*self.own, *self.both)


def _unmasked(one: Statement) -> tuple[Statement, ...]:
    """Masks are the weighers': to those who multiply all blocks are alike."""
    if isinstance(one, Loop) and one.over == BLOCK:
        one = replace(one, free=None)
    return (one,)


def frees(kernel: TileKernel, role: Role, ring: str) -> bool:
    """Whether it is this role that frees a ring's slots: the last whose products read them."""
    takers = [
        one.name for one in _roles(kernel)
        if any(ring in o.takes and o.unit == TENSOR for o in _done(kernel, one))
    ]  # fmt: skip
    return takers[-1:] == [role.name]


def reads_ring(kernel: TileKernel, role: Role, ring: str) -> bool:
    """Whether a role reads tiles of a ring; where there are no weighers, consumers do."""
    if not ring or all(one.name != WEIGHERS for one in _roles(kernel)):
        return bool(ring)
    tiles = {*kernel.ring(ring).tiles}
    return any(tiles & {*one.reads} for one in _done(kernel, role))


def _roles(kernel: TileKernel) -> tuple[Role, ...]:
    return tuple(one for one in kernel.body if isinstance(one, Role))


def _done(kernel: TileKernel, role: Role) -> Iterator[Operation]:
    """The operations of a role."""
    return (kernel.operation(do.operation) for do in walk(role.body) if isinstance(do, Do))
