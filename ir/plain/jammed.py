"""Several iterations of a shared loop as one: statement by statement, a loop once for all of them.

Iterations of a `Spread` do not meet, so that a thread may go through some of them together. What
they read alike is then read once, and their sums go on beside each other (unroll and jam; Callahan,
Carr and Kennedy, 1990). Knows no target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ir.plain.accesses import every
from ir.plain.code import (
    Accumulate,
    Assign,
    If,
    Let,
    Loop,
    Name,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.scalars import rebuilt


def can_jam(spread: Spread) -> bool:
    """Whether iterations can be computed together: all that they write, they write at the end, and
    loops and conditions before that change nothing but variables of their own."""
    body = tuple(spread.body)
    writes = tuple(s for s in body if isinstance(s, Write))
    before = body[: len(body) - len(writes)]
    inner = tuple(every(before))
    own = {s.name.name for s in inner if isinstance(s, Let)}
    own |= {state.name for s in inner if isinstance(s, Accumulate) for state in s.states}
    return (
        bool(writes)
        and bool(spread.variables)
        and body[len(before) :] == writes
        and all(isinstance(s, Let | Assign | If | Loop | Accumulate) for s in inner)
        and all(s.name.name in own for s in inner if isinstance(s, Assign))
    )


def jammed(statements: Sequence[Statement], turns: Sequence[dict[str, str]]) -> list[Statement]:
    """The statements of several iterations, in each of which some variables have other names.

    `turns`: those names, one mapping for each iteration, to which the names of what the statements
    define are added."""
    found: list[Statement] = []
    for s in statements:
        for number, turn in enumerate(turns):
            for name in _defined(s):
                turn.setdefault(name, f"{name} of {number}" if number else name)
        if isinstance(s, Loop):
            found.append(replace(s, body=tuple(jammed(s.body, turns))))
        else:
            found += [renamed(s, turn) for turn in turns]
    return found


def _defined(s: Statement) -> list[str]:
    """Variables that a statement defines for those behind it, and inside."""
    found = [s.name.name] if isinstance(s, Let) else []
    inside = () if isinstance(s, Loop) else tuple(every([s]))
    found += [t.name.name for t in inside if isinstance(t, Let)]
    found += [state.name for t in inside if isinstance(t, Accumulate) for state in t.states]
    return found


def renamed(s: Statement, names: Mapping[str, str]) -> Statement:
    """A statement with other variables."""

    def block(statements: Sequence[Statement]) -> tuple[Statement, ...]:
        return tuple(renamed(inner, names) for inner in statements)

    def name(one: Name) -> Name:
        return replace(one, name=names.get(one.name, one.name))

    if isinstance(s, Let | Assign):
        return replace(s, name=name(s.name), value=scalar(s.value, names))
    if isinstance(s, Write):
        return replace(s, index=scalar(s.index, names), value=scalar(s.value, names))
    if isinstance(s, If):
        condition = scalar(s.condition, names)
        return replace(s, condition=condition, body=block(s.body), other=block(s.other))
    if isinstance(s, Loop):
        return replace(s, variable=name(s.variable), body=block(s.body))
    if isinstance(s, Spread):
        variables = tuple((name(variable), extent) for variable, extent in s.variables)
        return replace(s, variables=variables, body=block(s.body))
    assert isinstance(s, Accumulate)
    return replace(
        s,
        variable=name(s.variable),
        body=block(s.body),
        values=tuple(scalar(value, names) for value in s.values),
        states=tuple(map(name, s.states)),
        keep=block(s.keep),
    )


def scalar(value: Scalar, names: Mapping[str, str]) -> Scalar:
    """A scalar of other variables."""

    def change(one: Scalar) -> Scalar | None:
        return replace(one, name=names.get(one.name, one.name)) if isinstance(one, Name) else None

    return rebuilt(value, change)
