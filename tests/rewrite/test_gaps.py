"""Masks that leave two spans of an axis: checked against the points themselves, and run."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ir import Axis, Graph, Program, Tile, cast, contract, exp, reduce, where
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.rewrite.domain import Condition, live_gap
from ir.targets.cuda.rows.hardware import known_hardware
from tests.cuda.run import needs_compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

QUERIES, KEYS = 7, 12


def side(g: Graph, i: Axis, j: Axis, shape: tuple[str, int]) -> Tile:
    """A bound of the keys, from one side or both."""
    kind, width = shape
    near, beyond = g.iota(i) - g.iota(j) < width, g.iota(j) - g.iota(i) < width
    return {
        "first": g.iota(j) < width,
        "last": g.iota(j) >= width,
        "window": near,
        "causal": beyond,
        "both": near & beyond,
    }[kind]


SIDES = st.tuples(
    st.sampled_from(["first", "last", "window", "causal", "both"]), st.integers(-2, KEYS)
)


@given(parts=st.lists(SIDES, min_size=2, max_size=3), besides=st.lists(SIDES, max_size=1),
       turned=st.booleans())  # fmt: skip
def test_nothing_of_a_gap_matters(
    parts: list[tuple[str, int]], besides: list[tuple[str, int]], turned: bool
) -> None:
    g = Graph("gap")
    i, j = g.axes(i=QUERIES, j=KEYS)
    mask = side(g, i, j, parts[0])
    for part in parts[1:]:
        mask = mask | side(g, i, j, part)
    for part in besides:
        mask = mask & side(g, i, j, part)
    x = g.input("x", (i, j), "f64")
    picked = where(~mask, 0.0, x) if turned else where(mask, x, 0.0)
    g.output("out", reduce("sum", picked, over=j), "f64", (i,))
    program = g.program()
    gap = live_gap(program, "j")
    if gap is None:
        return

    def most(conditions: tuple[Condition, ...], i: int) -> list[int]:
        return [one.constant + dict(one.terms).get("i", 0) * i for one in conditions]

    inputs = {"x": np.ones((QUERIES, KEYS))}
    whole = evaluate(program, inputs)["out"]
    for number in range(QUERIES):
        end = max(most(gap.near, number)) + 1
        begin = min(-value for value in most(gap.far, number))
        keys = np.arange(KEYS)
        dead = (keys >= end) & (keys < begin)
        if gap.last:
            dead |= keys > max(end - 1, *most(gap.last, number))
        inputs["x"][number, dead] = 1e6
    assert np.array_equal(evaluate(program, inputs)["out"], whole)


def streaming(keys: int, window: int, first: int, causal: bool, dtype: str = "bf16") -> Program:
    """Attention of the first keys and of near ones, as models keep in their caches that stream."""
    g = Graph("streaming")
    h, i, j, d, e = g.axes(h=2, i=keys, j=keys, d=32, e=32)
    q, k = g.input("Q", (h, i, d), dtype), g.input("K", (h, j, d), dtype)
    near, beyond = g.iota(i) - g.iota(j) < window, g.iota(j) - g.iota(i) < window
    kept = (g.iota(j) < first) | (near if causal else near & beyond)
    kept = kept & (g.iota(j) <= i) if causal else kept
    s = where(kept, contract(q, k, over=d) * (1 / math.sqrt(32)), -math.inf)
    p = exp(s - reduce("max", s, over=j))
    v = g.input("V", (h, j, e), dtype)
    o = contract(cast(p, dtype), v, over=j) / reduce("sum", p, over=j)
    g.output("O", o, dtype, (h, i, e))
    return g.program()


SHAPES: dict[str, dict[str, Any]] = {
    "narrow": {"keys": 300, "window": 40, "first": 20, "causal": True},
    "wide": {"keys": 520, "window": 260, "first": 20, "causal": True},
    "both sides": {"keys": 300, "window": 30, "first": 70, "causal": False},
    "meeting": {"keys": 300, "window": 180, "first": 150, "causal": True},
}


def test_a_window_beside_the_first_keys_is_a_gap() -> None:
    gap = live_gap(streaming(**SHAPES["both sides"]), "j")
    assert gap is not None
    assert gap.near == (Condition((("j", -1),), 69),)
    assert gap.far == (Condition((("i", -1), ("j", 1)), 29),)
    assert gap.last == (Condition((("i", 1), ("j", -1)), 29),)


def test_a_prefix_is_none() -> None:
    g = Graph("prefix")
    i, j = g.axes(i=QUERIES, j=KEYS)
    kept = (g.iota(j) < 3) | (g.iota(j) <= i)
    x = where(kept, g.input("x", (i, j), "f32"), 0.0)
    g.output("out", reduce("sum", x, over=j), "f32", (i,))
    assert live_gap(g.program(), "j") is None


@needs_compiler
@pytest.mark.parametrize("card", ["h200", "a100"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.alike(2)
@draws(1, 5)
def test_main_loops_leave_gaps_out(shape: str, card: str, count: int) -> None:
    program = streaming(**SHAPES[shape])
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    hardware = HARDWARE if card == "h200" else known_hardware(card)
    space = BACKEND.space(program, hardware)
    engine = "wgmma" if card == "h200" else "mma_chained"
    route = {"form": "written", "residence": "usual", "engine": engine}
    space = space.pin({name: value for name, value in route.items() if name in space.names})
    for row in space.sample(np.random.default_rng(3), count):
        kernel = BACKEND.lower(program, space.schedule(row), hardware)
        assert re.search(r"const i32 j_gone = ", kernel.text("cuda"))
        assert not problems(program, kernel, inputs, wanted, 0)


def test_what_an_inner_sum_decides_is_no_gap() -> None:
    """An end of the far span that goes by a point summed below the mask says nothing of a row."""
    g = Graph("inner")
    i, j, t = g.axes(i=QUERIES, j=KEYS, t=4)
    near = (g.iota(i) - g.iota(j) < 3) & (g.iota(j) - g.iota(t) < 2)
    x = where((g.iota(j) < 2) | near, g.input("x", (i, j, t), "f32"), 0.0)
    g.output("out", reduce("sum", reduce("sum", x, over=t), over=j), "f32", (i,))
    assert live_gap(g.program(), "j") is None
