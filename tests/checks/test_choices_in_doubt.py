"""What trials say of elements beside others that another choice moves far."""

from __future__ import annotations

import numpy as np

from explorer.expectation import _nearer
from ir.oracle import Answer


def told(reach: np.ndarray) -> np.ndarray:
    """What is said of elements of which the analysis knows nothing, by what trials moved them."""
    value = np.random.default_rng(0).normal(size=reach.shape)
    return _nearer(Answer(value, np.full(reach.shape, np.inf, np.float32)), reach).reach


def test_what_no_trial_moves_is_known() -> None:
    reach = np.full((6, 50), 1e-5)
    assert (told(reach) == reach).all()


def test_a_line_that_another_choice_moves_is_unknown_with_all_that_moved_little() -> None:
    """Two keys that are as good change places: both rows may be any other pair's."""
    reach = np.full((6, 50), 1e-5)
    reach[2:4] = 3.0
    reach[2:4, 7] = 1e-3  # where both rows happen to be alike
    found = told(reach)
    assert np.isinf(found[2:4]).all()
    rest = [0, 1, 4, 5]
    assert (found[rest] == reach[rest]).all()


def test_of_a_number_alone_it_is_what_trials_say() -> None:
    assert told(np.array(1e-5)) == 1e-5
    assert np.isinf(told(np.array(5.0)))
