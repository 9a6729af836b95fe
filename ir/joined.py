"""Spaces side by side as one: that of a program whose phases each have decisions of their own.

Names begin with what tells the phases apart. Knows no target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.columns import Columns, Decision
from ir.schedule import Schedule, Value
from ir.space import Constraint, Features, Space


@dataclass(frozen=True)
class Joined:
    """Spaces of one target, and the prefix of each one's names."""

    spaces: tuple[Space, ...]
    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, spaces: Sequence[Space]) -> Joined:
        return cls(tuple(spaces), prefixes(len(spaces)))

    def space(self, features: Callable[[Columns], Features] | None) -> Space:
        """The space of all decisions; seeds are joined one by one, shorter lists repeated."""
        if self.prefixes == ("",):
            return self.spaces[0]
        pairs = tuple(zip(self.spaces, self.prefixes, strict=True))
        decisions = (_renamed(d, p) for space, p in pairs for d in space.decisions)
        rules = (_within(rule, p) for space, p in pairs for rule in space.constraints)
        target = self.spaces[0].target
        return Space(
            target, tuple(decisions), tuple(rules), self._seeds(), features, meaning=self._meaning
        )

    def _seeds(self) -> tuple[dict[str, Value], ...]:
        lists = [space.seeds or ({},) for space in self.spaces]
        return tuple(
            {
                prefix + name: value
                for seeds, prefix in zip(lists, self.prefixes, strict=True)
                for name, value in seeds[number % len(seeds)].items()
            }
            for number in range(max(map(len, lists)))
        )

    def _meaning(self, columns: Columns) -> NDArray[np.int32]:
        found = []
        for space, prefix in zip(self.spaces, self.prefixes, strict=True):
            own = columns.part(prefix)
            if space.meaning is not None:
                found.append(space.meaning(own))
            else:
                codes = [own.codes(name) for name in space.names]
                found += [np.asarray(code, np.int32)[:, None] for code in codes]
        return np.concatenate(found, axis=1)


def prefixes(count: int) -> tuple[str, ...]:
    """`p0.`, `p1.`, ...; nothing where there is one space, whose names stay as they are."""
    return tuple(f"p{number}." if count > 1 else "" for number in range(count))


def part_of(schedule: Schedule, prefix: str) -> Schedule:
    """What a schedule says of one of the spaces, by that space's own names."""
    return (
        Schedule.of(schedule.target, own_values(schedule.as_dict(), prefix)) if prefix else schedule
    )


def own_values(values: Mapping[str, Value], prefix: str) -> dict[str, Value]:
    """The values whose names begin with a prefix, by what follows it."""
    size = len(prefix)
    return {name[size:]: value for name, value in values.items() if name.startswith(prefix)}


def _renamed(decision: Decision, prefix: str) -> Decision:
    when = decision.when and (prefix + decision.when[0], decision.when[1])
    owner = prefix + decision.owner
    return replace(decision, name=prefix + decision.name, owner=owner, when=when)


def _within(rule: Constraint, prefix: str) -> Constraint:
    return within(rule, prefix, rule.when and (prefix + rule.when[0], rule.when[1]))


def within(rule: Constraint, prefix: str, when: tuple[str, Value] | None) -> Constraint:
    """The constraint on names with a prefix, in force `when` a decision has a value."""

    def check(columns: Columns) -> Any:
        return rule.check(columns.part(prefix))

    def explain(values: Mapping[str, Value]) -> str:
        return rule.explain(own_values(values, prefix))

    reads = tuple(prefix + name for name in rule.reads)
    return Constraint(prefix + rule.name, rule.needs, check, explain, reads, when)
