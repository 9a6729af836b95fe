"""The space of configurations that another tuner recorded: its rows are all there is.

Made of configurations alone, so it has no features, no seeds, and one constraint: to be recorded.
Knows no file and no measurement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.columns import MAX_DOMAIN, Column, Columns, Decision, Mask, Matrix
from ir.drawing import LOT
from ir.errors import UsageError
from ir.schedule import Schedule, Value
from ir.space import Constraint, Space
from records.canonical import canonical_json

AT_ONCE = 32  # rows that are compared with all recorded ones at the same time
THRIFTY = 512  # rows that a thrifty repair mends
_WORD = 1 << 62  # integers below it fit a column


@dataclass(frozen=True, eq=False)
class RecordedSpace(Space):
    """`known` holds every recorded row once. Draws are exact: each recorded row is as likely."""

    known: Matrix = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int16))

    @cached_property
    def _within(self) -> Matrix:
        """The recorded rows that have what is pinned."""
        rows = self.known
        for column, index in self.shape.pins:
            rows = rows[rows[:, column] == index]
        if not len(rows):
            pins = ", ".join(f"{name}={value}" for name, value in self.pinned.items())
            raise UsageError(f"none of {len(self.known):,} recorded configurations has {pins}")
        return rows

    def sample(
        self, rng: np.random.Generator, rows: int, lot: int = LOT, most: int | None = None
    ) -> Matrix:
        """`rows` recorded rows, drawn independently."""
        return self._within[rng.integers(len(self._within), size=rows)]

    def exhaustive(self, chunk: int = 65_536) -> Iterator[Matrix]:
        """Every recorded row, in chunks, in the order of their values."""
        for start in range(0, len(self._within), chunk):
            yield self._within[start : start + chunk]

    def repair(self, rng: np.random.Generator, matrix: Matrix, thrift: float = 0.0) -> Matrix:
        """Puts a recorded row that differs least, by chance among several, in the place of others.

        With `thrift` of the first rows only; the others may stay as they are.
        """
        result = matrix.copy()
        broken = np.flatnonzero(~self.legal(result))
        for start in range(0, len(broken[:THRIFTY] if thrift else broken), AT_ONCE):
            rows = broken[start : start + AT_ONCE]
            apart = (result[rows][:, None, :] != self._within[None, :, :]).sum(axis=2)
            ties = rng.random(apart.shape, dtype=np.float32)
            result[rows] = self._within[(apart + ties).argmin(axis=1)]
        return result


def recorded_space(target: str, configurations: Sequence[Mapping[str, Any]]) -> RecordedSpace:
    """The space that configurations of the same parameters span; raises UsageError."""
    names = tuple(configurations[0]) if configurations else ()
    if not names:
        raise UsageError("no configuration is recorded, so there is nothing to search")
    for number, configuration in enumerate(configurations, start=1):
        if set(configuration) != set(names):
            odd = sorted(set(configuration) ^ set(names))[0]
            raise UsageError(
                f"result {number}: parameter {odd!r} is not of every configuration, so they are "
                "not of one space"
            )
    columns = {name: _texts([c[name] for c in configurations]) for name in names}
    decisions = tuple(_decision(name, column) for name, column in columns.items())
    codes = [_codes(d, columns[d.name]) for d in decisions]
    rows = np.unique(np.stack(codes, axis=1).astype(np.int16), axis=0)
    return RecordedSpace(target, decisions, (_to_be_recorded(decisions, rows),), known=rows)


def schedules_of(
    space: RecordedSpace, configurations: Sequence[Mapping[str, Any]]
) -> list[Schedule]:
    """Configurations as schedules of the space made of them."""
    columns = [_texts([c[name] for c in configurations]) for name in space.names]
    return [
        Schedule(space.target, tuple(zip(space.names, values, strict=True)))
        for values in zip(*columns, strict=True)
    ]


def _texts(values: Sequence[Any]) -> list[Value]:
    """Values of one parameter as decisions take them: whole numbers, truth values, or texts.

    Texts of whole numbers are these; other numbers, and what is of several kinds, are texts.
    """
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return list(values)
    if kinds == {str} and all(_is_whole(value) for value in values):
        return [int(value) for value in values]
    if kinds <= {int, float} and all(value == int(value) for value in values):
        whole = [int(value) for value in values]
        if all(abs(value) < _WORD for value in whole):
            return list(whole)
    return [value if isinstance(value, str) else canonical_json(value) for value in values]


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isdecimal() and digits.isascii() and len(digits) < 18 and str(int(text)) == text


def _decision(name: str, values: Sequence[Value]) -> Decision:
    """In the order of numbers, also of those that stand as texts."""
    distinct = set(values)
    if len(distinct) > MAX_DOMAIN:
        raise UsageError(f"{name}: {len(distinct):,} values are recorded; {MAX_DOMAIN:,} at most")
    domain = tuple(sorted(distinct, key=_order))
    return Decision(name, domain, "tile", "the kernel", "a parameter that was recorded")


def _order(value: Value) -> tuple[bool, float, str]:
    try:
        return (False, float(value), str(value))
    except (ValueError, OverflowError):
        return (True, 0.0, str(value))


def _codes(decision: Decision, values: Sequence[Value]) -> Column:
    places = {value: place for place, value in enumerate(decision.domain)}
    return np.array([places[value] for value in values], dtype=np.int64)


def _to_be_recorded(decisions: Sequence[Decision], rows: Matrix) -> Constraint:
    """Membership by a hash of rows, then compared with the row that has it."""
    factors = np.random.default_rng(0).integers(1, 1 << 63, len(decisions), dtype=np.uint64)
    hashes = _hashed(rows, factors)
    order = np.argsort(hashes)
    ranked, sorted_rows = hashes[order], rows[order]

    def check(columns: Columns) -> Mask:
        matrix = columns.matrix
        place = np.searchsorted(ranked, _hashed(matrix, factors)).clip(max=len(ranked) - 1)
        return np.asarray((sorted_rows[place] == matrix).all(axis=1))

    def explain(values: Mapping[str, Value]) -> str:
        return f"it is none of the {len(rows):,} configurations that were recorded"

    names = tuple(decision.name for decision in decisions)
    return Constraint("recorded", "a configuration that was recorded", check, explain, names)


def _hashed(matrix: Matrix, factors: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return np.asarray((matrix.astype(np.uint64) * factors).sum(axis=1), dtype=np.uint64)
