"""Long sums of one result as folds along their outermost loop, which threads can share.

A `Spread` of one point is one thread's work: a norm of a grid, one after another. As a fold each
thread has some rows of it. Knows no target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from ir.merges import NAMED, merge_of
from ir.plain.block import Names
from ir.plain.code import (
    Accumulate,
    Let,
    Loop,
    Name,
    Number,
    PlainKernel,
    Spread,
    Statement,
)
from ir.plain.jammed import renamed
from ir.plain.parted_sums import SumLoops, names_in, sum_of, with_spreads
from ir.plain.scalars import plus, times

_RUN = 4096  # iterations of a single loop that stay together


def with_shared_sums(kernel: PlainKernel) -> PlainKernel:
    """The kernel with its long sums of one result as folds."""
    if not kernel.cooperative:
        return kernel
    return replace(kernel, body=tuple(with_spreads(kernel.body, _Maker(kernel).spread)))


class _Maker:
    def __init__(self, kernel: PlainKernel) -> None:
        self.names = Names(names_in(kernel))

    def spread(self, spread: Spread) -> Iterator[Statement]:
        found = sum_of(spread)
        if prod(extent for _, extent in spread.variables) > 1 or found is None:
            yield spread
            return
        loops = self._rows(found)
        if len(found.sums) > 1 or loops is None:
            yield spread
            return
        (outer, extent), inner = loops
        (sum_,) = found.sums
        own = Name(self.names.fresh("own"), sum_.dtype)
        zero = Number(0.0 if sum_.dtype[0] == "f" else 0, sum_.dtype)
        body = [renamed(s, {sum_.name: own.name}) for s in inner]
        yield from found.ahead
        yield Accumulate(
            outer, extent, False, (Let(own, zero), *body), (own,), (sum_,), merge_of(NAMED["sum"])
        )
        if found.behind:
            yield from self.spread(Spread((), found.behind))

    def _rows(self, found: SumLoops) -> tuple[tuple[Name, int], tuple[Statement, ...]] | None:
        """The outermost loop and what it repeats; of a single one, runs of its iterations."""
        first, *rest = found.loops
        body: tuple[Statement, ...] = found.body
        if rest:
            for name, extent in reversed(rest):
                body = (Loop(name, extent, body),)
            return first, body
        name, extent = first
        run = max(n for n in range(1, min(_RUN, extent) + 1) if extent % n == 0)
        if run * run < extent:
            return None
        outer, own = Name(self.names.fresh("run")), Name(self.names.fresh("at"))
        let = Let(name, plus(times(outer, run), own))
        return (outer, extent // run), (Loop(own, run, (let, *body)),)
