"""Measured schedules as a model sees them: one group of rows for each workload."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.features import TRAFFIC, FloatMatrix, schema_hash
from costmodel.model import CostModel, Settings, Vector
from costmodel.saved import TrainedModel, ideal_seconds, library_versions
from costmodel.shelf import Blocks, OnDisk, Shelf
from ir.errors import UsageError

LEAST_CONFIRMED = 5  # kernels measured again from which the fastest of them counts as the best
RAM = 1_000_000_000  # bytes of features beyond which training leaves them on the disk
TYPICAL = 200.0  # rows of a workload; one with more counts no more in training
PRETRAINED = Settings(
    rounds=220, depth=6, rate=0.07, columns=0.5, rows=0.7, label="both", least=5.0,
    sharpness=6.0, bins=64, ensemble=3, time_rounds=110,
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """One workload: a row of features for each kernel, its median time, NaN where it failed.

    `confirmed` marks the kernels whose times were measured again among the fastest; None if that
    is not known. `trust` is what each kernel weighs in training, 1 for all unless it is given:
    less where nothing but disturbed measurements is known of it.
    """

    operator: str
    workload: str  # its arguments, as text
    target: str
    names: tuple[str, ...]
    features: FloatMatrix | OnDisk
    seconds: Vector
    weight: float = 1.0  # in training: what was measured often says more
    confirmed: NDArray[np.bool_] | None = None
    trust: Vector | None = None
    memory: str = ""  # what operands lay in, where the target has a choice

    @property
    def rows(self) -> FloatMatrix:
        """The features in memory, read anew each time where they lie on the disk."""
        return np.asarray(self.features)

    @cached_property
    def ok(self) -> NDArray[np.bool_]:
        return np.isfinite(self.seconds)

    @cached_property
    def best(self) -> float:
        """The least time that is no stroke of luck: of the confirmed kernels, if there are enough.

        Of hundreds of times measured once the lowest is lower than its kernel deserves.
        """
        sure = self.ok if self.confirmed is None else self.ok & self.confirmed
        return float(self.seconds[sure if sure.sum() >= LEAST_CONFIRMED else self.ok].min())

    @property
    def label(self) -> str:
        return f"{self.operator} {self.workload}"

    @cached_property
    def ideals(self) -> Vector:
        """The least seconds of the program, by row."""
        return ideal_seconds(self.names, self.rows)

    @cached_property
    def traffic(self) -> Vector | None:
        """log2 of the traffic's seconds by the backend's simple model, if it has one."""
        if TRAFFIC not in self.names:
            return None
        return self.features[:, self.names.index(TRAFFIC)].astype(np.float64)


def fit_groups(
    groups: Sequence[Group],
    *,
    settings: Settings | None = None,
    seed: int = 0,
    shelf: Shelf | None = None,
    ram: int = RAM,
) -> CostModel:
    """A model of all heads; raises UsageError where groups differ in schema or nothing is valid.

    Where the groups' features are on a `shelf` and take more than `ram` bytes, they stay there.
    """
    names = groups[0].names if groups else ()
    if any(group.names != names for group in groups):
        raise UsageError("the records are of targets with different features: name one --target")
    if not any(group.ok.sum() >= 2 for group in groups):
        raise UsageError("too few valid trials to learn from: measure some with `tilewright tune`")
    model = CostModel(seed, names=names, settings=settings or PRETRAINED)
    model.fit(
        _features(groups, shelf, ram),
        np.concatenate([group.seconds for group in groups]),
        np.concatenate([group.ok for group in groups]),
        np.repeat(np.arange(len(groups)), [len(group.seconds) for group in groups]),
        np.concatenate([_weights(group) for group in groups]),
        np.concatenate([group.ideals for group in groups]),
    )
    return model


def _features(groups: Sequence[Group], shelf: Shelf | None, ram: int) -> FloatMatrix | Blocks:
    """All rows, in memory or on the shelf."""
    shelved = [group.features for group in groups if isinstance(group.features, OnDisk)]
    large = sum(part.nbytes for part in shelved) > ram
    if shelf is not None and large and len(shelved) == len(groups):
        return Blocks(shelved, shelf)
    return np.concatenate([group.rows for group in groups])


def _weights(group: Group) -> Vector:
    count = len(group.seconds)
    weights = np.full(count, group.weight * min(1.0, TYPICAL / max(1, count)))
    return weights if group.trust is None else weights * group.trust


def train(
    groups: Sequence[Group],
    *,
    settings: Settings | None = None,
    seed: int = 0,
    shelf: Shelf | None = None,
    ram: int = RAM,
) -> TrainedModel:
    """A model from all groups of one target, with what it was trained on; as `fit_groups`."""
    model = fit_groups(groups, settings=settings, seed=seed, shelf=shelf, ram=ram)
    return TrainedModel(groups[0].target, model, described(groups), library_versions())


def described(groups: Sequence[Group]) -> dict[str, Any]:
    """What a model keeps of its data; equal fingerprints mean equal features and times."""
    digest = hashlib.sha256()
    for group in sorted(groups, key=lambda g: g.label):
        digest.update(group.label.encode())
        digest.update(np.ascontiguousarray(group.features).tobytes())
        digest.update(np.ascontiguousarray(group.seconds).tobytes())
        if group.trust is not None and (group.trust != 1.0).any():
            digest.update(np.ascontiguousarray(group.trust).tobytes())
    names = groups[0].names
    return {
        "fingerprint": digest.hexdigest(),
        "schema": schema_hash(groups[0].target, names),
        "trials": int(sum(len(group.seconds) for group in groups)),
        "valid": int(sum(group.ok.sum() for group in groups)),
        "workloads": len(groups),
        "operators": sorted({group.operator for group in groups}),
        "memories": dict(sorted(Counter(g.memory for g in groups if g.memory).items())),
    }
