"""The Hilbert order of tiles."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir.targets.cuda.grid.hilbert import hilbert_order

SIDES = st.integers(1, 40)


@given(SIDES, SIDES)
def test_every_tile_comes_once(rows: int, columns: int) -> None:
    order = hilbert_order(rows, columns)
    assert sorted(order) == [(row, column) for row in range(rows) for column in range(columns)]


@pytest.mark.parametrize("side", [2, 4, 8, 32])
def test_steps_go_to_a_neighbour(side: int) -> None:
    order = hilbert_order(side, side)
    steps = [abs(a[0] - b[0]) + abs(a[1] - b[1]) for a, b in pairwise(order)]
    assert set(steps) == {1}
