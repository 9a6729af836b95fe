"""Features of rows are those of the backend, computed once, and only so many are kept."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from explorer.strategies.contract import example_space
from explorer.strategies.remembered import (
    RememberedFeatures,
    RememberedPrior,
    remembering,
)
from ir.space import Columns, Features, Matrix, Space


class Counted:
    """Features of the example space; counts the rows that it was asked for."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, columns: Columns) -> Features:
        self.rows += columns.rows
        values = np.stack([columns["rows"], columns["columns"] * columns["depth"]], axis=1)
        return ("rows", "area"), values.astype(np.float32)


def counted() -> tuple[Space, Counted]:
    features = Counted()
    return replace(example_space(), features=features), features


def test_each_row_is_computed_once() -> None:
    space, features = counted()
    remembered = RememberedFeatures(space)
    rows = space.sample(np.random.default_rng(0), 64)
    rows = np.unique(rows, axis=0)
    twice = np.concatenate([rows, rows[::-1]])
    expected = Counted()(space.columns(twice))[1]
    names, found = remembered(space.columns(twice))
    assert names == ("rows", "area")
    assert np.array_equal(found, expected)
    assert np.array_equal(remembered(space.columns(rows[5:9]))[1], expected[5:9])
    assert features.rows == len(rows) == len(remembered.rows)


def test_only_so_many_are_kept() -> None:
    space, _ = counted()
    remembered = RememberedFeatures(space, most=50)
    for seed in range(20):
        rows = space.sample(np.random.default_rng(seed), 30)
        expected = Counted()(space.columns(rows))[1]
        assert np.array_equal(remembered(space.columns(rows))[1], expected)
        assert len(remembered.rows) <= 50


def test_a_prior_is_asked_for_a_row_once() -> None:
    asked: list[int] = []

    class Prior:
        def score(self, space: Space, matrix: Matrix) -> NDArray[np.float64]:
            asked.append(len(matrix))
            return np.asarray(matrix.sum(axis=1) / 4.0, dtype=np.float64)

    space = example_space()
    rows = np.unique(space.sample(np.random.default_rng(0), 40), axis=0)
    prior = RememberedPrior(Prior(), space)
    assert np.array_equal(prior.score(space, rows[:9]), rows[:9].sum(axis=1) / 4.0)
    assert np.array_equal(prior.score(space, rows[::-1]), rows[::-1].sum(axis=1) / 4.0)
    assert asked == [9, len(rows) - 9]


def test_a_space_without_features_stays_what_it_is() -> None:
    space = example_space()
    assert remembering(space) is space
    assert remembering(counted()[0]).features is not None


def test_no_rows_have_names_all_the_same() -> None:
    space, _ = counted()
    names, found = RememberedFeatures(space)(
        space.columns(space.sample(np.random.default_rng(0), 0))
    )
    assert names == ("rows", "area")
    assert found.shape == (0, 2)
