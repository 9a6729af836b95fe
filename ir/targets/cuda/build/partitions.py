"""In which ways a program may be cut into kernels, the best first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ir.program import Program
from ir.targets.cuda.build.cut import cut_program
from ir.targets.cuda.build.products import HELD

Way = Mapping[str, Any]  # arguments of `cut_program`
JOINED: Way = {"joined": True}
CHAINED: Way = {**JOINED, "chained": True}
LONG: Way = {**CHAINED, "held": HELD}
SHARING: Way = {**JOINED, "alone": True, "sharing": True}
ALONE: Way = {"alone": True}
APART: Way = {**JOINED, "held": 0}  # products that others are made of, through memory
ACROSS: Way = {**LONG, "across": True}
EVERYWHERE: Way = {"everywhere": True}


def ways_of(stored: bool, beside: bool, across: bool = False) -> tuple[Way, ...]:
    """Those of a residence: one that has values `stored` has longer sums in one kernel, too, one
    with outputs `beside` others has those in theirs, and one with sums `across` rows those of the
    rows."""
    more: tuple[Way, ...] = ({**LONG, "beside": True},) if beside else (LONG,) if stored else ()
    more = (*((ACROSS,) if across else ()), *more)
    return (*more, CHAINED, JOINED, {}, SHARING, ALONE, APART, EVERYWHERE)


def partitions(
    program: Program, engine: str, taken: frozenset[str], ways: tuple[Way, ...]
) -> Iterator[tuple[Way, tuple[Program, ...]]]:
    """Parts of a program, cut in each of `ways`; ahead of each those with more of what goes through
    memory in one kernel, where that makes fewer."""
    for way in ways:
        parts = cut_program(program, engine=engine, taken=taken, **way)
        if len(parts) > 2:
            fewer = cut_program(program, engine=engine, taken=taken, together=True, **way)
            if len(fewer) < len(parts):
                yield way, fewer
        yield way, parts
