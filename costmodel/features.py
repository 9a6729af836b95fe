"""Numbers that a model sees of schedules, vectorised over index matrices.

`featurise` serves a model of one space: its decisions, their pairwise products, the traits.
`traits` mean the same for every space of a target, so what is learnt from them carries over.
Knows no operator and no target.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import combinations

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
    columns = space.columns(matrix)
    parts = [_decision_columns(decision, columns) for decision in _choices(space)]
    parts.append(_products(space, columns))
    if space.features is not None:
        parts.append(np.asarray(space.features(columns)[1], dtype=np.float32))
    return np.concatenate(parts, axis=1, dtype=np.float32)


def feature_names(space: Space) -> tuple[str, ...]:
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


# -- decisions by group, whatever they are called

_GROUP_TRAITS = ("choices", "size", "place", "least", "most")


def _group_columns(space: Space, columns: Columns, group: str) -> FloatMatrix:
    """Of the decisions of a group: how many, log2 of their ordered values, where they stand in
    their domains on average (0 to 1), and the shares at the lower and at the upper end."""
    out = np.zeros((columns.rows, len(_GROUP_TRAITS)), dtype=np.float32)
    chosen = [decision for decision in _choices(space) if decision.group == group]
    out[:, 0] = len(chosen)
    ordered = [decision for decision in chosen if decision.ordered]
    for decision in ordered:
        last = len(decision.domain) - 1
        codes = columns.codes(decision.name)
        out[:, 1] += _log(columns[decision.name])
        out[:, 2] += codes / last
        out[:, 3] += codes == 0
        out[:, 4] += codes == last
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


def _products(space: Space, columns: Columns) -> FloatMatrix:
    """log2 of the products, as sums of logs."""
    pairs = _pairs(space)
    needed = {decision.name for pair in pairs for decision in pair}
    logs = {name: _log(columns[name]) for name in needed}
    out = np.empty((columns.rows, len(pairs)), dtype=np.float32)
    for number, (left, right) in enumerate(pairs):
        np.add(logs[left.name], logs[right.name], out=out[:, number])
    return out


def _decision_names(decision: Decision) -> tuple[str, ...]:
    if decision.numeric or len(decision.domain) > ONE_HOT:
        return (decision.name,)
    return tuple(f"{decision.name}={value}" for value in decision.domain)


def _decision_columns(decision: Decision, columns: Columns) -> FloatMatrix:
    if decision.numeric:
        return _log(columns[decision.name])[:, None]
    codes = columns.codes(decision.name)
    if len(decision.domain) > ONE_HOT:
        return codes.astype(np.float32)[:, None]
    return np.asarray(codes[:, None] == np.arange(len(decision.domain)), dtype=np.float32)


def _log(values: NDArray[np.int64]) -> NDArray[np.float32]:
    """Signed log2(1 + |x|)."""
    numbers = values.astype(np.float32)
    return np.asarray(np.sign(numbers) * np.log2(1 + np.abs(numbers)), dtype=np.float32)
