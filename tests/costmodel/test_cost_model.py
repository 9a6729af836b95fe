"""The cost model ranks, learns what fails, and survives being stored."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from costmodel.features import FloatMatrix, feature_names, featurise
from costmodel.model import CostModel, Settings, rank_labels, ratio_labels
from ir.errors import UsageError
from ir.space import Columns, Features, Matrix
from tests.space.toy import tiling_space, toy_seconds

SPACE = tiling_space()
NAMES = feature_names(SPACE)


def _data(rows: int, seed: int = 0) -> tuple[Matrix, FloatMatrix, NDArray[np.float64]]:
    matrix = SPACE.sample(np.random.default_rng(seed), rows)
    return matrix, featurise(SPACE, matrix), toy_seconds(SPACE, matrix)


def test_features_have_names_and_meaning() -> None:
    matrix, features, _ = _data(64)
    assert features.dtype == np.float32
    assert features.shape == (64, len(NAMES))
    assert len(set(NAMES)) == len(NAMES)
    assert np.isfinite(features).all()
    columns, at = SPACE.columns(matrix), NAMES.index
    assert np.allclose(features[:, at("tile.m.1")], np.log2(1 + columns["tile.m.1"]))
    assert (features[:, at("order=nkm")] == columns.is_("order", "nkm")).all()
    pair = features[:, at("tile.m.1")] + features[:, at("tile.k.1")]
    assert np.allclose(features[:, at("tile.m.1*tile.k.1")], pair)


def test_pins_leave_the_schema_alone_and_the_backend_adds_to_it() -> None:
    assert feature_names(SPACE.pin({"order": "nkm"})) == NAMES

    def extra(columns: Columns) -> Features:
        return ("footprint",), columns["tile.m.1"][:, None].astype(np.float32)

    wider = replace(SPACE, features=extra)
    assert feature_names(wider) == (*NAMES, "footprint")
    matrix = SPACE.sample(np.random.default_rng(0), 8)
    assert (featurise(wider, matrix)[:, -1] == SPACE.columns(matrix)["tile.m.1"]).all()


def test_labels_stress_the_head_within_each_workload() -> None:
    seconds = np.array([1.0, 2.0, 3.0, 300.0, 200.0, 100.0])
    labels = rank_labels(seconds, np.array([0, 0, 0, 1, 1, 1]), 4.0)
    assert np.allclose(labels, np.exp([0, -2, -4, -4, -2, 0]))
    assert np.allclose(rank_labels(np.array([5.0, 5.0]), np.zeros(2), 4.0), 1.0)


def test_it_finds_fast_candidates() -> None:
    _, features, seconds = _data(300)
    model = CostModel(0, names=NAMES)
    assert not model.ready
    assert (model.predict(features) == 0).all()
    model.fit(features, seconds, np.ones(300))
    _, unseen, times = _data(4000, seed=1)
    head = np.argsort(-model.predict(unseen))[:40]
    assert np.median(times[head]) < np.quantile(times, 0.06)
    assert set(model.importance()) <= set(NAMES)


def test_it_learns_what_fails() -> None:
    matrix, features, seconds = _data(300)
    ok = SPACE.columns(matrix)["unroll.k"] < 16
    model = CostModel(0)
    model.fit(features, np.where(ok, seconds, np.nan), ok)
    unseen, rows, _ = _data(1000, seed=1)
    fails = SPACE.columns(unseen)["unroll.k"] == 16
    assert model.validity(rows)[fails].max() < 0.3 < 0.7 < model.validity(rows)[~fails].min()


def test_too_little_data_says_nothing() -> None:
    _, features, seconds = _data(12)
    model = CostModel(0)
    model.fit(features, seconds, np.arange(12) < 4)
    assert not model.ready
    assert (model.predict(features) == 0).all()


def test_rebuilt_from_json_values_it_is_the_same() -> None:
    _, features, seconds = _data(100)
    model = CostModel(3, names=NAMES, settings=Settings(ensemble=2))
    ideals = np.full(100, 1e-4)
    model.fit(features, seconds, np.arange(100) % 7 > 0, ideals=ideals)
    again = CostModel.from_dict(json.loads(json.dumps(model.to_dict())))
    assert again.names == NAMES
    assert np.allclose(again.predict(features), model.predict(features))
    assert again.predict_members(features).shape == (2, 100)
    told, wanted = (m.predict_seconds(features, ideals) for m in (again, model))
    assert told is not None
    assert wanted is not None
    assert np.allclose(told, wanted)
    with pytest.raises(UsageError, match="knows 53 features, 3 were given"):
        again.predict(features[:, :3])


def test_the_time_head_tells_seconds() -> None:
    _, features, seconds = _data(400)
    _, unseen, times = _data(400, seed=1)
    model = CostModel(0)
    assert model.predict_seconds(features, np.ones(400)) is None
    model.fit(features, seconds, np.ones(400), ideals=np.full(400, seconds.min()))
    told = model.predict_seconds(unseen, np.full(400, seconds.min()))
    assert told is not None
    assert np.median(np.abs(np.log(told / times))) < 0.25


def test_labels_may_be_ratios_to_the_best() -> None:
    seconds = np.array([1.0, 2.0, 4.0, 300.0, 100.0])
    labels = ratio_labels(seconds, np.array([0, 0, 0, 1, 1]))
    assert np.allclose(labels, [1, 0.5, 0.25, 1 / 3, 1])


def test_labels_may_be_the_mean_of_ranks_and_ratios() -> None:
    """Trees that know their rows by heart tell the labels."""
    seconds = np.array([1.0, 1.25, 2.0, 10.0])
    features = np.repeat(np.arange(4.0, dtype=np.float32), 20)[:, None]
    ranks = np.exp(-4.0 * np.array([0, 20, 40, 60]) / 79)
    learnt = {"ratio": (1.0 / seconds) ** 2, "rank": ranks}
    learnt["both"] = (learnt["ratio"] + learnt["rank"]) / 2
    for label, expected in learnt.items():
        model = CostModel(0, settings=Settings(label=label, rounds=200, rows=1.0))
        model.fit(features, np.repeat(seconds, 20), np.ones(80))
        assert model.predict(features)[::20] == pytest.approx(expected, abs=0.02), label


def test_importing_does_not_load_xgboost() -> None:
    code = "import sys, costmodel.model, explorer.strategies.evolutionary as e; print(e.__name__);"
    code += "assert 'xgboost' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
