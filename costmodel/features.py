"""Numbers that a model sees of schedules, vectorised over index matrices.

`featurise` serves a model of one space: its decisions, their pairwise products, the traits.
`traits` mean the same for every space of a target, so what is learnt from them carries over.
Knows no operator and no target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import combinations
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ir.columns import GROUPS
from ir.space import Columns, Decision, Matrix, Space

FloatMatrix = NDArray[np.float32]

ONE_HOT = 16  # string domains up to this size get a column for each value
PAIRS = 66  # products of ordered decisions are added up to this many
IDEAL = "seconds.ideal"  # a backend's feature: log2 of the least time that the program takes
TRAFFIC = "seconds.traffic"  # and of the time to move what the schedule moves, a simple model


def featurise(space: Space, matrix: Matrix) -> FloatMatrix:
    """One row of features for each row of `matrix`; columns as `feature_names` lists them."""
    plan = _plan_of(space)
    own = plan.table[np.arange(len(plan.sources))[:, None], matrix.T[plan.sources]].T
    parts = [own, own[:, plan.left] + own[:, plan.right]]  # products, as sums of logs
    if space.features is not None:
        parts.append(np.asarray(space.features(space.columns(matrix))[1], dtype=np.float32))
    return np.concatenate(parts, axis=1, dtype=np.float32)


def feature_names(space: Space) -> tuple[str, ...]:
    """The columns of `featurise`, in their order."""
    names: list[str] = []
    for decision in _choices(space):
        names.extend(_decision_names(decision))
    names.extend(f"{left.name}*{right.name}" for left, right in _pairs(space))
    return (*names, *_backend_names(space))


def traits(space: Space, matrix: Matrix) -> FloatMatrix:
    """Features with one schema for all spaces of a target; columns as `trait_names` lists them.

    A row of a space that chooses among others has those of the one that it chooses.
    """
    if space.alternatives is not None:
        found = np.empty((len(matrix), len(trait_names(space))), dtype=np.float32)
        for rows, own, part in space.alternatives.each(space, matrix):
            found[rows] = traits(own, part)
        return found
    columns = space.columns(matrix)
    parts = [_group_columns(space, columns, group) for group in GROUPS]
    if space.features is not None:
        parts.append(np.asarray(space.features(columns)[1], dtype=np.float32))
    return np.concatenate(parts, axis=1, dtype=np.float32)


def trait_names(space: Space) -> tuple[str, ...]:
    """The columns of `traits`: the same for every program of a target."""
    names = [f"{group}.{what}" for group in GROUPS for what in _GROUP_TRAITS]
    return (*names, *_backend_names(space))


def schema_hash(target: str, names: Sequence[str]) -> str:
    """What a model and the features given to it must agree on."""
    return hashlib.sha256("\n".join((target, *names)).encode()).hexdigest()[:16]


def _backend_names(space: Space) -> tuple[str, ...]:
    if space.features is None:
        return ()
    probe = np.zeros((1, len(space.decisions)), dtype=np.int16)
    return space.features(space.columns(probe))[0]


# -- features of one decision each, looked up by its index


class _Plan:
    """Tables of what depends on one decision: a number for each index into its domain."""

    def __init__(self, space: Space) -> None:
        choices = _choices(space)
        places = {decision.name: place for place, decision in enumerate(space.decisions)}
        found = [(places[d.name], row) for d in choices for row in _decision_rows(d)]
        self.sources = np.array([place for place, _ in found], dtype=np.intp)
        widest = max((len(row) for _, row in found), default=0)
        self.table = np.zeros((len(found), widest), dtype=np.float32)  # [feature, index]
        for number, (_, row) in enumerate(found):
            self.table[number, : len(row)] = row
        first = {place: number for number, (place, _) in reversed(tuple(enumerate(found)))}
        pairs = [(first[places[one.name]], first[places[two.name]]) for one, two in _pairs(space)]
        self.left, self.right = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
        self.groups = {group: self._group(choices, places, group) for group in GROUPS}

    @staticmethod
    def _group(
        choices: Sequence[Decision], places: Mapping[str, int], group: str
    ) -> tuple[int, list[tuple[int, NDArray[np.float64]]]]:
        """How many decisions a group has, and the tables of those that are ordered."""
        chosen = [decision for decision in choices if decision.group == group]
        return len(chosen), [(places[d.name], _group_table(d)) for d in chosen if d.ordered]


def _group_table(decision: Decision) -> NDArray[np.float64]:
    """What `_GROUP_TRAITS` adds up for an ordered decision: [index into its domain, trait]."""
    codes = np.arange(len(decision.domain))
    last = len(codes) - 1
    size = _log(np.array(decision.domain, dtype=np.int64))
    return np.stack([size, codes / last, codes == 0, codes == last], axis=1).astype(np.float64)


_plans: WeakKeyDictionary[Space, _Plan] = WeakKeyDictionary()


def _plan_of(space: Space) -> _Plan:
    if space not in _plans:
        _plans[space] = _Plan(space)
    return _plans[space]


# -- decisions by group, whatever they are called

_GROUP_TRAITS = ("choices", "size", "place", "least", "most")


def _group_columns(space: Space, columns: Columns, group: str) -> FloatMatrix:
    """Of the decisions of a group: how many, log2 of their ordered values, where they stand in
    their domains on average (0 to 1), and the shares at the lower and at the upper end."""
    out = np.zeros((columns.rows, len(_GROUP_TRAITS)), dtype=np.float32)
    out[:, 0], ordered = _plan_of(space).groups[group]
    for place, table in ordered:
        out[:, 1:] += table[columns.matrix[:, place]]
    out[:, 1:] /= max(1, len(ordered))
    return out


# -- decisions by name


def _choices(space: Space) -> tuple[Decision, ...]:
    """Decisions with something to choose. Pins do not count: the schema outlives them."""
    return tuple(decision for decision in space.decisions if len(decision.domain) > 1)


def _pairs(space: Space) -> tuple[tuple[Decision, Decision], ...]:
    """Pairs of ordered decisions whose product may mean a footprint or a count."""
    ordered = [d for d in _choices(space) if d.ordered and min(map(int, d.domain)) >= 0]
    tiles = [d for d in ordered if d.group == "tile"]
    for candidates in (ordered, tiles):
        pairs = tuple(combinations(candidates, 2))
        if len(pairs) <= PAIRS:
            return pairs
    return ()


def _decision_names(decision: Decision) -> tuple[str, ...]:
    if decision.numeric or len(decision.domain) > ONE_HOT:
        return (decision.name,)
    return tuple(f"{decision.name}={value}" for value in decision.domain)


def _decision_rows(decision: Decision) -> list[NDArray[np.float32]]:
    """What `_decision_names` lists, by the index into the domain."""
    count = len(decision.domain)
    if decision.numeric:
        return [_log(np.array(decision.domain, dtype=np.int64))]
    if count > ONE_HOT:
        return [np.arange(count, dtype=np.float32)]
    return list(np.eye(count, dtype=np.float32))


def _log(values: NDArray[np.int64]) -> NDArray[np.float32]:
    """Signed log2(1 + |x|)."""
    numbers = values.astype(np.float32)
    return np.asarray(np.sign(numbers) * np.log2(1 + np.abs(numbers)), dtype=np.float32)
