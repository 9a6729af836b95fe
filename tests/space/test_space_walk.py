"""Spaces: drawing, legality, pins, variation, and what a space says about itself."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir.errors import UsageError
from ir.schedule import Schedule, Value
from ir.space import Columns, Constraint, Decision, Space
from ir.summary import legal_share
from tests.space.toy import small_space, tiling_space


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Small spaces over numbers, flags and words under one or two sums."""
    domains = st.one_of(
        st.lists(st.integers(0, 64), min_size=1, max_size=6, unique=True).map(
            lambda values: tuple(sorted(values))
        ),
        st.just((False, True)),
        st.sampled_from((("a",), ("a", "b"), ("a", "b", "c", "d"))),
    )
    drawn = draw(st.lists(domains, min_size=1, max_size=6))
    decisions = tuple(
        Decision(f"d{n}", domain, "tile", f"o{n % 2}", "why") for n, domain in enumerate(drawn)
    )
    numbers = [d.name for d in decisions if d.numeric]
    anchor = sum(min(map(int, d.domain)) for d in decisions if d.numeric)
    limit = anchor + draw(st.integers(0, 80))

    def check(columns: Columns) -> Any:
        return sum((columns[name] for name in numbers), np.zeros(columns.rows)) <= limit

    return Space("toy", decisions, (Constraint("sum", "a small sum", check, lambda v: "sum"),))


SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=35, deadline=None)
@given(spaces(), SEEDS)
def test_samples_are_legal_and_round_trip(space: Space, seed: int) -> None:
    rows = space.sample(np.random.default_rng(seed), 40)
    assert space.legal(rows).all()
    assert not space.violations(rows).any()
    for row in rows[:5]:
        schedule = space.schedule(row)
        assert (space.encode(schedule) == row).all()
        assert (space.encode(Schedule.from_json(schedule.to_json())) == row).all()
        assert space.refusal(schedule) is None


@settings(max_examples=35, deadline=None)
@given(spaces(), SEEDS, st.floats(1, 6))
def test_variation_stays_in_the_domain_and_obeys_pins(
    space: Space, seed: int, strength: float
) -> None:
    rng = np.random.default_rng(seed)
    schedule = space.schedule(space.sample(rng, 1)[0])
    name = space.names[seed % len(space.names)]
    space = space.pin({name: schedule[name]})
    rows, column = space.sample(rng, 32), space.names.index(name)
    mutants = space.mutate(rng, rows, strength)
    children = space.crossover(rng, rows, mutants)
    sizes = np.array([len(decision.domain) for decision in space.decisions])
    for matrix in (rows, mutants, children):
        assert matrix.dtype == np.int16
        assert matrix.shape == rows.shape
        assert (matrix >= 0).all()
        assert (matrix < sizes).all()
        assert (matrix[:, column] == dict(space.pins)[name]).all()
    assert ((children == rows) | (children == mutants)).all()


def test_mutation_changes_about_as_many_decisions_as_asked() -> None:
    space, rng = tiling_space(), np.random.default_rng(0)
    rows = space.sample(rng, 4000)
    changed = (space.mutate(rng, rows, 2.0) != rows).sum(axis=1)
    assert changed.min() >= 1
    assert 1.7 < changed.mean() < 2.5
    only = np.zeros(len(space.names))
    only[3] = 1.0
    first = (space.mutate(rng, rows, 1.0, only) != rows).mean(axis=0)
    assert first[3] == 1.0


def test_sampling_is_fast_and_wide_where_few_draws_are_legal() -> None:
    space, rng = tiling_space(), np.random.default_rng(0)
    assert legal_share(space, rng) < 0.01
    space.sample(rng, 64)
    started = time.process_time()
    rows = space.sample(rng, 20_000)
    assert 20_000 / (time.process_time() - started) > 50_000
    assert space.legal(rows).all()
    assert len(np.unique(rows, axis=0)) > 18_000


def test_where_repair_is_slow_rows_walk_from_those_found() -> None:
    space = tiling_space()
    rare = Constraint("rare", "64", _exactly_64, lambda values: "not 64")
    space = replace(space, constraints=(*space.constraints, rare))
    rows = space.sample(np.random.default_rng(0), 8000)
    assert space.legal(rows).all()
    assert len(np.unique(rows, axis=0)) > 4000


def _exactly_64(columns: Columns) -> Any:
    area = columns["tile.m.1"] * columns["tile.n.1"] == 1 << 14
    return area & (columns["unroll.k"] * columns["tile.m.2"] * columns["tile.n.2"] == 64)


def test_repaired_draws_look_like_rejected_ones() -> None:
    space, rng = tiling_space(), np.random.default_rng(1)
    draws = space.shape.draw(rng, 1_000_000)
    honest, ours = draws[space.legal(draws)], space.sample(rng, 10_000)
    for column, decision in enumerate(space.decisions):
        bins = len(decision.domain)
        left = np.bincount(honest[:, column], minlength=bins) / len(honest)
        right = np.bincount(ours[:, column], minlength=bins) / len(ours)
        assert 0.5 * np.abs(left - right).sum() < 0.3, decision.name


def test_constraints_find_out_what_they_read() -> None:
    space = tiling_space()
    names = np.array(space.names)
    reads = {c.name: set(names[space.reads[n]]) for n, c in enumerate(space.constraints)}
    assert reads["threads"] == {"threads.m", "threads.n"}
    assert reads["pack-order"] == {"pack.B", "order"}


def test_refusal_names_the_constraint_and_gives_numbers() -> None:
    space = tiling_space()
    row = space.sample(np.random.default_rng(0), 1)[0]
    values = space.schedule(row).as_dict() | {"tile.m.1": 1024, "tile.k.1": 1024, "tile.m.2": 4}
    rules = tuple(rule for rule in space.constraints if rule.name == "cache")
    refusal = replace(space, constraints=rules).refusal(Schedule.of("toy", values))
    assert refusal is not None
    assert refusal.constraint == "cache"
    assert str(refusal) == "cache: block of A: 4,194,304 B needed, 524,288 B there"


def test_pins_hold_and_accept_text() -> None:
    space = tiling_space().pin({"tile.m.1": "64", "pack.B": "true", "order": "nkm"})
    rows = space.sample(np.random.default_rng(0), 200)
    values = space.columns(rows)
    assert (values["tile.m.1"] == 64).all()
    assert (values["pack.B"] == 1).all()
    assert values.is_("order", "nkm").all()
    assert not values.is_("order", "mnk").any()
    assert space.size * 7 * 2 * 6 == tiling_space().size
    assert space.pinned == {"tile.m.1": 64, "pack.B": True, "order": "nkm"}


@pytest.mark.parametrize(
    ("pins", "says"),
    [
        ({"tile.m1": 64}, "no decision 'tile.m1' in this space; the nearest is 'tile.m.1'"),
        ({"tile.n.2": 7}, "tile.n.2: 7 is not in its domain: 1, 2, 3, 4, 5, 6, 8"),
        ({"order": "abc"}, "order: 'abc' is not in its domain: mnk, mkn"),
    ],
)
def test_bad_pins_are_refused_in_words(pins: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says.replace(".", r"\.")):
        tiling_space().pin(pins)


def test_pins_that_leave_nothing_legal_are_named() -> None:
    space = tiling_space().pin({"threads.m": 1, "threads.n": 1})
    with pytest.raises(
        UsageError, match=r"threads.m=1, threads.n=1 pinned; the tightest, threads \(16 threads"
    ):
        space.sample(np.random.default_rng(0), 4)


def test_encode_refuses_what_is_not_of_the_space() -> None:
    space = small_space()
    whole: dict[str, Value] = {"x": 1, "y": 1, "mode": "fast"}
    cases: dict[str, dict[str, Value]] = {
        "leaves open: mode": {"x": 1, "y": 1},
        "no decision 'z'": whole | {"z": 1},
        "is not in its domain": whole | {"x": 9},
    }
    for says, values in cases.items():
        with pytest.raises(UsageError, match=says):
            space.encode(Schedule.of("toy", values))
    with pytest.raises(UsageError, match="for 'cuda' in a space for 'toy'"):
        space.encode(Schedule.of("cuda", whole))
    with pytest.raises(UsageError, match="where 2 is pinned"):
        space.pin(x=2).encode(Schedule.of("toy", whole))


def test_exhaustive_lists_every_legal_row_once() -> None:
    space = small_space()
    rows = np.concatenate(list(space.exhaustive(chunk=7)))
    assert len(rows) == len(np.unique(rows, axis=0)) == 31
    sampled = space.sample(np.random.default_rng(0), 2000)
    assert len(np.unique(sampled, axis=0)) == 31
    assert len(np.concatenate(list(space.pin(x=3).exhaustive()))) == 9


def test_neighbours_are_legal_and_one_decision_away() -> None:
    space = tiling_space()
    row = space.sample(np.random.default_rng(2), 1)[0]
    near = space.neighbours(row)
    assert len(near)
    assert space.legal(near).all()
    assert ((near != row).sum(axis=1) == 1).all()
    assert len(np.unique(near, axis=0)) == len(near)


def test_seeds_fill_gaps_obey_pins_and_become_legal() -> None:
    base = tiling_space()
    space = replace(base, seeds=({"tile.m.2": 8}, {"tile.m.2": 16, "tile.n.2": 8}))
    rows = space.pin({"unroll.k": 8}).seed_rows(np.random.default_rng(0))
    assert len(rows) == 2
    assert space.legal(rows).all()
    assert (space.columns(rows)["unroll.k"] == 8).all()
    assert space.columns(rows)["tile.m.2"][0] == 8
    assert len(base.seed_rows(np.random.default_rng(0))) == 1


def test_columns_refuse_to_compare_words_by_accident() -> None:
    space = small_space()
    columns = space.columns(space.sample(np.random.default_rng(0), 8))
    with pytest.raises(TypeError, match="is_"):
        columns["mode"]
    assert set(columns.codes("mode")) <= {0, 1, 2}
    assert (columns.lookup("mode", {"fast": 2.5}) == 2.5 * columns.is_("mode", "fast")).all()


def test_a_space_describes_itself() -> None:
    summary = small_space().describe(np.random.default_rng(0))
    assert summary.exact
    assert summary.size == 60
    assert summary.legal == 31
    shares = {name: share for name, _, share in summary.removed}
    assert abs(shares["sum"] - 0.3) < 0.02
    assert abs(shares["odd"] - 4 / 15) < 0.02
    large = tiling_space().describe(np.random.default_rng(0))
    assert not large.exact
    assert 1.2e6 < large.legal < 1.7e6


def test_independent_constraints_are_estimated_apart() -> None:
    decisions = tuple(
        Decision(f"d{n}", tuple(range(100)), "tile", f"o{n}", "why") for n in range(6)
    )

    def equal(left: str, right: str) -> Constraint:
        return Constraint(left, "pairs", lambda c: c[left] == c[right], lambda v: "differ")

    space = Space("toy", decisions, (equal("d0", "d1"), equal("d2", "d3"), equal("d4", "d5")))
    rng = np.random.default_rng(0)
    assert 0.8e-6 < legal_share(space, rng) < 1.2e-6
    assert space.legal(space.sample(rng, 500)).all()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"domain": ()}, "at least one"),
        ({"domain": (1, 1)}, "each once"),
        ({"domain": (1.5,)}, "Python integers"),
        ({"group": "colour"}, "is none of"),
        ({"initial": 9}, "not in the domain"),
    ],
)
def test_a_decision_checks_itself(change: dict[str, Any], says: str) -> None:
    fields: dict[str, Any] = {
        "name": "x",
        "domain": (1, 2),
        "group": "tile",
        "owner": "m",
        "why": "because",
    }
    with pytest.raises(ValueError, match=says):
        Decision(**(fields | change))


def test_parts_that_are_rarely_right_are_pieced_together() -> None:
    """Twelve kernels, say, with 1 of 729 schedules each: no draw is right in all of them."""
    names = [f"{letter}{part}" for part in range(12) for letter in "abc"]
    decisions = tuple(Decision(name, tuple(range(9)), "tile", name, "points") for name in names)

    def all_of(part: int) -> Constraint:
        own = tuple(f"{letter}{part}" for letter in "abc")

        def check(columns: Columns) -> Any:
            return np.all([columns[name] == 7 for name in own], axis=0)

        return Constraint(f"all.{part}", "all are 7", check, lambda _: "not 7", own)

    space = Space("toy", decisions, tuple(map(all_of, range(12))))
    rows = space.sample(np.random.default_rng(0), 64)
    assert rows.shape == (64, 36)
    assert space.legal(rows).all()
