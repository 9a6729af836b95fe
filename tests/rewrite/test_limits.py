"""What is refused, what must not be mistaken, and how far rounding reaches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from ir import Axis, Graph, Program, Tile, carry, cast, contract, exp, log, reduce, where
from ir.ops.base import Environment, TileArray
from ir.ops.load import Load
from ir.ops.map import Cast, Constant
from ir.oracle import evaluate, random_inputs
from ir.registry import load_operator
from ir.rewrite.streaming import stream, why_not

Body = Callable[[Graph, Tile, Tile, Axis, Axis], Tile]


def built(body: Body) -> Program:
    graph = Graph("limits")
    i, k = graph.axes(i=3, k=13)
    x, y = graph.input("x", (i, k), "f64"), graph.input("y", (k,), "f64")
    graph.output("out", body(graph, x, y, i, k))
    return graph.program()


def same(program: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(0))
    plain = evaluate(program, inputs)["out"]
    for block in (1, 4, 13):
        found = evaluate(stream(program), inputs, block=block)["out"]
        np.testing.assert_allclose(found, plain, rtol=1e-9, atol=1e-10)


def through_two_axes(g: Graph, x: Tile, y: Tile, i: Axis, k: Axis) -> Tile:
    (d,) = g.axes(d=2)
    z = g.input("z", (k, d), "f64")
    total = reduce("sum", exp(x - reduce("max", x, k)) * z, (k, d))
    return reduce("sum", exp(x - total * 0.01), k)


def through_another_axis(g: Graph, x: Tile, y: Tile, i: Axis, k: Axis) -> Tile:
    top = reduce("max", x, k)
    total = reduce("sum", exp(top - reduce("max", top, i)), i)
    return reduce("sum", exp(x - top) * exp(y - total), k)


def through_a_carry(g: Graph, x: Tile, y: Tile, i: Axis, k: Axis) -> Tile:
    top = reduce("max", x, k)
    written = carry("sum", exp(x - top), k)
    return reduce("sum", exp(x - top) / written * exp(x - written * 0.1), k)


def a_product(g: Graph, x: Tile, y: Tile, i: Axis, k: Axis) -> Tile:
    return reduce("prod", x - reduce("max", x, k), k)


def an_order_that_changes(g: Graph, x: Tile, y: Tile, i: Axis, k: Axis) -> Tile:
    return reduce("max", exp(x - reduce("max", x, k)) * y, k)


def many_shifts(g: Graph, x: Tile, y: Tile, i: Axis, k: Axis) -> Tile:
    return reduce("sum", (x - reduce("max", x, k)) ** 6, k)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (through_two_axes, "node 6 is reduced over k and d together"),
        (through_another_axis, "moves through node 3, a reduce"),
        (through_a_carry, "carried as written"),
        (a_product, "a prod over k of values that move with node 1"),
        (an_order_that_changes, "whose order may change"),
        (many_shifts, "needs 64 states"),
    ],
)
def test_refused_with_a_reason(body: Body, reason: str) -> None:
    program = built(body)
    assert any(reason in text for text in why_not(program).values()), why_not(program)
    same(program)


def entropy(g: Graph, x: Tile, y: Tile, i: Axis, k: Axis) -> Tile:
    centred = x - reduce("max", x, k)
    total = reduce("sum", exp(centred), k)
    return reduce("sum", exp(centred) / total * (centred - log(total)), k)


def log_sum_exp(g: Graph, x: Tile, y: Tile, i: Axis, k: Axis) -> Tile:
    top = reduce("max", x, k)
    return log(reduce("sum", exp(x - top), k)) + top


def third_moment(g: Graph, x: Tile, y: Tile, i: Axis, k: Axis) -> Tile:
    return reduce("sum", (x - reduce("sum", x, k) / 13.0) ** 3, k)


def largest_weight(g: Graph, x: Tile, y: Tile, i: Axis, k: Axis) -> Tile:
    weight = exp(x - reduce("max", x, k))
    return reduce("max", weight / reduce("sum", weight, k), k)


def weights_masked_twice(g: Graph, x: Tile, y: Tile, i: Axis, k: Axis) -> Tile:
    """The first keys are masked, so the running total is 0 for a while."""
    seen = g.iota(k) > 5
    weight = where(seen, exp(x - reduce("max", x, k)), 0.0)
    return reduce("sum", where(seen, weight / reduce("sum", weight, k), 0.0) * y, k)


@pytest.mark.parametrize(
    ("body", "states"),
    [
        (entropy, 4),
        (log_sum_exp, 2),
        (third_moment, 5),
        (largest_weight, 3),
        (weights_masked_twice, 3),
    ],
)
def test_derived(body: Body, states: int) -> None:
    program = built(body)
    assert why_not(program) == {}
    assert sum(node.op.name == "carry" for node in stream(program).nodes) == states
    same(program)


def test_narrow_operands_reach_the_product() -> None:
    """Weights normalised inside the sum: the division moves out, the rounding stays."""
    graph = Graph("literal")
    i, k, d = graph.axes(i=3, k=13, d=2)
    x, v = graph.input("x", (i, k), "bf16"), graph.input("v", (k, d), "bf16")
    weight = exp(x - reduce("max", x, k))
    normal = cast(weight / reduce("sum", weight, k), "bf16")
    graph.output("out", contract(normal, v, k))
    streamed = stream(graph.program())
    bodies = [streamed.nodes[n.args[0]] for n in streamed.nodes if n.op.name == "carry"]
    products = [b for b in bodies if getattr(b.op, "function", "") == "mul"]
    assert [[streamed.nodes[arg].dtype for arg in p.args] for p in products] == [["bf16", "bf16"]]


def test_a_state_accumulates_in_the_type_asked_for() -> None:
    graph = Graph("wide")
    i, k = graph.axes(i=3, k=13)
    x = graph.input("x", (i, k), "f32")
    graph.output("out", contract(exp(x - reduce("max", x, k)), x, k, acc="f64"))
    streamed = stream(graph.program())
    assert [n.dtype for n in streamed.nodes if n.op.name == "carry"] == ["f32", "f64"]


def _in_single(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the oracle compute in float32: leaves are float32, and numpy keeps to it."""
    for op in (Load, Constant, Cast):
        exact = op.meaning

        def rounded(
            self: object, args: Sequence[TileArray], env: Environment, exact: object = exact
        ) -> TileArray:
            tile = exact(self, args, env)  # type: ignore[operator]
            wide = tile.array.dtype == np.float64
            return TileArray(tile.axes, tile.array.astype(np.float32) if wide else tile.array)

        monkeypatch.setattr(op, "meaning", rounded)


@pytest.mark.parametrize("block", [1, 7, 64, 512])
def test_a_variance_far_from_zero_in_single(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Mean 1000, deviation 1: sums of squares would have no digit left."""
    graph = Graph("variance")
    i, k = graph.axes(i=4, k=512)
    x = graph.input("X", (i, k), "f32")
    centred = x - reduce("sum", x, k) * (1.0 / 512)
    graph.output("out", reduce("sum", centred * centred, k) * (1.0 / 512))
    mean = reduce("sum", x, k) * (1.0 / 512)
    graph.output("squares", reduce("sum", x * x, k) * (1.0 / 512) - mean * mean)
    rng = np.random.default_rng(3)
    inputs = {"X": (rng.standard_normal((4, 512)) + 1e3).astype(np.float32)}
    expected = evaluate(graph.program(), inputs)["out"]
    _in_single(monkeypatch)
    found = evaluate(stream(graph.program()), inputs, block=block)
    np.testing.assert_allclose(found["out"], expected, rtol=1e-4)
    assert np.max(np.abs(found["squares"] / expected - 1)) > 1e-3  # it is single, and it matters


def test_the_layernorm_operator_is_carried() -> None:
    program = load_operator("layernorm").build(m=2, n=8)
    assert why_not(program) == {}
