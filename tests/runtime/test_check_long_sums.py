"""Of long sums the check admits what blocked summation is off by, and no bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from explorer.check import Bounds
from ir import Graph, operator, reduce, scan
from ir.oracle import Answer
from ir.propagation import reach
from ir.propagation_sums import accumulated
from ir.roundoff import ROUNDED, Accumulation
from tests.judging import bounds_of

Array = Any
N = 1 << 22


@operator
def squares(g: Graph, n: int, prefixes: bool = False) -> None:
    """The sum of squares, or all sums on the way to it."""
    (axis,) = g.axes(n=n)
    x = g.input("X", (axis,), "f32")
    g.output("S", scan("sum", x * x, axis)[0] if prefixes else reduce("sum", x * x, over=axis))


def bounds(n: int = N, prefixes: bool = False) -> tuple[Bounds, Array]:
    """Of what may be off, and the terms."""
    x = np.random.default_rng(0).random(n, np.float32)
    return bounds_of(squares.build(n=n, prefixes=prefixes), {"X": x})["S"], x * x


def one_by_one(terms: Array) -> Array:
    """Sums of rows, added up in f32 one term after the other."""
    found: Array = np.add.accumulate(terms, axis=-1, dtype=np.float32)[..., -1]
    return found


def test_a_plain_chain_over_a_long_sum_is_refused() -> None:
    within, terms = bounds()
    assert not within.judge(one_by_one(terms)).right


@pytest.mark.parametrize("run", [1 << 6, 1 << 12, 1 << 14, 1 << 16])
def test_sums_by_runs_are_right(run: int) -> None:
    within, terms = bounds()
    assert within.judge(one_by_one(one_by_one(terms.reshape(-1, run)))).right


@pytest.mark.parametrize("lanes", [64, 1024])
def test_short_chains_side_by_side_are_right(lanes: int) -> None:
    """As threads of a block add, each its share."""
    within, terms = bounds()
    assert within.judge(one_by_one(one_by_one(terms.reshape(-1, lanes).T))).right


def test_a_thousandth_of_a_long_sum_is_too_much() -> None:
    n = 120_000_000
    total = np.array(float(n))
    error = accumulated(np.sqrt(total), total, n, ROUNDED["f32"])
    around = Bounds.around(Answer(total, np.asarray(reach(error))), "f32")
    assert not around.judge(np.asarray(total * (1 - 1e-3), np.float32)).right
    assert around.judge(np.asarray(total * (1 - 1e-5), np.float32)).right


def test_sums_on_the_way_are_of_one_chain() -> None:
    within, terms = bounds(prefixes=True, n=1 << 20)
    assert within.judge(np.add.accumulate(terms, dtype=np.float32)).right


def test_how_many_roundings_count() -> None:
    assert [ROUNDED["f32"].in_a_row(n) for n in (1, 100, 1 << 14)] == [1, 100, 1 << 14]
    assert ROUNDED["f32"].in_a_row(1 << 28) == 2**14 + 2**14
    assert ROUNDED["f64"].in_a_row(1 << 40) == 1 << 40
    assert Accumulation(2.0**-24, 8).in_a_row(1 << 15) == 1 << 12
