"""Spaces of which a schedule chooses one: of equal programs, or of places where values live.

A decision stands before all others and says which one; those of each are in force with it alone.
The first one's keep their names, so that a schedule from before there was a choice stays one; those
of the others begin with the name of theirs. Knows no target.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ir.columns import Columns, Decision, Matrix
from ir.errors import UsageError
from ir.joined import own_values, within
from ir.schedule import Schedule, Value
from ir.space import Constraint, Estimates, Features, Space

GROUP = "tensorize"  # it says what computes
FORM = "form"
RESIDENCE = "residence"
ROWS = "rows"
REASONS = {
    FORM: "which of several equal programs is computed",
    RESIDENCE: "what is stored, and what computed again where it is used",
    ROWS: "whether all goes through one phase after the other, or a stretch at a time through all",
}


@dataclass(frozen=True)
class Alternatives:
    """Spaces of one target by the values of the decision `name`; `owner` is what owns that.

    `best`: the value whose seeds come first, if it is not the first one.
    """

    name: str
    spaces: Mapping[str, Space]
    owner: str
    best: str | None = None

    @cached_property
    def prefixes(self) -> dict[str, str]:
        """What the names of the decisions of each begin with."""
        return {value: f"{value}." if n else "" for n, value in enumerate(self.spaces)}

    def space(self) -> Space:
        """The space of all; seeds are taken from each in turn."""
        first, *others = self.spaces.values()
        if not others:
            return first
        names = tuple(self.spaces)
        why = REASONS[self.name]
        first_name = names[0]
        choice = Decision(
            self.name, names, GROUP, self.owner, why, first_name, unsaid=first_name, routes=True
        )
        decisions = [choice]
        rules: list[Constraint] = []
        for value, space in self.spaces.items():
            decisions += [self._renamed(value, decision) for decision in space.decisions]
            rules += [
                within(rule, self.prefixes[value], self._when(value, rule.when))
                for rule in space.constraints
            ]
        return Space(
            first.target,
            tuple(decisions),
            tuple(rules),
            self._seeds(),
            self._features if all(s.features for s in self.spaces.values()) else None,
            meaning=self._meaning,
            alternatives=self,
            estimate=self._estimate if all(s.estimate for s in self.spaces.values()) else None,
        )

    def _renamed(self, value: str, decision: Decision) -> Decision:
        prefix = self.prefixes[value]
        return replace(
            decision,
            name=prefix + decision.name,
            owner=prefix + decision.owner,
            when=self._when(value, decision.when),
        )

    def _when(self, value: str, when: tuple[str, Value] | None) -> tuple[str, Value]:
        return (self.name, value) if when is None else (self.prefixes[value] + when[0], when[1])

    def _seeds(self) -> tuple[dict[str, Value], ...]:
        lists = [
            [
                {self.name: value, **{self.prefixes[value] + n: v for n, v in seed.items()}}
                for seed in (space.seeds or ({},))
            ]
            for value, space in sorted(self.spaces.items(), key=lambda one: one[0] != self.best)
        ]
        longest = max(map(len, lists))
        return tuple(one[n] for n in range(longest) for one in lists if n < len(one))

    def each(
        self, space: Space, matrix: Matrix
    ) -> Iterator[tuple[NDArray[np.intp], Space, Matrix]]:
        """Of rows of the whole space: those of each space in it, as rows of that."""
        columns = space.columns(matrix)
        for value, own in self.spaces.items():
            rows = np.flatnonzero(columns.is_(self.name, value))
            if not rows.size:
                continue
            places = [space.place(self.prefixes[value] + name) for name in own.names]
            yield rows, own, matrix[rows][:, places]

    def _parts(self, columns: Columns) -> list[tuple[NDArray[np.intp], Space, Columns]]:
        """The rows of each value that has any, with its own decisions."""
        found = []
        for value, space in self.spaces.items():
            rows = columns.is_(self.name, value)
            if rows.any():
                own = columns.where(rows).part(self.prefixes[value])
                found.append((np.flatnonzero(rows), space, own))
        return found

    def _features(self, columns: Columns) -> Features:
        """Columns by name; one that a value does not have is 0 there."""
        tables = []
        names: dict[str, int] = {}
        for rows, space, own in self._parts(columns):
            assert space.features is not None
            here, values = space.features(own)
            tables.append((rows, here, values))
            for name in here:
                names.setdefault(name, len(names))
        matrix = np.zeros((columns.rows, len(names)), dtype=np.float32)
        for rows, here, values in tables:
            matrix[rows[:, None], np.array([names[name] for name in here])] = values
        return tuple(names), matrix

    def _estimate(self, columns: Columns) -> Estimates:
        found = np.zeros(columns.rows, dtype=np.float32)
        for rows, space, own in self._parts(columns):
            assert space.estimate is not None
            found[rows] = space.estimate(own)
        return found

    def _meaning(self, columns: Columns) -> NDArray[np.int32]:
        """What a row chooses, and behind that its numbers there; as many for every row."""
        found = np.zeros((columns.rows, 1 + self._width), dtype=np.int32)
        found[:, 0] = columns.codes(self.name)
        for rows, space, own in self._parts(columns):
            table = _numbers(space, own)
            found[rows, 1 : 1 + table.shape[1]] = table
        return found

    @cached_property
    def _width(self) -> int:
        spaces = self.spaces.values()
        return max(int(_numbers(one, one.columns(one.blank)).shape[1]) for one in spaces)


def _numbers(space: Space, columns: Columns) -> NDArray[np.int32]:
    if space.meaning is not None:
        return space.meaning(columns)
    return np.stack([columns.codes(name) for name in space.names], axis=1).astype(np.int32)


def chosen(schedule: Schedule, name: str, values: Sequence[str]) -> tuple[str, Schedule]:
    """The value of such a decision, and what a schedule says of the space that it is in force for.

    Raises UsageError for a value that there is none of.
    """
    value = str(schedule.get(name, values[0]))
    if value not in values:
        raise UsageError(f"{name}: {value!r} is not in its domain: {', '.join(values)}")
    given = {own: one for own, one in schedule.as_dict().items() if own != name}
    if value != values[0]:
        return value, Schedule.of(schedule.target, own_values(given, f"{value}."))
    others = tuple(f"{other}." for other in values[1:])
    kept = {own: one for own, one in given.items() if not own.startswith(others)}
    return value, Schedule.of(schedule.target, kept)
