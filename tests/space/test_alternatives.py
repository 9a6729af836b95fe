"""Spaces that choose among spaces, and these among others: what is not in force stays away."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ir.alternatives import FORM, RESIDENCE, Alternatives, chosen
from ir.columns import Columns
from ir.errors import UsageError
from ir.schedule import Schedule, Value
from ir.space import Constraint, Decision, Features, Space


def leaf(most: int, engines: bool = False) -> Space:
    """Pairs of numbers with a small sum; of two kinds, of which one has a number more."""

    def small(columns: Columns) -> Any:
        return columns["a"] + columns["b"] <= most

    def odd(columns: Columns) -> Any:
        return columns["more"] % 2 == 1

    def features(columns: Columns) -> Features:
        names = ("sum", "more") if engines else ("sum",)
        values = np.zeros((columns.rows, len(names)), dtype=np.float32)
        values[:, 0] = columns["a"] + columns["b"]
        return names, values

    decisions = [Decision(name, tuple(range(6)), "tile", "o", "why") for name in "ab"]
    rules = [Constraint("small", "a small sum", small, lambda values: f"{values['a']}")]
    if engines:
        decisions[:0] = [Decision("kind", ("x", "y"), "tensorize", "o", "why", "x")]
        more = Decision("more", (1, 2, 3), "tile", "o", "why", when=("kind", "y"))
        decisions.append(more)
        rules.append(
            Constraint("odd", "odd", odd, lambda values: f"{values['more']}", when=("kind", "y"))
        )
    return Space("toy", tuple(decisions), tuple(rules), ({"a": 1, "b": 1},), features)


def count(most: int) -> int:
    return sum(a + b <= most for a in range(6) for b in range(6))


INNER = Alternatives(RESIDENCE, {"usual": leaf(2), "keep-1": leaf(3)}, "o")
WHOLE = Alternatives(FORM, {"written": INNER.space(), "other-2": leaf(4, engines=True)}, "o")
LEGAL = count(2) + count(3) + count(4) * (1 + 2)


def test_every_row_of_every_space_counts_once() -> None:
    space = WHOLE.space()
    rows = np.concatenate(list(space.exhaustive()))
    assert len(rows) == len(np.unique(rows, axis=0)) == LEGAL
    summary = space.describe(np.random.default_rng(0))
    assert (summary.exact, summary.legal) == (True, LEGAL)
    assert len(np.unique(space.meanings(rows), axis=0)) == LEGAL


def test_draws_and_their_children_keep_to_what_is_in_force() -> None:
    space, rng = WHOLE.space(), np.random.default_rng(1)
    rows = space.sample(rng, 300)
    children = space.mended(space.mutate(rng, rows), rows)
    mixed = space.mended(space.crossover(rng, rows, rows[::-1].copy()), rows)
    for matrix in (rows, children, mixed, space.seed_rows(rng)):
        assert space.legal(matrix).all()
        assert (space.shape.settle(matrix.copy()) == matrix).all()
        for row in matrix[:20]:
            assert (space.encode(space.schedule(row)) == row).all()
    found = {tuple(row) for row in space.sample(rng, 4_000)}
    assert len(found) > 0.9 * LEGAL


def test_each_row_has_the_numbers_of_its_own_space() -> None:
    space = WHOLE.space()
    assert space.alternatives is WHOLE
    rows = space.sample(np.random.default_rng(2), 100)
    assert space.features is not None
    names, table = space.features(space.columns(rows))
    sums = table[:, names.index("sum")]
    together = 0
    for places, own, part in WHOLE.each(space, rows):
        assert own.legal(part).all()
        assert own.features is not None
        assert (own.features(own.columns(part))[1][:, 0] == sums[places]).all()
        together += len(places)
    assert together == len(rows)


def test_a_schedule_is_taken_apart_by_what_it_chooses() -> None:
    values: dict[str, Value] = {
        "form": "other-2", "a": 1, "other-2.kind": "y", "other-2.a": 2, "other-2.b": 0,
    }  # fmt: skip
    assert chosen(Schedule.of("toy", values), FORM, tuple(WHOLE.spaces)) == (
        "other-2", Schedule.of("toy", {"kind": "y", "a": 2, "b": 0})
    )  # fmt: skip
    assert chosen(Schedule.of("toy", {"a": 1, "other-2.a": 2}), FORM, tuple(WHOLE.spaces)) == (
        "written", Schedule.of("toy", {"a": 1})
    )  # fmt: skip
    with pytest.raises(UsageError, match="form: 'third' is not in its domain: written, other-2"):
        chosen(Schedule.of("toy", {"form": "third"}), FORM, tuple(WHOLE.spaces))


def test_what_a_schedule_leaves_out() -> None:
    """Of a chain of conditions nothing that is not in force has to be said."""
    space = WHOLE.space()
    short = Schedule.of("toy", {"a": 1, "b": 0})
    assert space.schedule(space.encode(short)) == short
    other = Schedule.of(
        "toy", {"form": "other-2", "other-2.kind": "y", "other-2.a": 1, "other-2.b": 1,
                "other-2.more": 3},
    )  # fmt: skip
    assert space.schedule(space.encode(other))["other-2.more"] == 3
    with pytest.raises(UsageError, match=r"leaves open: other-2\.more"):
        space.encode(Schedule.of("toy", {k: v for k, v in other.values if k != "other-2.more"}))
    assert space.refusal(other) is None
    wrong: dict[str, Value] = {**other.as_dict(), "other-2.more": 2}
    assert str(space.refusal(Schedule.of("toy", wrong))).startswith("other-2.odd")


def test_pins_bring_what_they_need() -> None:
    space = WHOLE.space().pin({"other-2.more": 3})
    assert space.pinned == {"other-2.more": 3, "other-2.kind": "y", "form": "other-2"}
    assert sum(map(len, space.exhaustive())) == count(4)
    with pytest.raises(UsageError, match=r"only in force with form=other-2"):
        space.pin({"form": "written"}).pin({"other-2.more": 1})
    assert Alternatives(FORM, {"written": leaf(2)}, "o").space().names == ("a", "b")
