"""What values are at least, and roots that are not in doubt below it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from ir import (
    Graph,
    absolute,
    cast,
    contract,
    cos,
    exp,
    log,
    maximum,
    minimum,
    philox_uniform,
    reduce,
    sigmoid,
    sqrt,
)
from ir.axes import Axis
from ir.floors import floors
from ir.inputs import drawn_inputs
from ir.oracle import evaluate
from ir.tiles import Tile
from tests.judging import bounds_of


def least(made: Tile) -> float:
    """Of a tile over (i, j), as the output of a program of its own."""
    g = made.graph
    g.output("Y", made, made.dtype)
    program = g.program()
    return floors(program)[-2]


def tile(dtype: str = "f32") -> Tile:
    g = Graph("least")
    i, j = g.axes(i=3, j=4)
    return g.input("X", (i, j), dtype)


def drawn_share(x: Tile) -> Tile:
    return philox_uniform(x.graph.coordinate(Axis("i", 3) * 4 + Axis("j", 4)), seed=3)


CASES: dict[str, tuple[Callable[[Tile], Tile], float]] = {
    "maximum": (lambda x: maximum(x, 0.0), 0.0),
    "shifted": (lambda x: maximum(x, 0.0) + 0.5, 0.5),
    "rooted": (lambda x: sqrt(maximum(x, 0.25)), 0.5),
    "exponential": (lambda x: exp(x) * exp(x - 1.0), 0.0),
    "share": (lambda x: sigmoid(x) / (absolute(x) + 1.0), 0.0),
    "smaller": (lambda x: minimum(maximum(x, 0.5), 2.0), 0.5),
    "input": (lambda x: x, -math.inf),
    "difference": (lambda x: maximum(x, 0.0) - 1.0, -1.0),
    "rounded": (lambda x: cast(maximum(x, 0.35), "bf16"), 0.0),  # 0.35 is less in bf16
    "logarithm": (lambda x: log(exp(x)), -math.inf),
    "share of one": (lambda x: -2.0 * log(sigmoid(x) * 0.0 + 1.0), -math.inf),  # may round up
    "drawn": (lambda x: -2.0 * log(1.0 - drawn_share(x)), 0.0),
    "drawn, above nothing": (lambda x: 1.0 - drawn_share(x), 2.0**-24),
    "negative": (lambda x: -minimum(x, 0.0) * 3.0, 0.0),
    "smaller by less": (lambda x: 2.0 - minimum(x, 1.5), 0.5 - 2.0**-21),
    "nearly nothing": (lambda x: maximum(x, 1.0) - 0.99999999, 1.0 - 0.99999999 - 2.0**-22),
    "square": (lambda x: x * x, -math.inf),  # kernels may find variances as differences
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_least(name: str) -> None:
    make, expected = CASES[name]
    assert least(make(tile() + 0.0)) == expected


def test_whole_numbers_may_wrap() -> None:
    whole = tile("i32")
    assert least(maximum(whole, 0) + 1) == -math.inf


def test_roots_of_what_rounds_to_nothing_are_known() -> None:
    """Distances of points to themselves: a difference of squares that is cut off at 0."""
    g = Graph("distances")
    i, j, d = g.axes(i=6, j=6, d=32)
    x = g.tensor("X", (6, 32), "f32")
    left, right = x[i, d], x[j, d]
    norms = reduce("sum", left * left, over=d) + reduce("sum", right * right, over=d)
    square = norms - contract(left, right, over=d) * 2.0
    g.output("D", sqrt(maximum(square, 0.0)), "f32", (i, j))
    program = g.program()
    inputs = drawn_inputs(program, 1)
    bounds = bounds_of(program, inputs)["D"]
    assert np.isfinite(bounds.low).all()
    assert np.isfinite(bounds.high).all()
    (exact,) = evaluate(program, inputs).values()
    found = exact.astype(np.float32)
    assert bounds.judge(found).right
    assert not bounds.judge(np.where(np.eye(6, dtype=bool), np.float32(0.5), found)).right


def test_normal_numbers_of_two_shares_are_known_everywhere() -> None:
    """Box and Muller: the root of what is at least 0, at the share that is drawn as 0, too."""
    g = Graph("normal")
    i, j = g.axes(i=1 << 16, j=64)  # one of 2^24 shares is 0
    place = g.coordinate(i * 64 + j)
    radius = sqrt(-2.0 * log(1.0 - philox_uniform(place, seed=3)))
    z = radius * cos(6.2831853 * philox_uniform(place, stream=1, seed=3))
    g.output("S", reduce("sum", z * z, over=(i, j)), "f32", ())
    (bounds,) = bounds_of(g.program(), {}).values()
    assert bounds.unbounded == 0
