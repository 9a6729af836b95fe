"""Rows that were met are told from others as sets of tuples tell them."""

from __future__ import annotations

import numpy as np

from explorer.strategies.seen import Seen, row_keys


def test_rows_are_fresh_once_and_in_their_order() -> None:
    seen = Seen()
    rows = np.array([[3, 0], [0, 3], [3, 0], [1, 1]], dtype=np.int16)
    assert seen.fresh(rows).tolist() == [0, 1, 3]
    seen.add(rows[1:3])
    assert seen.fresh(rows).tolist() == [3]
    assert len(seen) == 2


def test_it_agrees_with_a_set() -> None:
    rng = np.random.default_rng(0)
    seen, known = Seen(), set[tuple[int, ...]]()
    for _ in range(20):
        rows = rng.integers(-2, 3, size=(64, 6)).astype(np.int16)
        fresh = [row for row in dict.fromkeys(map(tuple, rows.tolist())) if row not in known]
        assert list(map(tuple, rows[seen.fresh(rows)].tolist())) == fresh
        half = rows[::2]
        seen.add(half)
        known.update(map(tuple, half.tolist()))
    assert len(seen) == len(known)


def test_all_rows_of_a_small_space_have_keys_of_their_own() -> None:
    rows = np.stack(np.meshgrid(*[np.arange(12)] * 5), axis=-1).reshape(-1, 5)
    assert len(np.unique(row_keys(rows))) == len(rows) == 12**5


def test_of_nothing_nothing_is_fresh() -> None:
    assert Seen().fresh(np.empty((0, 4), dtype=np.int16)).tolist() == []
