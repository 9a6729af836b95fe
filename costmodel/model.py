"""The learned cost model: one head ranks times within a workload, one says what will fail, and
one, if asked for, how long a candidate takes.

XGBoost is imported here alone, and only when a model is fitted or loaded.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from costmodel.shelf import Blocks, paged
from ir.errors import UsageError

if TYPE_CHECKING:
    from xgboost import Booster

Vector = NDArray[np.float64]
MOST_FEATURES, MOST_MEMBERS = 100_000, 1000  # of a model in a file
MIN_ROWS = 8  # successful trials below which a model says nothing


@dataclass(frozen=True, slots=True)
class Settings:
    """How the trees are grown, and how sharply the labels look at the fastest candidates."""

    rounds: int = 120
    depth: int = 3
    rate: float = 0.12
    columns: float = 1.0
    rows: float = 0.9
    label: str = "rank"  # or "ratio", or "both": their mean
    sharpness: float = 4.0  # of ranks
    power: float = 2.0  # of ratios
    least: float = 1.0  # weight of the rows in a leaf
    bins: int = 64
    ensemble: int = 1
    threads: int = 1  # on a busy machine two threads spin on each other for seconds
    validity_rounds: int = 50
    time_rounds: int = 120


def rank_labels(seconds: Vector, groups: NDArray[Any], sharpness: float) -> Vector:
    """exp(-sharpness * rank), rank from 0 (fastest) to 1 within its workload; ties share one."""
    labels = np.empty(len(seconds), dtype=np.float64)
    for here in _members(groups):
        _, order, counts = np.unique(seconds[here], return_inverse=True, return_counts=True)
        first = np.cumsum(counts) - counts
        labels[here] = np.exp(-sharpness * first[order] / max(1, len(here) - 1))
    return labels


def ratio_labels(seconds: Vector, groups: NDArray[Any]) -> Vector:
    """Best time of the workload over each time: 1 for the fastest."""
    labels = np.empty(len(seconds), dtype=np.float64)
    for here in _members(groups):
        labels[here] = seconds[here].min() / seconds[here]
    return labels


def _members(groups: NDArray[Any]) -> list[NDArray[np.intp]]:
    """The rows of each group, in order."""
    order = np.argsort(groups, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(groups[order])) + 1) if len(order) else []


class CostModel:
    """Fitted on measured candidates; `predict` scores new ones, higher being better."""

    def __init__(
        self, seed: int = 0, *, names: Sequence[str] = (), settings: Settings | None = None
    ) -> None:
        self.seed = seed
        self.names = tuple(names)
        self.settings = settings or Settings()
        self._width = 0
        self._rank: tuple[Booster | Late, ...] = ()
        self._validity: Booster | Late | None = None
        self._time: Booster | Late | None = None

    @property
    def ready(self) -> bool:
        return bool(self._rank)

    def fit(
        self,
        features: NDArray[np.float32] | Blocks,
        seconds: NDArray[Any],
        ok: NDArray[Any],
        groups: NDArray[Any] | None = None,
        weights: NDArray[Any] | None = None,
        ideals: NDArray[Any] | None = None,
    ) -> None:
        """Train on rows of which `ok` succeeded in `seconds`; failures train the validity head.

        `groups` names each row's workload: times are compared within one only. With `ideals`
        (the least seconds that each row's program takes) the time head is trained, too. Features
        that are `Blocks` stay on disk, where the trees are grown over pages of them.
        """
        self._width = features.shape[1]
        good = np.asarray(ok, dtype=np.bool_)
        times = np.asarray(seconds, dtype=np.float64)
        owners = np.zeros(len(times), dtype=np.int64) if groups is None else np.asarray(groups)
        scale = np.ones(len(times)) if weights is None else np.asarray(weights, dtype=np.float64)
        if good.sum() >= MIN_ROWS:
            labels = self._labels(times[good], owners[good])
            right = features.only(good) if isinstance(features, Blocks) else features[good]
            self._rank = tuple(
                self._train(right, labels, scale[good], seed=self.seed + member)
                for member in range(self.settings.ensemble)
            )
            if ideals is not None:
                over = np.log2(times[good] / np.asarray(ideals, dtype=np.float64)[good])
                self._time = self._train(
                    right,
                    over,
                    scale[good],
                    seed=self.seed,
                    rounds=self.settings.time_rounds,
                )
        self._validity = None
        if good.any() and not good.all():
            truth = good.astype(np.float64)
            self._validity = self._train(
                features, truth, scale, seed=self.seed, fails=True,
                rounds=self.settings.validity_rounds,
            )  # fmt: skip

    def _labels(self, seconds: Vector, owners: NDArray[Any]) -> Vector:
        """What the trees learn: ranks tell the fastest apart, ratios how far the others are."""
        settings = self.settings
        if settings.label == "rank":
            return rank_labels(seconds, owners, settings.sharpness)
        ratios = np.asarray(ratio_labels(seconds, owners) ** settings.power)
        if settings.label == "ratio":
            return ratios
        return (ratios + rank_labels(seconds, owners, settings.sharpness)) / 2

    def predict(self, features: NDArray[np.float32]) -> Vector:
        """Expected label times the probability to succeed."""
        scores = np.asarray(self.predict_members(features).mean(axis=0), dtype=np.float64)
        return scores * self.validity(features)

    def predict_members(self, features: NDArray[np.float32]) -> Vector:
        """The ranking head of each ensemble member: [member, row]."""
        if not self.ready:
            return np.zeros((1, len(features)))
        self._check_width(features)
        scores = [booster.inplace_predict(features) for booster in self._rank]
        return np.asarray(scores, dtype=np.float64)

    def validity(self, features: NDArray[np.float32]) -> Vector:
        """Probability to succeed; 1 as long as nothing has failed."""
        if self._validity is None:
            return np.ones(len(features))
        self._check_width(features)
        return np.asarray(self._validity.inplace_predict(features), dtype=np.float64)

    def predict_seconds(self, features: NDArray[np.float32], ideals: NDArray[Any]) -> Vector | None:
        """Seconds of each row, if the time head was trained."""
        if self._time is None:
            return None
        self._check_width(features)
        over = np.asarray(self._time.inplace_predict(features), dtype=np.float64)
        return np.asarray(ideals * np.exp2(over), dtype=np.float64)

    def importance(self) -> dict[str, float]:
        """Total gain by feature name, summed over the ranking members."""
        total: dict[str, float] = {}
        for booster in self._rank:
            for name, gain in booster.get_score(importance_type="total_gain").items():
                shown = self.names[int(name[1:])] if self.names else name
                total[shown] = total.get(shown, 0.0) + float(np.sum(gain))
        return dict(sorted(total.items(), key=lambda item: -item[1]))

    def to_dict(self) -> dict[str, Any]:
        """Trees and the names of the features, as JSON values."""
        return {
            "names": list(self.names),
            "width": self._width,
            "rank": [_dump(booster) for booster in self._rank],
            "validity": None if self._validity is None else _dump(self._validity),
            "time": None if self._time is None else _dump(self._time),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, trusted: bool = False) -> CostModel:
        """Rebuild what `to_dict` gave; raises KeyError, TypeError or ValueError for other data.

        Unless they are `trusted`, as the package's own are, XGBoost is given none of the bytes, but
        trees made anew of what was found sound in them (`costmodel.trees`).
        """
        names, width = data["names"], data["width"]
        if not isinstance(width, int) or not 1 <= width <= MOST_FEATURES:
            raise ValueError(f"{width!r} features")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("names that are no texts")
        if len(names) not in (0, width) or not 1 <= len(data["rank"]) <= MOST_MEMBERS:
            raise ValueError("not as many names as features, or no trees")
        model = cls(names=names)
        model._width = width

        def load(head: str) -> Booster | Late:
            return Late(head) if trusted else _load(head, width)

        model._rank = tuple(load(head) for head in data["rank"])
        model._validity = None if data["validity"] is None else load(data["validity"])
        model._time = None if data["time"] is None else load(data["time"])
        return model

    def _train(
        self,
        features: NDArray[np.float32] | Blocks,
        labels: Vector,
        weights: Vector,
        *,
        seed: int,
        fails: bool = False,
        rounds: int | None = None,
    ) -> Booster:
        """Trees for times, or for what fails."""
        import xgboost

        settings = self.settings
        parameters = {
            "objective": "binary:logistic" if fails else "reg:squarederror",
            "tree_method": "hist",
            "max_bin": settings.bins,
            "max_depth": settings.depth,
            "eta": settings.rate,
            "min_child_weight": 1e-3 if fails else settings.least,
            "lambda": 1.0,
            "colsample_bytree": settings.columns,
            "subsample": settings.rows,
            "nthread": settings.threads,
            "seed": seed,
            "verbosity": 0,
        }
        if isinstance(features, Blocks):
            data = paged(features, labels, weights, settings.bins, settings.threads)
        else:
            data = xgboost.DMatrix(features, labels, weight=weights, nthread=settings.threads)
        booster = xgboost.Booster(parameters, [data])
        for number in range(rounds or settings.rounds):  # `xgboost.train` evaluates each besides
            booster.update(data, number)
        return booster

    def _check_width(self, features: NDArray[np.float32]) -> None:
        width = features.shape[1]
        if width != self._width:
            raise UsageError(f"cost model knows {self._width} features, {width} were given")


class Late:
    """Trusted trees that XGBoost, which is slow to import, is given when they are used first."""

    def __init__(self, trees: str) -> None:
        self._trees = trees

    @cached_property
    def _booster(self) -> Booster:
        return _load(self._trees, 0)

    def inplace_predict(self, features: NDArray[np.float32]) -> Any:
        return self._booster.inplace_predict(features)

    def get_score(self, *, importance_type: str) -> Any:
        return self._booster.get_score(importance_type=importance_type)

    def save_raw(self, *, raw_format: str) -> Any:
        return self._booster.save_raw(raw_format=raw_format)


def _dump(booster: Booster | Late) -> str:
    return base64.b64encode(bytes(booster.save_raw(raw_format="ubj"))).decode()


def _load(trees: str, width: int) -> Booster:
    """The trees of a file, examined unless `width`, the number of their features, is 0."""
    import xgboost

    from costmodel.trees import sound

    data = base64.b64decode(trees, validate=True)
    booster = xgboost.Booster()
    booster.set_param({"nthread": Settings().threads})
    booster.load_model(bytearray(sound(data, width) if width else data))
    return booster
