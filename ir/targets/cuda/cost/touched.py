"""How much of its tensors a plain kernel touches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ir.dtypes import dtype_of
from ir.plain.accesses import arrays_in, every, nested, scalars_of
from ir.plain.code import (
    Accumulate,
    Between,
    Combine,
    If,
    Let,
    Loop,
    PlainKernel,
    Spread,
    Statement,
    Write,
)
from ir.plain.strides import Walk, elements, extent_of
from ir.targets.cuda.space.gathers import SECTOR
from ir.targets.cuda.space.plain_cuts import spec_bytes

FAR_BYTES = 216.0  # of memory's time that one place takes which L2 has not, as measured on an H200


def touched_bytes(kernel: PlainKernel, points: int, near: int) -> float:
    """Of tensors that so many points read and write: of one of which they have a few places, the
    sectors of these; of one that is larger than `near`, each place that is read and written
    again."""
    names = frozenset(spec.name for spec in kernel.tensors)
    touches, again = _touches(kernel.body, names), _written_again(kernel, names)
    total = 0.0
    for spec in kernel.tensors:
        far = again.get(spec.name, 0.0) if spec_bytes(spec) > near else 0.0
        once = min(spec_bytes(spec), SECTOR * points * touches.get(spec.name, 0.0))
        total += max(once, FAR_BYTES * points * far)
    return total


def _written_again(kernel: PlainKernel, tensors: frozenset[str]) -> dict[str, float]:
    """How often a point makes an element of each tensor of what that was, of elements that do not
    lie beside each other."""
    found: dict[str, float] = {}
    lets = {s.name.name: s.value for s in every(kernel.body) if isinstance(s, Let)}
    steps = [s for s in every(kernel.body) if isinstance(s, Loop | Between | Accumulate)]
    moved = [*(name for name, _ in kernel.points), *(s.variable for s in steps)]
    spread = (s for s in every(kernel.body) if isinstance(s, Spread))
    moved += [name for s in spread for name, _ in s.variables]
    for s, often in repeated(kernel.body):
        if not isinstance(s, Write) or s.array not in tensors:
            continue
        beside = (Walk(name.name, lets).stride(s.index) == 1 for name in moved)
        if s.array in arrays_in((s.value,)) and not any(beside):
            found[s.array] = found.get(s.array, 0.0) + often
    return found


def written_apart(kernel: PlainKernel) -> float:
    """How many elements a point's steps write one by one where those of the next point lie in other
    sectors: parts of rows, which memory takes one at a time."""
    sizes = {spec.name: dtype_of(spec.dtype).bytes for spec in kernel.tensors}
    lets = {s.name.name: s.value for s in every(kernel.body) if isinstance(s, Let)}
    found = 0.0
    for s, often in repeated(kernel.body) if kernel.points else ():
        if isinstance(s, Write) and s.array in sizes and often > 1:
            stride = Walk(kernel.points[-1][0].name, lets).stride(s.index)
            if stride is not None and abs(stride) * sizes[s.array] >= SECTOR:
                found += often
    return found


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
