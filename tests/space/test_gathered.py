"""Rows whose columns are gathered when they are read are those of the matrix."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ir.columns import Watched, columns_of, tables_of
from ir.gathered import Rows
from ir.space import Columns, Decision

DECISIONS = tuple(Decision(f"d{n}", tuple(range(5)), "tile", "a", "points", 2) for n in range(7))


def matrix_of(rows: int, seed: int = 0) -> NDArray[np.int16]:
    return np.random.default_rng(seed).integers(5, size=(rows, 7)).astype(np.int16)


def test_rows_with_columns_of_their_own_are_those_of_the_matrix_with_these_written() -> None:
    matrix, own = matrix_of(20), np.array([1, 4, 5])
    numbers = np.array([3, 3, 0, 19, 7])
    values = matrix_of(5, 1)[:, :3]
    written = matrix[numbers]
    written[:, own] = values
    rows = Rows(matrix, numbers, own, values)
    assert len(rows) == 5
    assert (rows.whole() == written).all()
    assert all((rows.column(place) == written[:, place]).all() for place in range(7))
    assert (rows.columns([6, 4, 0]) == written[:, [6, 4, 0]]).all()
    mask = np.array([True, False, True, False, True])
    for picked in (mask, np.flatnonzero(mask)):
        assert (rows.picked(picked).whole() == written[picked]).all()
        again = rows.picked(picked).picked(np.array([2, 0]))
        assert (again.whole() == written[mask][[2, 0]]).all()


def test_rows_without_any_are_picked_lazily() -> None:
    matrix = matrix_of(20)
    rows = Rows(matrix).picked(matrix[:, 0] > 2)
    assert (rows.whole() == matrix[matrix[:, 0] > 2]).all()
    assert (rows.columns([2, 3]) == matrix[matrix[:, 0] > 2][:, [2, 3]]).all()


def test_columns_read_the_same_of_rows_and_of_a_matrix() -> None:
    matrix, tables = matrix_of(20), tables_of(DECISIONS)
    whole, lazy = Columns(tables, matrix), Columns(tables, Rows(matrix, np.arange(20)))
    for name in tables:
        assert (whole[name] == lazy[name]).all()
        assert (whole.codes(name) == lazy.codes(name)).all()
        assert (whole.is_(name, 3) == lazy.is_(name, 3)).all()
    assert (whole.matrix_of(["d3", "d1"]) == lazy.matrix_of(["d3", "d1"])).all()
    assert (lazy.matrix == matrix).all()


def test_what_rows_of_values_do_not_say_is_as_it_is_first() -> None:
    said = [{"d1": 4, "other": 9}, {}, {"d0": 0, "d6": 3}]
    initial = np.full(7, 2, dtype=np.int16)
    found = tables_of(DECISIONS).filled(DECISIONS, initial, said)
    full = [{**{d.name: 2 for d in DECISIONS}, **row} for row in said]
    assert (found == columns_of(DECISIONS, full).matrix).all()


def test_watched_columns_tell_each_time_what_is_behind_a_number() -> None:
    columns = Watched(tables_of(DECISIONS), matrix_of(20))

    def inner(known: Columns) -> object:
        return known["d1"] + known["d2"]

    def outer(known: Columns) -> object:
        return known.derived("inner", inner) * known["d3"]

    assert columns["d0"].size
    assert columns.asked == {"d0"}
    for _ in range(2):
        columns.asked.clear()
        columns.derived("outer", outer)
        assert columns.asked == {"d1", "d2", "d3"}
        columns.asked.clear()
        columns.derived("inner", inner)
        columns.part("d")["5"]
        assert columns.asked == {"d1", "d2", "d5"}
    columns.asked.clear()
    assert columns["d0"].size
    assert columns.asked == {"d0"}
