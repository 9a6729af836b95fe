"""Gaussian processes against their closed forms."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.strategies.gaussian import (
    BLOCK,
    JITTER,
    Belief,
    GaussianProcess,
    _inverted,
    expected_improvement,
)

LINE = np.linspace(0, 1, 6)[:, None]
TABLES = [np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]), LINE, LINE]


def told(seed: int = 0, count: int = 14) -> tuple[np.ndarray, np.ndarray]:
    """Rows of levels, and values that the last factor does not change."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(len(table), size=count) for table in TABLES], axis=1)
    first, line = TABLES[0][codes[:, 0]], LINE[codes[:, 1], 0]
    return codes, np.sin(first @ np.array([1.0, 2.0]) + 3 * line)


def alike(left: np.ndarray, right: np.ndarray, process: GaussianProcess) -> np.ndarray:
    """The product over factors, entry by entry."""
    found = np.full((len(left), len(right)), process.signal)
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            for table, length, a, b in zip(TABLES, process.lengths, one, other, strict=True):
                r = math.sqrt(5 * ((table[a] - table[b]) ** 2).sum()) / length
                matern = (1 + r + r * r / 3) * math.exp(-r)
                found[i, j] *= (1 + process.depth * matern) / (1 + process.depth)
    return found


def test_predictions_are_those_of_the_closed_form() -> None:
    codes, values = told()
    asked, _ = told(1, 5)
    process = GaussianProcess(TABLES)
    process.fit(codes, values, 5)
    own = alike(codes, codes, process) + (process.noise + JITTER) * np.eye(len(codes))
    cross = alike(asked, codes, process)
    means, variances = process.predict(asked)
    shared = alike(asked, asked, process) - cross @ np.linalg.solve(own, cross.T)
    assert means == pytest.approx(cross @ np.linalg.solve(own, values), abs=1e-6)
    assert variances == pytest.approx(np.diag(shared), abs=1e-6)
    assert process.covariance(asked, asked) == pytest.approx(shared, abs=1e-6)


@given(st.integers(0, 1000))
def test_slopes_are_those_of_the_loss(seed: int) -> None:
    codes, values = told(seed)
    process = GaussianProcess(TABLES)
    rng = np.random.default_rng(seed)
    at = process.parameters + rng.normal(size=len(process.parameters)) / 2
    _, slopes = process.loss(at, codes, values)
    for number, slope in enumerate(slopes):
        step = np.zeros(len(at))
        step[number] = 1e-5
        ahead, behind = (process.loss(at + s, codes, values)[0] for s in (step, -step))
        assert slope == pytest.approx((ahead - behind) / 2e-5, rel=1e-3, abs=1e-4)


def test_fitting_finds_what_matters() -> None:
    """The last factor moves nothing, so its length grows; the loss falls all the while."""
    codes, values = told(count=60)
    process = GaussianProcess(TABLES)
    before = process.loss(process.parameters, codes, values)[0]
    process.fit(codes, values, 30)
    assert process.loss(process.parameters, codes, values)[0] < before
    assert process.lengths.argmax() == 2
    near, _ = process.predict(codes)
    assert np.abs(near - values).max() < 0.1


def test_a_measurement_is_believed_as_far_as_noise_allows() -> None:
    code, value = np.zeros((1, 3), dtype=np.intp), np.array([2.0])
    process = GaussianProcess(TABLES, Belief(signal=1.0, noise=0.25))
    process.fit(code, value, 0)
    means, variances = process.predict(code)
    assert means[0] == pytest.approx(2.0 / 1.25)
    assert variances[0] == pytest.approx(1.0 - 1.0 / 1.25)


def test_equal_rows_do_no_harm() -> None:
    codes = np.zeros((20, 3), dtype=np.intp)
    process = GaussianProcess(TABLES)
    process.fit(codes, np.zeros(20), 10)
    assert np.isfinite(process.predict(codes)[0]).all()


def test_what_a_factor_does_is_known_beside_other_levels_of_the_rest() -> None:
    """Told with one level of the first factor, a fast level of the second is expected to be fast
    with another, far from it."""
    codes = np.array([[0, level, 0] for level in range(6)])
    process = GaussianProcess(TABLES, Belief(length=0.02))
    process.fit(codes, np.array([1.0, 1.0, 1.0, 1.0, -5.0, 1.0]), 0)
    means, _ = process.predict(np.array([[1, level, 0] for level in range(6)]))
    assert means.argmin() == 4
    assert means[4] < -0.5


def test_a_space_without_choices_is_one_point() -> None:
    codes = np.empty((3, 0), dtype=np.intp)
    process = GaussianProcess([])
    process.fit(codes, np.zeros(3), 4)
    assert process.predict(codes)[0] == pytest.approx(np.zeros(3))


@given(st.floats(-3, 3), st.floats(1e-3, 4), st.floats(-3, 3))
def test_expected_improvement_by_its_integral(mean: float, variance: float, best: float) -> None:
    found = expected_improvement(np.array([mean]), np.array([variance]), best)[0]
    deviation = math.sqrt(variance)
    normal = statistics.NormalDist(mean, deviation)
    grid = np.linspace(mean - 9 * deviation, mean + 9 * deviation, 4001)
    gains = np.maximum(best - grid, 0) * np.array([normal.pdf(x) for x in grid])
    assert found == pytest.approx(np.trapezoid(gains, grid), abs=1e-4 * deviation)
    assert found >= 0


@pytest.mark.parametrize("count", [1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_triangular_matrices_are_inverted_by_blocks(count: int) -> None:
    root = np.tril(np.random.default_rng(count).uniform(-0.1, 0.1, (count, count))) + np.eye(count)
    found = _inverted(root)
    assert np.allclose(found @ root, np.eye(count), atol=1e-10)
    assert np.array_equal(found, np.tril(found)) or count <= BLOCK
