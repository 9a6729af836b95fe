"""The streaming rewrite: what is derived, and that it means the same in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir.builder import Graph, cast, contract, reduce, where
from ir.functions import exp
from ir.oracle import evaluate, random_inputs
from ir.program import Program
from ir.registry import load_operator
from ir.rewrite.domain import Condition, live_range
from ir.rewrite.streaming import stream, why_not
from ir.tiles import Tile

BLOCKS = (1, 3, 4, 100)


def same(program: Program, blocks: tuple[int, ...] = BLOCKS, seed: int = 0) -> None:
    """Streamed and plain results agree to rounding, for every block size."""
    inputs = random_inputs(program, np.random.default_rng(seed))
    plain = evaluate(program, inputs)
    streamed = stream(program)
    for block in blocks:
        found = evaluate(streamed, inputs, block=block)
        for name, expected in plain.items():
            np.testing.assert_allclose(found[name], expected, rtol=1e-9, atol=1e-11)


def carries(program: Program) -> int:
    return sum(node.op.name == "carry" for node in stream(program).nodes)


@pytest.mark.parametrize(
    ("name", "arguments", "count"),
    [
        ("softmax", {"m": 3, "n": 17}, 2),
        ("layernorm", {"m": 3, "n": 17}, 4),
        ("attention", {"b": 1, "heads": 2, "sq": 11, "d": 4}, 3),
        ("attention", {"b": 1, "heads": 2, "sq": 11, "d": 4, "causal": True}, 3),
        (
            "attention",
            {
                "b": 1,
                "heads": 4,
                "kv_heads": 2,
                "sq": 19,
                "d": 4,
                "causal": True,
                "window": 3,
                "dtype": "bf16",
            },
            3,
        ),
        ("rmsnorm", {"m": 3, "n": 17}, 0),
        ("matmul", {"m": 3, "n": 4, "k": 5}, 0),
    ],
)
def test_operators_written_as_plain_maths(
    name: str, arguments: dict[str, object], count: int
) -> None:
    program = load_operator(name).build(**arguments)
    assert carries(program) == count
    same(program)


def chain(body: Callable[[Graph, Tile, Tile], Tile], i: int = 3, k: int = 13) -> Program:
    graph = Graph("chain")
    rows, axis = graph.axes(i=i, k=k)
    graph.output(
        "out", body(graph, graph.input("x", (rows, axis), "f64"), graph.input("y", (axis,), "f64"))
    )
    return graph.program()


def axis_of(graph: Graph):  # type: ignore[no-untyped-def]
    from ir.axes import Axis

    return Axis("k", graph._axes["k"])


def weighted(graph: Graph, x: Tile, y: Tile) -> Tile:
    k = axis_of(graph)
    top = reduce("max", x, k)
    return reduce("sum", exp((x - top) * 0.5) * y, k)


def normalised_inside(graph: Graph, x: Tile, y: Tile) -> Tile:
    k = axis_of(graph)
    top = reduce("max", x, k)
    p = exp(x - top)
    return contract(p / reduce("sum", p, k), y, k)


def covariance(graph: Graph, x: Tile, y: Tile) -> Tile:
    k = axis_of(graph)
    n = float(graph._axes["k"])
    return reduce("sum", (x - reduce("sum", x, k) / n) * (y - reduce("sum", y, k) / n), k)


def masked(graph: Graph, x: Tile, y: Tile) -> Tile:
    k = axis_of(graph)
    top = reduce("max", x, k)
    return reduce("sum", where(y < 0.5, exp(x - top), 0.0), k)


def two_levels(graph: Graph, x: Tile, y: Tile) -> Tile:
    k = axis_of(graph)
    top = reduce("max", x, k)
    total = reduce("sum", exp(x - top), k)
    return reduce("sum", exp(x - top) * y / total, k) + top


@pytest.mark.parametrize("body", [weighted, normalised_inside, covariance, masked, two_levels])
@given(i=st.integers(1, 4), k=st.integers(1, 20), block=st.integers(1, 21), seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_chains(
    body: Callable[[Graph, Tile, Tile], Tile], i: int, k: int, block: int, seed: int
) -> None:
    program = chain(body, i, k)
    assert carries(program) > 0
    same(program, (block,), seed)


def test_what_cannot_be_derived_stays_and_says_why() -> None:
    def body(graph: Graph, x: Tile, y: Tile) -> Tile:
        k = axis_of(graph)
        top = reduce("max", x, k)
        return reduce("sum", exp((x - top) * (x - top)) * y, k)

    program = chain(body)
    assert stream(program) is program
    (reason,) = why_not(program).values()
    assert "neither scales nor shifts" in reason


def test_a_running_variance_is_stable_far_from_zero() -> None:
    program = load_operator("layernorm").build(m=2, n=512)
    rng = np.random.default_rng(3)
    inputs = random_inputs(program, rng)
    inputs["X"] = (rng.standard_normal((2, 512)) + 1e3).astype(np.float32)
    plain = evaluate(program, inputs)["Y"]
    np.testing.assert_allclose(evaluate(stream(program), inputs, block=16)["Y"], plain, atol=1e-7)


def test_casts_are_transparent() -> None:
    def body(graph: Graph, x: Tile, y: Tile) -> Tile:
        k = axis_of(graph)
        return contract(cast(exp(x - reduce("max", x, k)), "bf16"), cast(y, "bf16"), k)

    assert carries(chain(body)) == 2


def test_masks_become_conditions() -> None:
    program = load_operator("attention").build(b=1, heads=1, sq=16, d=4, causal=True, window=4)
    assert set(live_range(stream(program), "sk")) == {
        Condition((("sk", -1), ("sq", 1)), 0),
        Condition((("sk", 1), ("sq", -1)), 3),
    }
    assert live_range(load_operator("softmax").build(m=3, n=4), "n") == ()


def differential(how: str) -> Program:
    """Two softmaxes, one of which is taken off the other, times values of bf16."""
    g = Graph("differential")
    i, j, d, e = g.axes(i=5, j=17, d=4, e=3)
    part = g.input("part", (), "f32")
    v = g.input("V", (j, e), "bf16")

    def weights(name: str) -> Tile:
        q, k = g.input(f"Q{name}", (i, d), "bf16"), g.input(f"K{name}", (j, d), "bf16")
        scores = contract(q, k, over=d)
        found = exp(scores - reduce("max", scores, over=j))
        return found / reduce("sum", found, over=j)

    one, other = weights("1"), part * weights("2")
    if how == "each":
        found = contract(cast(one, "bf16"), v, over=j) - contract(cast(other, "bf16"), v, over=j)
    else:
        found = contract(cast(one - other, "bf16"), v, over=j)
    g.output("O", found, "f32")
    return g.program()


def test_a_rounded_sum_that_is_multiplied_is_a_pass_of_its_own() -> None:
    """Its terms by themselves would be products of wider numbers."""
    program = differential("together")
    refused = why_not(program)
    assert len(refused) == 1
    assert "rounds to bf16 a sum" in next(iter(refused.values()))
    products = [n for n in stream(program).nodes if n.op.name == "contract" and n.axes[-1] == "e"]
    assert len(products) == 1


def test_a_number_goes_behind_a_rounded_sum() -> None:
    program = differential("each")
    assert not why_not(program)
    nodes = stream(program).nodes
    sums = [node for node in nodes if node.op.name == "carry" and "e" in node.axes]
    assert len(sums) == 2
    for node in sums:
        left, right = (nodes[arg] for arg in nodes[node.args[0]].args)
        assert {left.dtype, right.dtype} == {"bf16"}  # as tensor cores take them


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("times", [1.0, 0.5])
def test_a_mask_may_choose_either_value(turned: bool, times: float) -> None:
    """Weights that a mask leaves out, of a largest that it leaves out as well."""

    g = Graph("left_out")
    i, k = g.axes(i=3, k=13)
    x, y = g.input("x", (i, k), "f64"), g.input("y", (k,), "f64")

    def kept(value: Tile, outside: float) -> Tile:
        some = g.iota(k) == 5
        return where(some, outside, value) if turned else where(~some, value, outside)

    z = x * times
    weights = kept(exp(z - reduce("max", kept(z, -math.inf), over=k)), 0.0)
    g.output("out", reduce("sum", weights * y, over=k) / reduce("sum", weights, over=k))
    program = g.program()
    assert carries(program) == 3
    same(program)
