"""Decisions that are in force only with a value of another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ir.errors import UsageError
from ir.schedule import Schedule
from ir.space import Columns, Constraint, Decision, Space
from ir.summary import legal_share

SIZES = tuple(range(8))


def forked() -> Space:
    """Two ways, of which one has two decisions under a sum and the other one decision."""

    def small(columns: Columns) -> Any:
        part = columns.part("left.")
        return (part["a"] + part["b"] <= 3) | ~columns.is_("way", "left")

    def settled(columns: Columns) -> Any:
        left = columns.is_("way", "left")
        idle = (columns["left.a"] == 0) & (columns["left.b"] == 0)
        return np.where(left, columns["right.c"] == 0, idle)

    return Space(
        "toy",
        (
            Decision("way", ("left", "right"), "tensorize", "o", "why", "left"),
            Decision("left.a", SIZES, "tile", "o", "why", when=("way", "left")),
            Decision("left.b", SIZES, "tile", "o", "why", when=("way", "left")),
            Decision("right.c", SIZES, "tile", "o", "why", 0, when=("way", "right")),
            Decision("shared", (1, 2), "tile", "o", "why"),
        ),
        (
            Constraint("small", "a small sum", small, lambda values: "sum"),
            Constraint("settled", "first values where idle", settled, lambda values: "idle"),
        ),
    )


LEGAL = (10 + 8) * 2


def test_a_row_counts_once_however_many_values_idle_decisions_have() -> None:
    space = forked()
    assert space.size == (64 + 8) * 2
    rows = np.concatenate(list(space.exhaustive()))
    assert len(rows) == len(np.unique(rows, axis=0)) == LEGAL
    summary = space.describe(np.random.default_rng(0))
    assert (summary.exact, summary.legal) == (True, LEGAL)
    share = legal_share(space, np.random.default_rng(0), 20_000)
    assert share * space.size == pytest.approx(LEGAL, rel=0.05)


def test_draws_and_their_variation_keep_idle_decisions_at_their_first_value() -> None:
    space, rng = forked(), np.random.default_rng(1)
    rows = space.sample(rng, 400)
    assert space.legal(rows).all()
    assert abs(int((rows[:, 0] == 0).sum()) - 200) <= 1
    idle = space.constraints[1]
    for varied in (space.mutate(rng, rows), space.crossover(rng, rows, rows[::-1].copy()),
                   space.shape.draw(rng, 400)):  # fmt: skip
        assert idle.check(space.columns(varied)).all()


def test_a_mutation_changes_something_and_draws_what_comes_into_force() -> None:
    space, rng = forked(), np.random.default_rng(2)
    rows = space.sample(rng, 400)
    varied = space.mutate(rng, rows, strength=1.0)
    assert (varied != rows).any(axis=1).all()
    turned = (rows[:, 0] == 0) & (varied[:, 0] == 1)
    assert len(set(varied[turned, 3].tolist())) > 3


def test_children_take_a_way_with_all_of_its_decisions() -> None:
    space, rng = forked(), np.random.default_rng(3)
    left = np.tile(space.encode(_schedule(way="left", a=1, b=2)), (200, 1))
    right = np.tile(space.encode(_schedule(way="right", c=5)), (200, 1))
    for child in space.crossover(rng, left, right):
        assert child[:4].tolist() in ([0, 1, 2, 0], [1, 0, 0, 5])


def _schedule(way: str, **values: int) -> Schedule:
    own = {f"{way}.{name}": value for name, value in values.items()}
    return Schedule("toy", (("way", way), *own.items(), ("shared", 1)))


def test_schedules_may_leave_out_what_is_idle_and_a_way_with_an_initial_value() -> None:
    space = forked()
    assert space.encode(_schedule("right", c=5)).tolist() == [1, 0, 0, 5, 0]
    short = Schedule("toy", (("left.a", 1), ("left.b", 1), ("shared", 2)))
    assert space.encode(short).tolist() == [0, 1, 1, 0, 1]
    with pytest.raises(UsageError, match=r"leaves open: left\.b"):
        space.encode(Schedule("toy", (("left.a", 1), ("shared", 2))))


def test_a_pin_brings_its_condition_along() -> None:
    space = forked().pin({"right.c": 4})
    assert space.pinned == {"right.c": 4, "way": "right"}
    assert space.size == 2
    with pytest.raises(UsageError, match="only in force with way=right; way=left is pinned too"):
        space.pin(way="left")


def test_seeds_of_another_way_than_the_pinned_one_are_left_out() -> None:
    from dataclasses import replace

    space = replace(
        forked(), seeds=({"way": "left", "left.a": 1}, {"way": "right", "right.c": 6})
    ).pin(way="right")
    rows = space.seed_rows(np.random.default_rng(0))
    assert rows.tolist() == [[1, 0, 0, 6, 0]]


@pytest.mark.parametrize("seed", range(8))
def test_a_draw_of_one_row_goes_where_rows_are_legal(seed: int) -> None:
    """Whichever branch is asked first, and though the other one has none."""

    def never_left(columns: Columns) -> Any:
        return ~columns.is_("way", "left")

    space = forked()
    rule = Constraint("never", "not left", never_left, lambda values: "left")
    space = replace(space, constraints=(*space.constraints, rule))
    rows = space.sample(np.random.default_rng(seed), 1)
    assert len(rows) == 1
    assert space.schedule(rows[0])["way"] == "right"
