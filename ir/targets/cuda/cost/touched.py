"""How much of its tensors a plain kernel touches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ir.plain.accesses import nested, scalars_of
from ir.plain.code import (
    Accumulate,
    Between,
    Combine,
    If,
    Loop,
    PlainKernel,
    Spread,
    Statement,
    Write,
)
from ir.plain.strides import elements, extent_of
from ir.targets.cuda.space.gathers import SECTOR
from ir.targets.cuda.space.plain_cuts import spec_bytes


def touched_bytes(kernel: PlainKernel, points: int) -> float:
    """Of tensors that so many points read and write: of one of which they have a few places, the
    sectors of these."""
    touches = _touches(kernel.body, frozenset(spec.name for spec in kernel.tensors))
    return sum(
        min(spec_bytes(spec), SECTOR * points * touches.get(spec.name, 0.0))
        for spec in kernel.tensors
    )


def _touches(statements: Iterable[Statement], tensors: frozenset[str]) -> dict[str, float]:
    """How often a point reads or writes each tensor."""
    found: dict[str, float] = {}
    for s, often in repeated(statements):
        here = [e.array for e in elements(scalars_of(s))]
        here += [s.array] if isinstance(s, Write | Combine) else []
        for name in tensors.intersection(here):
            found[name] = found.get(name, 0.0) + often * here.count(name)
    return found


def repeated(
    statements: Iterable[Statement], sometimes: bool = False, often: float = 1.0
) -> Iterator[tuple[Statement, float]]:
    """All statements, and how often a point comes to each; if `sometimes`, to those of a branch as
    often as it is taken."""
    for s in statements:
        yield s, often
        times = often
        if isinstance(s, Loop | Between | Accumulate | Spread):
            times *= extent_of(s)
        elif sometimes and isinstance(s, If):
            times *= s.often
        for block in nested(s):
            yield from repeated(block, sometimes, times)
