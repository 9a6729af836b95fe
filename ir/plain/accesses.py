"""What the statements of a plain kernel read and write. Knows no target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ir.plain.code import (
    Accumulate,
    Assign,
    Between,
    Call,
    Claim,
    Combine,
    Convert,
    Element,
    If,
    Let,
    Loop,
    Name,
    Scalar,
    Spread,
    Statement,
    Write,
)


def nested(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The blocks inside a statement."""
    if isinstance(statement, If):
        return statement.body, statement.other
    if isinstance(statement, Loop | Between | Spread):
        return (statement.body,)
    if isinstance(statement, Accumulate):
        return statement.body, statement.keep
    return ()


def scalars_of(statement: Statement) -> tuple[Scalar, ...]:
    """The scalars that a statement itself evaluates, without those of its blocks."""
    if isinstance(statement, Let | Assign):
        return (statement.value,)
    if isinstance(statement, Write | Combine):
        return statement.index, statement.value
    if isinstance(statement, Claim):
        return (statement.index,)
    if isinstance(statement, Between):
        return statement.first, statement.end
    if isinstance(statement, If):
        return (statement.condition,)
    return statement.values if isinstance(statement, Accumulate) else ()


def every(statements: Iterable[Statement]) -> Iterator[Statement]:
    """All statements, those inside others too."""
    for statement in statements:
        yield statement
        for block in nested(statement):
            yield from every(block)


def assigned(statements: Iterable[Statement]) -> frozenset[str]:
    """The variables that get another value than their first, under a condition or in turn."""
    return frozenset(s.name.name for s in every(statements) if isinstance(s, Assign))


def names_in(scalar: Scalar) -> Iterator[Name]:
    """The variables that a scalar reads."""
    if isinstance(scalar, Name):
        yield scalar
    elif isinstance(scalar, Call):
        for arg in scalar.args:
            yield from names_in(arg)
    elif isinstance(scalar, Convert):
        yield from names_in(scalar.arg)
    elif isinstance(scalar, Element):
        yield from names_in(scalar.index)


def arrays_in(scalars: Iterable[Scalar]) -> Iterator[str]:
    """Arrays that scalars read."""
    for scalar in scalars:
        if isinstance(scalar, Element):
            yield scalar.array
            yield from arrays_in((scalar.index,))
        elif isinstance(scalar, Call):
            yield from arrays_in(scalar.args)
        elif isinstance(scalar, Convert):
            yield from arrays_in((scalar.arg,))


def read(statements: Iterable[Statement]) -> frozenset[str]:
    """Arrays that statements read anywhere."""
    return frozenset(a for s in every(statements) for a in arrays_in(scalars_of(s)))


def written(statements: Iterable[Statement]) -> frozenset[str]:
    """Arrays that statements write anywhere."""
    return frozenset(s.array for s in every(statements) if isinstance(s, Write | Combine | Claim))
