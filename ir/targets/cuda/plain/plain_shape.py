"""Which arrays of a plain kernel threads could meet in, and which folds a group can share.

Knows no text and no schedule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ir.plain.accesses import arrays_in, every, nested, read, written
from ir.plain.code import (
    THREAD,
    Accumulate,
    Assign,
    Between,
    Claim,
    If,
    Let,
    Loop,
    PlainKernel,
    Spread,
    Statement,
    Write,
)
from ir.targets.cuda.plain.plain_stream import names_in

SHORT = 64  # iterations up to which a fold is not worth a group's meetings


def changing(statements: Sequence[Statement]) -> frozenset[str]:
    """Arrays of which the order of accesses shows: written at several places, or read too."""
    writes = Counter(s.array for s in every(statements) if isinstance(s, Write))
    writes.update(2 * [s.array for s in every(statements) if isinstance(s, Claim)])
    several = {array for array, count in writes.items() if count > 1}
    return frozenset(several | (set(writes) & read(statements)))


def _assigns_outside(statements: Iterable[Statement]) -> bool:
    """Whether a variable that is not defined here is changed."""
    found = tuple(every(statements))
    own = {s.name.name for s in found if isinstance(s, Let | Claim)}
    own |= {state.name for s in found if isinstance(s, Accumulate) for state in s.states}
    return any(isinstance(s, Assign) and s.name.name not in own for s in found)


def can_share(kernel: PlainKernel, fold: Accumulate) -> bool:
    """Whether threads may take iterations of a fold each: nothing but its states goes on from one
    to the next."""
    inside = (*fold.body, *fold.keep)
    own = {array.name for array in kernel.arrays if array.place == THREAD}
    return not (
        written(fold.body)
        or written(inside) & own
        or written(fold.keep) & read(inside)
        or _assigns_outside(fold.body)
        or _assigns_outside(fold.keep)
        or any(isinstance(s, Spread) for s in every(inside))
    )


def in_groups(spread: Spread) -> bool:
    """Whether a thread may compute what several iterations write before it writes any of it:
    nothing but writes at their own places comes at the end, and nothing before them."""
    body, own = tuple(spread.body), {name.name for name, _ in spread.variables}
    writes = tuple(s for s in body if isinstance(s, Write))
    before = body[: len(body) - len(writes)]
    lets = {s.name.name for s in every(before) if isinstance(s, Let)}
    plain = all(isinstance(s, Let | Assign | If) for s in every(before))
    places = {name.name for write in writes for name in names_in(write.index)}
    arrays = {array for write in writes for array in arrays_in((write.index,))}
    return (
        bool(writes)
        and bool(own)
        and body[len(before) :] == writes
        and plain
        and not (arrays or places & lets)
        and not _assigns_outside(before)
    )


def folds_of(kernel: PlainKernel) -> tuple[Accumulate, ...]:
    """The folds that a group would share: those that all of its threads come to together."""
    found = []

    def look(statements: tuple[Statement, ...]) -> None:
        for statement in statements:
            if isinstance(statement, Accumulate):
                if statement.extent > SHORT and can_share(kernel, statement):
                    found.append(statement)
            elif isinstance(statement, If | Loop | Between):
                for block in nested(statement):
                    look(block)

    look(kernel.body)
    return tuple(found)
