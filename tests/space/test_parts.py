"""Spaces of many kernels: parts are found, drawn, seeded and varied each by itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.strategies.history import DEALS, LOT, LOTS, Strangers
from ir.columns import Mask
from ir.drawing import recombined, worth_recombining
from ir.parts import LEAST, groups_of, parts_of
from ir.space import Columns, Constraint, Decision, Matrix, Space

SIZES = tuple(range(10))
LETTERS = "abcd"


def kernels(count: int, sums: tuple[int, ...], early: bool = True) -> Space:
    """Each kernel has four sizes of a sum that its turn of `sums` gives, and with `early` a wish
    that a choice of the whole program has to grant."""
    decisions = [
        Decision(f"{letter}.{number}", SIZES, "tile", letter, "points", 0)
        for number in range(count)
        for letter in LETTERS
    ]
    rules = []
    for number in range(count):
        rules.append(_rule(number, _sums_to(number, sums[number % len(sums)]), LETTERS))
    if early:
        decisions.append(Decision("early", (False, True), "pipeline", "a", "starts early"))
        for number in range(count):
            wish = Decision(f"wish.{number}", (0, 1, 2, 3), "pipeline", "a", "asks early")
            decisions.append(wish)
            rules.append(_rule(number, _granted(number), ("wish",), ("a", "early")))
    return Space("toy", tuple(decisions), tuple(rules))


def _sums_to(number: int, wanted: int) -> Callable[[Columns], Any]:
    def check(columns: Columns) -> Any:
        return sum(columns[f"{letter}.{number}"] for letter in LETTERS) == wanted

    return check


def _granted(number: int) -> Callable[[Columns], Any]:
    def check(columns: Columns) -> Any:
        asks = columns[f"wish.{number}"] > 0
        return ~asks | ((columns["early"] == 1) & (columns[f"a.{number}"] < 9))

    return check


def _rule(
    number: int, check: Callable[[Columns], Any], stems: str | tuple[str, ...],
    more: tuple[str, ...] = (),
) -> Constraint:  # fmt: skip
    names = [f"{stem}.{number}" for stem in stems]
    names += [name if name == "early" else f"{name}.{number}" for name in more]
    return Constraint(f"{'.'.join(stems)}.{number}", "fits", check, str, tuple(names))


RARE = 36  # four nines: 1 of 10,000
SEEDS = st.integers(0, 2**32 - 1)


def test_a_choice_of_the_whole_program_does_not_join_its_kernels() -> None:
    space = kernels(6, (9,))
    names = [
        sorted(space.decisions[column].name for column in part.columns) for part in space.parts.each
    ]
    assert names == [[f"{letter}.{n}" for letter in LETTERS] + [f"wish.{n}"] for n in range(6)]
    assert [space.decisions[column].name for column in space.parts.held] == ["early"]
    (alone,) = kernels(1, (9,)).parts.each
    assert alone.columns.size == 6


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.lists(st.integers(2, 34), min_size=1, max_size=4), SEEDS)
def test_draws_of_many_kernels_are_legal_and_vary(count: int, sums: list[int], seed: int) -> None:
    space = kernels(count, tuple(sums))
    rows = space.sample(np.random.default_rng(seed), 40)
    assert rows.shape == (40, len(space.decisions))
    assert space.legal(rows).all()
    assert len(np.unique(rows, axis=0)) > 10
    for part in space.parts.each:
        assert len(np.unique(rows[:, part.columns], axis=0)) > 4


def test_a_kernel_of_which_one_schedule_in_ten_thousand_is_legal_leaves_the_others_free() -> None:
    space = kernels(12, (RARE, 18))
    rows = space.sample(np.random.default_rng(0), 64)
    assert space.legal(rows).all()
    assert (space.columns(rows)["a.0"] == 9).all()
    assert len(np.unique(rows[:, 4:8], axis=0)) > 40
    assert 16 < (space.columns(rows)["early"] == 1).sum() < 48


def test_draws_look_like_rejected_ones_in_each_kernel() -> None:
    space, rng = kernels(3, (9, 20, 31)), np.random.default_rng(1)
    space = space.pin(early=True)
    ours = np.concatenate([space.sample(rng, 250) for _ in range(12)])
    for number, part in enumerate(space.parts.each):
        draws = space.shape.draw(rng, 400_000)
        honest = draws[space.legal(draws, part.rules)]
        for column in part.columns:
            bins = len(space.decisions[column].domain)
            left = np.bincount(honest[:, column], minlength=bins) / len(honest)
            right = np.bincount(ours[:, column], minlength=bins) / len(ours)
            assert 0.5 * np.abs(left - right).sum() < 0.3, (number, column)


def test_a_seed_that_is_wrong_in_one_kernel_keeps_the_others() -> None:
    wrong: dict[str, Any] = {f"{letter}.{n}": 3 for n in range(4) for letter in LETTERS}
    wrong |= {"early": True, "a.1": 9}
    space = replace(kernels(4, (12,)), seeds=(wrong, {**wrong, "a.1": 3}, {"early": False}))
    rows = space.seed_rows(np.random.default_rng(0))
    assert len(rows) == 3
    assert space.legal(rows).all()
    columns = space.columns(rows)
    for number in (0, 2, 3):
        assert all((columns[f"{letter}.{number}"][:2] == 3).all() for letter in LETTERS)
    assert (columns["early"] == [1, 1, 0]).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 8), SEEDS, st.floats(1, 6))
def test_mended_children_are_legal_and_differ_where_they_may(
    count: int, seed: int, strength: float
) -> None:
    space, rng = kernels(count, (12, 25)), np.random.default_rng(seed)
    parents = space.sample(rng, 64)
    for children in (
        space.mutate(rng, parents, strength),
        space.crossover(rng, parents, parents[::-1].copy()),
    ):
        mended = space.mended(children, parents)
        assert space.legal(mended).all()
        assert ((mended == children) | (mended == parents)).all()
        legal = space.legal(children)
        assert (mended[legal] == children[legal]).all()


def test_crossover_of_many_kernels_keeps_whole_kernels_of_both_sides() -> None:
    space, rng = kernels(10, (18,), early=False), np.random.default_rng(0)
    mothers, fathers = space.sample(rng, 200), space.sample(rng, 200)
    crossed = space.crossover(rng, mothers, fathers)
    assert space.legal(crossed).mean() < 0.1
    children = space.mended(crossed, mothers)
    new = (children != mothers).any(axis=1)
    assert space.legal(children).all()
    assert new.mean() > 0.5


def test_many_rows_are_combined_of_parts_that_are_legal_together() -> None:
    space = kernels(4, (12, 25))
    rows = space.sample(np.random.default_rng(0), 3000)
    assert space.legal(rows).all()
    assert len(np.unique(rows, axis=0)) > 2900
    assert 1000 < (space.columns(rows)["early"] == 1).sum() < 2000
    assert ((space.columns(rows)["wish.1"] > 0) & (space.columns(rows)["wish.2"] > 0)).any()


@given(count=st.integers(2, 5), early=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_rows_of_parts_of_legal_ones_are_legal_and_have_these_parts(
    count: int, early: bool, seed: int
) -> None:
    space, rng = kernels(count, (7, 20), early), np.random.default_rng(seed)
    found = space.sample(rng, 40)
    rows = recombined(space, rng, found, 200)
    assert worth_recombining(space)
    assert space.legal(rows).all()
    assert len(np.unique(np.concatenate([found, rows]), axis=0)) > 150
    held = space.parts.held
    for part in space.parts.each:
        columns = np.concatenate([part.columns, held])
        known = set(map(tuple, found[:, columns].tolist()))
        assert set(map(tuple, rows[:, columns].tolist())) <= known


def test_strangers_are_drawn_once_for_several_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    space, rng = kernels(3, (12,)), np.random.default_rng(0)
    drawn: list[int] = []
    sample = Space.sample

    def counted(self: Space, rng: np.random.Generator, rows: int, **more: int) -> Matrix:
        drawn.append(rows)
        return sample(self, rng, rows, **more)

    monkeypatch.setattr(Space, "sample", counted)
    strangers = Strangers(space, rng)
    shown = [strangers.take(LOT) for _ in range(LOTS * DEALS)]
    assert drawn == [LOT]
    assert all(space.legal(rows).all() for rows in shown)
    strangers.take(1)
    assert drawn == [LOT, LOT]


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 5), SEEDS)
def test_neighbours_are_those_of_a_full_check(count: int, seed: int) -> None:
    space, rng = kernels(count, (12, 25)), np.random.default_rng(seed)
    row = space.sample(rng, 1)[0]
    near = {other.tobytes() for other in space.neighbours(row)}
    steps = np.repeat(row[None, :], 4000, axis=0)
    columns = rng.integers(len(row), size=4000)
    steps[np.arange(4000), columns] = space.shape.uniform(rng, 4000)[np.arange(4000), columns]
    steps = steps[(steps != row).any(axis=1)]
    for step, legal in zip(steps, space.legal(steps), strict=True):
        assert (step.tobytes() in near) == legal


def test_an_impossible_rule_is_told_at_once() -> None:
    from ir.errors import UsageError

    space = kernels(3, (12,))
    never = Constraint("never", "a of 10", lambda columns: columns["a.1"] > 9, str, ("a.1",))
    checked: list[int] = []

    def counted(columns: Columns) -> Any:
        checked.append(columns.rows)
        return columns["b.1"] >= 0

    count = Constraint("count", "anything", counted, str, ("a.1", "b.1"))
    space = replace(space, constraints=(*space.constraints, never, count))
    with pytest.raises(UsageError, match=r"the tightest, never \(a of 10\)"):
        space.sample(np.random.default_rng(0), 8)
    assert sum(checked) < 200_000


def test_other_processes_draw_the_same() -> None:
    program = (
        "import numpy as np\n"
        "from tests.space.test_parts import kernels\n"
        "space = kernels(5, (12, 36, 20))\n"
        "rng = np.random.default_rng(3)\n"
        "rows = space.sample(rng, 100)\n"
        "print(rows.tobytes().hex(), space.mutate(rng, rows).tobytes().hex())\n"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
    assert len(next(iter(told))) > 10_000


def held_by_trial(reads: Mask) -> list[int]:
    """What is held, found by leaving out every decision in turn."""
    found: list[int] = []
    reads = reads.copy()
    while True:
        sizes: dict[int, list[int]] = {}
        for column in np.flatnonzero(reads.sum(axis=0) > 1).tolist():
            here = next(g for g in groups_of(reads) if reads[g, column].any())
            rest = reads[here].copy()
            rest[:, column] = False
            sizes[column] = sorted(int(rest[g].any(axis=0).sum()) for g in groups_of(rest))
        apt = [column for column, each in sizes.items() if len(each) > 1 and each[-2] >= LEAST]
        if not apt:
            return sorted(found)
        found.append(min(apt, key=lambda c: (sizes[c][-1], -int(reads[:, c].sum()), c)))
        reads[:, found[-1]] = False


@given(st.integers(0, 10**6), st.floats(0.03, 0.3))
def test_what_is_held_is_what_leaves_the_smallest_parts(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    reads = rng.random((rng.integers(1, 12), rng.integers(1, 26))) < share
    assert parts_of(reads).held.tolist() == held_by_trial(reads)


def test_rows_of_a_small_lot_are_legal_and_many() -> None:
    space = kernels(8, (9, 20), early=False)
    rows = space.sample(np.random.default_rng(0), 200, lot=16)
    assert space.legal(rows).all()
    assert len(np.unique(rows, axis=0)) > 190


def test_what_a_pinned_space_knows_of_its_rules_is_what_the_whole_one_does() -> None:
    space = kernels(3, (9, 20, 31))
    space = replace(space, seeds=({"early": True, "a.0": 9}, {"early": False}))
    pinned = space.pin(early=True).pin({"a.0": 3})
    alone = replace(space, pins=pinned.pins)
    assert (pinned.reads == alone.reads).all()
    assert (pinned.seed_matrix == alone.seed_matrix).all()
    fewer = replace(pinned, constraints=pinned.constraints[:2])
    assert fewer.reads.shape == (2, len(space.decisions))
