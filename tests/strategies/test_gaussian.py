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

GROUPS = np.array([0, 0, 1, 2])


def told(seed: int = 0, count: int = 14) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    points = rng.random((count, len(GROUPS)))
    return points, np.sin(points @ np.array([1.0, 2.0, 3.0, 0.0]))


def matern(left: np.ndarray, right: np.ndarray, process: GaussianProcess) -> np.ndarray:
    """Matern 5/2 entry by entry."""
    found = np.empty((len(left), len(right)))
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            r = math.sqrt(5 * (((one - other) / process.lengths[GROUPS]) ** 2).sum())
            found[i, j] = process.signal * (1 + r + r * r / 3) * math.exp(-r)
    return found


def test_predictions_are_those_of_the_closed_form() -> None:
    points, values = told()
    asked, _ = told(1, 5)
    process = GaussianProcess(GROUPS)
    process.fit(points, values, 5)
    own = matern(points, points, process) + (process.noise + JITTER) * np.eye(len(points))
    cross = matern(asked, points, process)
    means, variances = process.predict(asked)
    shared = matern(asked, asked, process) - cross @ np.linalg.solve(own, cross.T)
    assert means == pytest.approx(cross @ np.linalg.solve(own, values), abs=1e-6)
    assert variances == pytest.approx(np.diag(shared), abs=1e-6)
    assert process.covariance(asked, asked) == pytest.approx(shared, abs=1e-6)


@given(st.integers(0, 1000))
def test_slopes_are_those_of_the_loss(seed: int) -> None:
    points, values = told(seed)
    process = GaussianProcess(GROUPS)
    rng = np.random.default_rng(seed)
    at = process.parameters + rng.normal(size=len(process.parameters)) / 2
    _, slopes = process.loss(at, points, values)
    for number, slope in enumerate(slopes):
        step = np.zeros(len(at))
        step[number] = 1e-5
        ahead, behind = (process.loss(at + s, points, values)[0] for s in (step, -step))
        assert slope == pytest.approx((ahead - behind) / 2e-5, rel=1e-3, abs=1e-4)


def test_fitting_finds_what_matters() -> None:
    """The last group moves nothing, so its length grows; the loss falls all the while."""
    points, values = told(count=60)
    process = GaussianProcess(GROUPS)
    before = process.loss(process.parameters, points, values)[0]
    process.fit(points, values, 30)
    assert process.loss(process.parameters, points, values)[0] < before
    assert process.lengths.argmax() == 2
    near, _ = process.predict(points)
    assert np.abs(near - values).max() < 0.1


def test_a_measurement_is_believed_as_far_as_noise_allows() -> None:
    point, value = np.zeros((1, 4)), np.array([2.0])
    process = GaussianProcess(GROUPS, Belief(signal=1.0, noise=0.25))
    process.fit(point, value, 0)
    means, variances = process.predict(point)
    assert means[0] == pytest.approx(2.0 / 1.25)
    assert variances[0] == pytest.approx(1.0 - 1.0 / 1.25)


def test_equal_points_do_no_harm() -> None:
    points = np.zeros((20, 4))
    process = GaussianProcess(GROUPS)
    process.fit(points, np.zeros(20), 10)
    assert np.isfinite(process.predict(points)[0]).all()


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
