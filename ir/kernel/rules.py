"""What every kernel keeps to: names that are there, and what synchronises what, in its place.

These rules look at statements alone; whether a kernel computes what its program says is for
`ir.kernel.meaning`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ir.kernel.body import TENSOR
from ir.kernel.tile_kernel import (
    ADVANCE,
    COMMIT,
    EXCHANGED,
    EXPECT,
    FENCE,
    FIRST_GROUP,
    FREE,
    NESTED,
    Alloc,
    Do,
    KernelError,
    Statement,
    Sync,
    TileKernel,
    walk,
)


def verify(kernel: TileKernel) -> None:
    """Raises KernelError, which names the operation, for a kernel that breaks a rule.

    >>> kernel = TileKernel.parse('''
    ... kernel k
    ... op a: tensor() -> s
    ...   mma 3
    ... for tile
    ...   do a
    ...   sync await''')
    >>> verify(kernel)
    Traceback (most recent call last):
    ir.kernel.tile_kernel.KernelError: kernel k: do a: no `sync fence` ahead of it
    """
    rings = {ring.name for ring in kernel.rings}
    for operation in kernel.operations:
        missing = [name for name in operation.takes if name not in rings]
        if missing:
            raise KernelError(f"kernel {kernel.name}: {operation.name} takes {missing[0]}, no ring")
    synchronised = any(isinstance(one, Sync) for one in kernel.statements())
    for before, one, behind in _neighbours(kernel.body):
        if isinstance(one, Sync):
            _known(kernel, one, rings)
        elif isinstance(one, Do):
            operation = kernel.operation(one.operation)
            if synchronised and operation.unit == TENSOR and not operation.in_order:
                _needs(kernel, one, before[-1:], FENCE, "", "ahead of it")
                _needs(kernel, one, behind[:1], COMMIT, "", "behind it")
            elif synchronised and _is_copy(kernel, one):
                for ring in operation.takes:
                    _needs(kernel, one, before, FREE, ring, "ahead of it")
                    _needs(kernel, one, before, EXPECT, ring, "ahead of it")
                    _needs(kernel, one, behind, ADVANCE, ring, "behind it")
        elif isinstance(one, Alloc):
            _allocated(kernel, one, behind)


def _neighbours(
    body: tuple[Statement, ...],
) -> Iterator[tuple[tuple[Statement, ...], Statement, tuple[Statement, ...]]]:
    """Every statement, with those ahead of it and behind it in the same body."""
    for number, one in enumerate(body):
        yield body[:number], one, body[number + 1 :]
        if isinstance(one, NESTED):
            yield from _neighbours(one.body)


def _is_copy(kernel: TileKernel, one: Do) -> bool:
    parts = kernel.operation(one.operation).parts
    return bool(parts) and all(part.kind == "copy" and part.by == "tma" for part in parts)


def _needs(
    kernel: TileKernel, one: Do, where: tuple[Statement, ...], kind: str, of: str, place: str
) -> None:
    if not any(isinstance(s, Sync) and s.kind == kind and s.of == of for s in where):
        what = f"sync {kind} {of}".strip()
        raise KernelError(f"kernel {kernel.name}: {one}: no `{what}` {place}")


def _known(kernel: TileKernel, one: Sync, rings: set[str]) -> None:
    """Of a ring, of an operation, or of nothing."""
    if one.of and one.of not in rings and one.of not in (FIRST_GROUP, EXCHANGED):
        try:
            kernel.operation(one.of)
        except KernelError:
            raise KernelError(f"kernel {kernel.name}: {one}: neither ring nor operation") from None


def _allocated(kernel: TileKernel, one: Alloc, behind: tuple[Statement, ...]) -> None:
    done = [inside for inside in walk(behind) if isinstance(inside, Do)]
    for name in one.names:
        operations = (kernel.operation(do.operation) for do in done)
        used = (name in (*one.reads, *one.writes, *one.takes) for one in operations)
        if not any(used):
            raise KernelError(f"kernel {kernel.name}: registers {name}: nothing uses them")
