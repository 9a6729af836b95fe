"""How good a model is: top-k regret, rank correlation, calibration; against simple rivals.

Regret is the best time among the first k of a ranking over the best time of all (1 is perfect);
where the fastest were measured again, over the best of those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.dataset import Group, fit_groups
from costmodel.model import CostModel, Settings, Vector
from ir.errors import UsageError

TOPS = (1, 5, 10)
DRAWS = 200  # random orders whose regret is averaged
NEIGHBOURS = 5
LEAST = 20  # valid trials of a workload that is worth ranking
MOST_KNOWN = 20_000  # rows among which neighbours are looked for
FOLDS = 8
SPLITS = ("workload", "operator")


@dataclass(frozen=True, slots=True)
class Score:
    """One ranking of one workload. `regrets` are for the first 1, 5 and 10."""

    ranking: str
    operator: str
    workload: str
    candidates: int
    correlation: float
    regrets: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Time head: median factor of the error, share within 25 %. Validity head: mean probability
    given to what succeeded and to what failed, and the mean squared error (Brier)."""

    time_error: float
    time_within_quarter: float
    valid_given: float
    failed_given: float
    brier: float
    failures: int


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of every ranking on every workload, and how the heads are calibrated."""

    split: str
    scores: tuple[Score, ...]
    calibration: Calibration

    def summary(self) -> dict[str, dict[str, float]]:
        """By ranking: means and medians over workloads, shares within 2, 5 and 10 %."""
        found = {}
        for ranking in dict.fromkeys(score.ranking for score in self.scores):
            scores = [score for score in self.scores if score.ranking == ranking]
            found[ranking] = _summary(scores)
        return found


def spearman(left: Vector, right: Vector) -> float:
    """Rank correlation, ties sharing the mean of their ranks; 0 where one side is constant."""
    ranks = [_ranks(left), _ranks(right)]
    if any(float(rank.std()) == 0.0 for rank in ranks):
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: Vector) -> Vector:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], dtype=np.float64)


def regret(scores: Vector, seconds: Vector, top: int, best: float | None = None) -> float:
    """Best time among the `top` highest scores, over the `best` (by default of all); at least 1."""
    head = np.argsort(-scores, kind="stable")[:top]
    return max(1.0, float(seconds[head].min() / (seconds.min() if best is None else best)))


def evaluate(model: CostModel, groups: Sequence[Group]) -> Evaluation:
    """A finished model on workloads, against traffic alone and random order."""
    tested = _worthwhile(groups)
    if any(group.names != model.names for group in tested):
        raise UsageError("the cost model and the records differ in feature schema: train it again")
    return _evaluation("none", [(model, None, group) for group in tested])


def cross_validate(
    groups: Sequence[Group],
    split: str = "workload",
    *,
    settings: Settings | None = None,
    progress: Callable[[str], None] | None = None,
) -> Evaluation:
    """Every workload scored by a model that has not seen it, nor (split "operator") its kind.

    Workloads are left out in FOLDS turns, each of them once; operators one by one.
    """
    if split not in SPLITS:
        raise UsageError(f"no split {split!r}; there are {', '.join(SPLITS)}")
    tested = _worthwhile(groups)
    held: list[tuple[CostModel, list[Group] | None, Group]] = []
    for keys in _folds(tested, split):
        if progress is not None:
            progress(", ".join(sorted(keys)))
        inside = [group for group in tested if _key(group, split) in keys]
        rest = [group for group in groups if _key(group, split) not in keys]
        if not rest:
            raise UsageError(f"one {split} only: leaving it out leaves nothing to learn from")
        model = fit_groups(rest, settings=settings)
        held += [(model, rest, group) for group in inside]
    return _evaluation(split, held)


def _worthwhile(groups: Sequence[Group]) -> list[Group]:
    found = [group for group in groups if int(group.ok.sum()) >= LEAST]
    if not found:
        raise UsageError(f"no workload has {LEAST} valid trials: there is nothing to rank")
    return found


def _key(group: Group, split: str) -> str:
    return group.operator if split == "operator" else group.label


def _folds(groups: Sequence[Group], split: str) -> list[set[str]]:
    """What is left out together."""
    keys = list(dict.fromkeys(_key(group, split) for group in groups))
    count = len(keys) if split == "operator" else min(FOLDS, len(keys))
    return [set(keys[number::count]) for number in range(count)]


def _evaluation(
    split: str, held: Sequence[tuple[CostModel, list[Group] | None, Group]]
) -> Evaluation:
    scores: list[Score] = []
    neighbours: dict[int, _Neighbours] = {}
    for model, rest, group in held:
        scores.append(_score("model", group, model.predict(group.features[group.ok])))
        if group.traffic is not None:
            scores.append(_score("traffic", group, -group.traffic[group.ok]))
        if rest is not None:
            near = neighbours.setdefault(id(rest), _Neighbours(rest))
            scores.append(_score("neighbour", group, near.predict(group.features[group.ok])))
        scores.append(_random_score(group))
    return Evaluation(split, tuple(scores), _calibration([(m, g) for m, _, g in held]))


def _score(ranking: str, group: Group, scores: Vector) -> Score:
    seconds = group.seconds[group.ok]
    regrets = tuple(regret(scores, seconds, top, group.best) for top in TOPS)
    correlation = spearman(-scores, seconds)
    return Score(ranking, group.operator, group.workload, len(seconds), correlation, regrets)


def _random_score(group: Group) -> Score:
    """Mean regrets over random orders."""
    seconds, rng = group.seconds[group.ok], np.random.default_rng(0)
    orders = [rng.permutation(len(seconds)) for _ in range(DRAWS)]
    regrets = tuple(
        float(np.mean([max(1.0, seconds[order[:top]].min() / group.best) for order in orders]))
        for top in TOPS
    )
    return Score("random", group.operator, group.workload, len(seconds), 0.0, regrets)


class _Neighbours:
    """Score by the mean of the nearest training rows, in standardised features."""

    def __init__(self, groups: Sequence[Group]) -> None:
        rows = np.concatenate([_plain(group.features[group.ok]) for group in groups])
        speeds = np.concatenate(
            [np.nanmin(g.seconds) / g.seconds[g.ok] for g in groups if g.ok.any()]
        )
        step = -(-len(rows) // MOST_KNOWN)
        self._mean, self._scale = rows.mean(axis=0), rows.std(axis=0) + 1e-6
        self._rows = (rows[::step] - self._mean) / self._scale
        self._speeds = speeds[::step]
        self._squares = (self._rows**2).sum(axis=1)

    def predict(self, features: NDArray[np.float32]) -> Vector:
        asked = (_plain(features) - self._mean) / self._scale
        apart = self._squares[None, :] - 2 * asked @ self._rows.T
        nearest = np.argpartition(apart, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        return np.asarray(self._speeds[nearest].mean(axis=1), dtype=np.float64)


def _plain(features: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.nan_to_num(features, nan=0.0, posinf=0.0, neginf=0.0)


def _calibration(held: Sequence[tuple[CostModel, Group]]) -> Calibration:
    errors: list[Vector] = []
    given: list[Vector] = []
    truth: list[NDArray[np.bool_]] = []
    for model, group in held:
        predicted = model.predict_seconds(group.features[group.ok], group.ideals[group.ok])
        if predicted is not None:
            errors.append(np.abs(np.log(predicted / group.seconds[group.ok])))
        given.append(model.validity(group.rows))
        truth.append(group.ok)
    error = np.concatenate(errors) if errors else np.array([np.nan])
    chance, ok = np.concatenate(given), np.concatenate(truth)
    return Calibration(
        float(np.exp(np.median(error))),
        float((error <= np.log(1.25)).mean()),
        float(chance[ok].mean()),
        float(chance[~ok].mean()) if not ok.all() else float("nan"),
        float(((chance - ok) ** 2).mean()),
        int((~ok).sum()),
    )


def _summary(scores: Sequence[Score]) -> dict[str, float]:
    found = {"correlation": float(np.mean([score.correlation for score in scores]))}
    for number, top in enumerate(TOPS):
        regrets = np.array([score.regrets[number] for score in scores])
        found[f"top{top}"] = float(np.median(regrets))
        found[f"top{top}.mean"] = float(regrets.mean())
        for share in (2, 5, 10):
            found[f"top{top}.within{share}"] = float((regrets <= 1 + share / 100).mean())
    found["workloads"] = float(len(scores))
    return found


def lines(evaluation: Evaluation) -> Iterator[str]:
    """The summary for people."""
    yield "ranking    correlation  top-1  top-5  top-10  top-5 within 2 %  top-10 within 10 %"
    for ranking, found in evaluation.summary().items():
        yield (
            f"{ranking:10s} {found['correlation']:11.2f} {found['top1']:6.2f} {found['top5']:6.2f} "
            f"{found['top10']:7.2f} {found['top5.within2']:16.0%} {found['top10.within10']:19.0%}"
        )
    seen = evaluation.calibration
    yield (
        f"time: off by a factor of {seen.time_error:.2f} in the median, "
        f"{seen.time_within_quarter:.0%} within 25 %"
    )
    if seen.failures:
        yield (
            f"validity: {seen.valid_given:.2f} given to what succeeded, {seen.failed_given:.2f} to "
            f"{seen.failures} failures; Brier score {seen.brier:.3f}"
        )
