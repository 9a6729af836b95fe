"""Masks as bounds of a reduced axis: checked against the points themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ir import Axis, Graph, Program, Tile, apply, contract, exp, maximum, minimum, reduce, where
from ir.oracle import evaluate, random_inputs
from ir.rewrite.domain import Condition, live_range, sufficient
from ir.rewrite.streaming import stream

Body = Callable[[Graph, Tile, Axis, Axis], Tile]
CAUSAL = Condition((("k", -1), ("q", 1)), 0)


def built(body: Body) -> Program:
    graph = Graph("masked")
    q, k = graph.axes(q=6, k=9)
    graph.output("out", body(graph, graph.input("x", (q, k), "f64"), q, k))
    return graph.program()


def causal(g: Graph, q: Axis, k: Axis) -> Tile:
    return g.iota(k) <= q


CASES: dict[str, tuple[Body, set[Condition]]] = {
    "zero": (lambda g, x, q, k: reduce("sum", where(causal(g, q, k), x, 0.0), k), {CAUSAL}),
    "largest": (
        lambda g, x, q, k: reduce("max", where(causal(g, q, k), x, -math.inf), k),
        {CAUSAL},
    ),
    "wrong identity": (lambda g, x, q, k: reduce("max", where(causal(g, q, k), x, 0.0), k), set()),
    "turned round": (
        lambda g, x, q, k: reduce("sum", where(g.iota(k) > q, 0.0, x), k),
        {CAUSAL},
    ),
    "negated": (
        lambda g, x, q, k: reduce("sum", where(~(g.iota(k) > q), x, 0.0), k),
        {CAUSAL},
    ),
    "either fails": (
        lambda g, x, q, k: reduce("sum", where((g.iota(k) > q) | (g.iota(k) < q - 2), 0.0, x), k),
        {CAUSAL, Condition((("k", 1), ("q", -1)), 2)},
    ),
    "diagonal": (
        lambda g, x, q, k: reduce("sum", where(apply("eq", g.iota(k), q), x, 0.0), k),
        {CAUSAL, Condition((("k", 1), ("q", -1)), 0)},
    ),
    "below the smaller": (
        lambda g, x, q, k: reduce("sum", where(g.iota(k) < minimum(g.iota(q) + 1, 7), x, 0.0), k),
        {CAUSAL, Condition((("k", -1),), 6)},
    ),
    "above the larger": (
        lambda g, x, q, k: reduce("sum", where(maximum(g.iota(q), 2) <= g.iota(k), x, 0.0), k),
        {Condition((("k", 1), ("q", -1)), 0), Condition((("k", 1),), -2)},
    ),
    "below what is partly known": (
        lambda g, x, q, k: reduce(
            "sum", where(g.iota(k) < minimum(g.iota(q) + 1, g.iota(q) * g.iota(q)), x, 0.0), k
        ),
        {CAUSAL},
    ),
    "below the larger": (
        lambda g, x, q, k: reduce("sum", where(g.iota(k) < maximum(g.iota(q) + 1, 7), x, 0.0), k),
        set(),
    ),
    "exponent": (
        lambda g, x, q, k: reduce("sum", exp(where(causal(g, q, k), x, -math.inf) * 0.5 - x), k),
        {CAUSAL},
    ),
    "negative slope": (
        lambda g, x, q, k: reduce("sum", exp(where(causal(g, q, k), x, -math.inf) * -0.5), k),
        set(),
    ),
    "clipped": (
        lambda g, x, q, k: reduce("sum", maximum(where(causal(g, q, k), x, -math.inf), 0.0), k),
        {CAUSAL},
    ),
    "undecided": (
        lambda g, x, q, k: reduce("sum", maximum(where(causal(g, q, k), x, -math.inf), x), k),
        set(),
    ),
    "data": (lambda g, x, q, k: reduce("sum", where(x < math.inf, x, 0.0), k), set()),
    "weaker of two": (
        lambda g, x, q, k: (
            reduce("sum", where(causal(g, q, k), x, 0.0), k)
            + reduce("sum", where(g.iota(k) <= q + 2, x, 0.0), k)
        ),
        {Condition((("k", -1), ("q", 1)), 2)},
    ),
    "one unmasked": (
        lambda g, x, q, k: (
            reduce("sum", where(causal(g, q, k), x, 0.0), k) + reduce("sum", x, k)
        ),
        set(),
    ),
    "strided": (
        lambda g, x, q, k: reduce("sum", where(k * 2 <= g.iota(q), x, 0.0), k),
        {Condition((("k", -2), ("q", 1)), 0)},
    ),
    "blocks": (
        lambda g, x, q, k: reduce("sum", where(g.iota(k) // 4 <= g.iota(q) // 4, x, 0.0), k),
        {Condition((("k", -1), ("q", 1)), 3)},
    ),
    "blocks before": (
        lambda g, x, q, k: reduce("sum", where(g.iota(k) >> 1 < g.iota(q) // 2, x, 0.0), k),
        {Condition((("k", -1), ("q", 1)), -1)},
    ),
    "blocks of two sizes": (
        lambda g, x, q, k: reduce("sum", where(g.iota(k) // 2 <= g.iota(q) // 3, x, 0.0), k),
        {Condition((("k", -3), ("q", 2)), 3)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_conditions(name: str) -> None:
    body, expected = CASES[name]
    program = built(body)
    assert set(live_range(program, "k")) == expected
    dead_points_do_not_matter(program)


def dead_points_do_not_matter(program: Program) -> None:
    """Other data at points outside the conditions gives the same results."""
    inputs = random_inputs(program, np.random.default_rng(0))
    q, k = np.meshgrid(np.arange(6), np.arange(9), indexing="ij")
    alive = np.ones((6, 9), dtype=bool)
    for condition in live_range(program, "k"):
        terms = dict(condition.terms)
        alive &= terms.get("k", 0) * k + terms.get("q", 0) * q + condition.constant >= 0
    other = {"x": np.where(alive, inputs["x"], 7.5)}
    found = evaluate(program, other)["out"]
    np.testing.assert_array_equal(found, evaluate(program, inputs)["out"])


def test_a_mask_below_an_inner_sum() -> None:
    def program(seen: Callable[[Graph, Axis, Axis, Axis], Tile]) -> Program:
        graph = Graph("inner")
        q, k, d = graph.axes(q=3, k=5, d=4)
        x, y = graph.input("x", (q, k, d), "f64"), graph.input("y", (k, d), "f64")
        masked = where(seen(graph, q, k, d), x, 0.0)
        graph.output("out", reduce("sum", contract(masked, y, d), k))
        return graph.program()

    assert live_range(program(lambda g, q, k, d: g.iota(k) <= q), "k") == (CAUSAL,)
    assert live_range(program(lambda g, q, k, d: g.iota(k) <= d), "k") == ()


def test_streaming_keeps_the_bounds() -> None:
    def body(g: Graph, x: Tile, q: Axis, k: Axis) -> Tile:
        scores = where(causal(g, q, k), x, -math.inf)
        return reduce("sum", exp(scores - reduce("max", scores, k)), k)

    assert live_range(built(body), "k") == live_range(stream(built(body)), "k") == (CAUSAL,)


def lengths_of(read: Callable[[Graph, Axis, Axis], Tile]) -> Program:
    graph = Graph("lengths")
    q, k = graph.axes(q=6, k=9)
    inside = graph.iota(k) < read(graph, q, k)
    graph.output("out", reduce("sum", where(inside, graph.input("x", (q, k), "f64"), 0.0), k))
    return graph.program()


def test_a_length_that_is_read_is_a_term() -> None:
    program = lengths_of(lambda g, q, k: g.input("n", (q,), "i32") + 1)
    (condition,) = live_range(program, "k")
    assert (condition.terms, condition.constant) == ((("k", -1),), 0)
    ((node, coefficient),) = condition.reads
    assert (program.nodes[node].op.name, coefficient) == ("load", 1)
    assert condition.varies("k")


def test_what_is_read_at_each_point_is_no_bound() -> None:
    assert live_range(lengths_of(lambda g, q, k: g.input("n", (k,), "i32")), "k") == ()


def test_what_is_read_as_a_fraction_is_no_bound() -> None:
    def read(g: Graph, q: Axis, k: Axis) -> Tile:
        return g.input("n", (q,), "f32")

    assert live_range(lengths_of(read), "k") == ()


@given(
    st.tuples(st.integers(1, 5), st.integers(1, 5)), st.integers(-3, 3),
    st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([1, 2])), st.booleans(), st.booleans(),
)  # fmt: skip
def test_quotients_are_bounded_from_both_sides(
    by: tuple[int, int], shift: int, times: tuple[int, int], less: bool, holds: bool
) -> None:
    """Where quotients compare so, all bounds hold; where those that suffice do, they compare so."""
    graph = Graph("masked")
    q, k = graph.axes(q=13, k=17)
    left = (graph.iota(k) * times[0] + shift) // by[0]
    right = (graph.iota(q) * times[1]) // by[1]
    test = left < right if less else left <= right
    x = graph.input("x", (q, k), "f32")
    graph.output("out", reduce("sum", where(test if holds else ~test, x, 0.0), over=k))
    program = graph.program()
    qs, ks = np.meshgrid(np.arange(13), np.arange(17), indexing="ij")
    one, other = (ks * times[0] + shift) // by[0], qs * times[1] // by[1]
    there = (one < other if less else one <= other) == holds

    def all_of(conditions: Sequence[Condition]) -> NDArray[np.bool_]:
        inside: NDArray[np.bool_] = np.ones((13, 17), dtype=bool)
        for condition in conditions:
            terms = dict(condition.terms)
            inside &= terms.get("k", 0) * ks + terms.get("q", 0) * qs + condition.constant >= 0
        return inside

    assert not (there & ~all_of(live_range(program, "k"))).any()
    compared = next(
        position
        for position, node in enumerate(program.nodes)
        if getattr(node.op, "function", "") == ("lt" if less else "le")
    )
    enough = sufficient(program, compared)
    assert enough is not None
    assert not (all_of(enough) & (there != holds)).any()


def test_a_bound_that_is_partly_known_is_not_sufficient() -> None:
    graph = Graph("masked")
    q, k = graph.axes(q=6, k=9)
    tests = [
        graph.iota(k) < minimum(graph.iota(q) + 1, 7),
        graph.iota(k) < minimum(graph.iota(q) * graph.iota(q), 7),
    ]
    for number, test in enumerate(tests):
        graph.output(f"out{number}", where(test, graph.constant(1.0, "f32"), 0.0))
    program = graph.program()
    where_nodes = [n for n in program.nodes if getattr(n.op, "function", "") == "where"]
    both, partly = (sufficient(program, node.args[0]) for node in where_nodes)
    assert both is not None
    assert set(both) == {CAUSAL, Condition((("k", -1),), 6)}
    assert partly is None
