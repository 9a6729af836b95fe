"""That no row is legal is shown without a search, and only where it is so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir import drawing, refutation
from ir.errors import UsageError
from ir.refutation import refuted
from ir.space import Columns, Constraint, Decision, Space
from tests.space.toy import tiling_space

Rule = tuple[tuple[int, ...], int, int]  # columns that are summed, a modulus, what has to remain


def _space(sizes: list[int], rules: list[Rule], pins: dict[int, int] | None = None) -> Space:
    decisions = tuple(
        Decision(f"d{number}", tuple(range(size)), "tile", f"d{number}", "drawn")
        for number, size in enumerate(sizes)
    )
    space = Space("toy", decisions, tuple(_constraint(*rule) for rule in rules))
    return space.pin({f"d{number}": value for number, value in (pins or {}).items()})


def _constraint(columns: tuple[int, ...], modulus: int, left: int) -> Constraint:
    def check(values: Columns) -> object:
        return sum(values[f"d{column}"] * (column + 1) for column in columns) % modulus == left

    name = f"{columns} % {modulus} == {left}"
    return Constraint(name, name, check, lambda _: "")


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    sizes = draw(st.lists(st.integers(2, 4), min_size=3, max_size=6))
    column = st.integers(0, len(sizes) - 1)
    columns = st.lists(column, min_size=1, max_size=3, unique=True).map(tuple)
    rule = st.integers(2, 4).flatmap(
        lambda m: st.tuples(columns, st.just(m), st.integers(0, m - 1))
    )
    pins = draw(st.dictionaries(column, st.integers(0, 1), max_size=1))
    return _space(sizes, draw(st.lists(rule, min_size=1, max_size=6)), pins)


@given(spaces())
def test_small_spaces_are_refuted_where_nothing_is_legal(space: Space) -> None:
    assert refuted(space) == (not sum(map(len, space.exhaustive())))


@given(spaces(), st.integers(1, 60))
def test_what_takes_too_many_trials_is_left_open(space: Space, tried: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refutation, "TRIED", tried)
        assert not refuted(space) or not sum(map(len, space.exhaustive()))


def _wanting(columns: Columns) -> object:
    """What no row of the space has together with its other rules."""
    return columns["threads.m"] * columns["tile.m.2"] + columns["threads.n"] > 300


def test_a_space_without_a_legal_row_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    space = tiling_space()
    assert not refuted(space)
    wanting = Constraint("wanting", "more than there is", _wanting, lambda _: "")
    monkeypatch.setattr(drawing, "drawn", None)
    with pytest.raises(UsageError, match=r"no legal schedule found; the tightest, wanting"):
        replace(space, constraints=(*space.constraints, wanting)).any_legal(
            np.random.default_rng(0)
        )


def test_who_has_no_patience_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A way to cut a program that may have no schedule is not worth seconds of drawing."""
    rule = Constraint("seven", "a is 7", lambda c: c["a"] * c["b"] == 7 * 11 * 13, lambda _: "",
                      reads=("a", "b"))  # fmt: skip
    numbers = tuple(range(100))
    space = Space(
        "cpu", (Decision("a", numbers, "tile", "a", ""), Decision("b", numbers, "tile", "b", "")),
        (rule,), ({"a": 1, "b": 1},),
    )  # fmt: skip
    drawn = []
    monkeypatch.setattr(Space, "sample", lambda *_, **__: drawn.append(1))
    monkeypatch.setattr(Space, "seed_rows", lambda self, _: self.seed_matrix[:0])
    with pytest.raises(UsageError):
        space.any_legal(np.random.default_rng(0), patient=False)
    assert not drawn
