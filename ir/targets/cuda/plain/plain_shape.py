"""Which arrays of a plain kernel threads could meet in, and which folds a group can share.

Knows no text and no schedule.
"""

from __future__ import annotations

from collections.abc import Iterable

from ir.plain.accesses import every, nested, read, scalars_of, written
from ir.plain.code import (
    THREAD,
    Accumulate,
    Assign,
    Between,
    Claim,
    Combine,
    If,
    Let,
    Loop,
    Name,
    Number,
    PlainKernel,
    Spread,
    Statement,
    Write,
)
from ir.plain.strides import elements

_MOST_REGISTERS, _MOST_HELD = 128, 512  # elements of an array of registers, and of all of them
SHORT = 64  # iterations up to which a fold is not worth a group's meetings


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


def loops_of_registers(kernel: PlainKernel) -> frozenset[int]:
    """The loops (by identity) that are written out, so that a thread's arrays are registers: those
    of arrays whose elements are only ever named by such a loop, or by a number."""
    loops = {
        s.variable.name: s
        for s in every(kernel.body)
        if isinstance(s, Loop | Accumulate) and s.extent <= _MOST_REGISTERS
        and not any(isinstance(t, Loop | Accumulate | Between | Spread)
                    for block in nested(s) for t in every(block))
    }  # fmt: skip
    sizes = {a.name: a.size for a in kernel.arrays if a.place == THREAD}
    held = {name for name, size in sizes.items() if size <= _MOST_REGISTERS}
    used = set[str]()
    for s in every(kernel.body):
        found = [(e.array, e.index) for e in elements(scalars_of(s))]
        found += [(s.array, s.index)] if isinstance(s, Write | Combine | Claim) else []
        for array, index in found:
            if array in held and isinstance(index, Name) and index.name in loops:
                used.add(index.name)
            elif not isinstance(index, Number):
                held.discard(array)
    if not held or sum(sizes[name] for name in held) > _MOST_HELD:
        return frozenset()
    return frozenset(id(loops[name]) for name in used)


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
