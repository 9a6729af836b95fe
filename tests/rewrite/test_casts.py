"""Casts that round are not linear: what may pass them, and what must not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Axis, Graph, Program, Tile, absolute, cast, contract, exp, reduce, where
from ir.dtypes import holds, keeps_range
from ir.oracle import evaluate
from ir.registry import load_operator
from ir.rewrite.split import split
from ir.rewrite.streaming import stream, why_not

Body = Callable[[Graph, Tile, Tile, Axis], Tile]


def built(body: Body, dtype: str = "f32", k: int = 24) -> Program:
    graph = Graph("casts")
    i, axis = graph.axes(i=3, k=k)
    x, w = graph.input("X", (i, axis), dtype), graph.input("W", (axis,), dtype)
    graph.output("Y", body(graph, x, w, axis))
    return graph.program()


def quantised(g: Graph, x: Tile, w: Tile, k: Axis) -> Tile:
    scale = reduce("max", absolute(x), k) / 448.0
    return contract(cast(x / scale, "e4m3"), w, k) * scale


def quantised_by_a_product(g: Graph, x: Tile, w: Tile, k: Axis) -> Tile:
    scale = 448.0 / reduce("max", absolute(x), k)
    return contract(cast(scale * x, "f16"), w, k) / scale


def quantised_whole(g: Graph, x: Tile, w: Tile, k: Axis) -> Tile:
    scale = reduce("max", absolute(x), k) / 127.0
    return contract(cast(cast(x / scale, "i8"), "f32"), w, k) * scale


def differences(g: Graph, x: Tile, w: Tile, k: Axis) -> Tile:
    return reduce("sum", cast(x - reduce("sum", x, k) / 24.0, "bf16") * w, k)


def growing(g: Graph, x: Tile, w: Tile, k: Axis) -> Tile:
    """Relative to the minimum, weights are large, and grow: e4m3 ends at 448."""
    return contract(cast(exp(x - reduce("min", x, k)), "e4m3"), w, k)


def other_data(g: Graph, x: Tile, w: Tile, k: Axis) -> Tile:
    """Relative to the maximum of other numbers, they may be large too."""
    return contract(cast(exp(x - reduce("max", w, k)), "f16"), w, k)


REFUSED = (quantised, quantised_by_a_product, quantised_whole, growing, other_data)


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: body.__name__)
@pytest.mark.parametrize("size", [1e-6, 1e-4, 1.0, 1e4, 1e6])
@pytest.mark.alike(2)
def test_no_factor_passes_a_cast_that_rounds(body: Body, size: float) -> None:
    """The very roundings stay: with them, too, both programs mean the same."""
    program = built(body)
    assert why_not(program)
    streamed = stream(program)
    rng = np.random.default_rng(0)
    inputs = {
        "X": (rng.standard_normal((3, 24)) * size).astype(np.float32),
        "W": rng.standard_normal(24).astype(np.float32),
    }
    for rounds in (False, True):
        plain = evaluate(program, inputs, rounds=rounds)["Y"]
        found = evaluate(streamed, inputs, block=5, rounds=rounds)["Y"]
        np.testing.assert_allclose(found, plain, rtol=1e-12)


def test_a_quantising_scale_keeps_small_numbers() -> None:
    """x / s reaches 448 whatever the size of x; x alone would be rounded to 0."""
    program = built(quantised)
    inputs = {"X": np.full((3, 24), 1e-4, np.float32), "W": np.ones(24, np.float32)}
    found = evaluate(stream(program), inputs, rounds=True)["Y"]
    np.testing.assert_allclose(found, 24e-4, rtol=1e-6)


def test_a_difference_under_a_cast_is_not_rounded() -> None:
    """Rounded relative to a mean that moves, it would be off by what the mean was off."""
    program = built(differences)
    inputs = {
        "X": (1e6 * np.arange(72).reshape(3, 24)).astype(np.float32),
        "W": np.ones(24, np.float32),
    }
    found = evaluate(stream(program), inputs, block=1, rounds=True)["Y"]
    np.testing.assert_allclose(found, evaluate(program, inputs)["Y"], atol=1e-3)


def weights(dtype: str) -> Body:
    def body(g: Graph, x: Tile, w: Tile, k: Axis) -> Tile:
        seen = where(g.iota(k) < 20, x, float("-inf"))
        return contract(cast(exp((seen - reduce("max", seen, k)) * 0.5), dtype), w, k)

    return body


def kept(dtype: str) -> Body:
    """Weights of which every third is dropped, by what has nothing to do with their maximum."""

    def body(g: Graph, x: Tile, w: Tile, k: Axis) -> Tile:
        weight = exp(x - reduce("max", x, k))
        return contract(cast(where(g.iota(k) % 3 != 0, weight, 0.0), dtype), w, k)

    return body


@pytest.mark.parametrize("make", [weights, kept])
@pytest.mark.parametrize("dtype", ["e4m3", "f16", "bf16", "f32"])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e2, 1e6])
def test_weights_pass_any_cast(dtype: str, size: float, make: Callable[[str], Body]) -> None:
    """They are in [0, 1] and never grow, so what a cast is off stays below its last place."""
    program = built(make(dtype))
    parted = split(program, "k", 5)
    assert not why_not(program)
    assert not why_not(parted)
    rng = np.random.default_rng(1)
    inputs = {
        "X": (rng.standard_normal((3, 24)) * size).astype(np.float32),
        "W": rng.standard_normal(24).astype(np.float32),
    }
    last_place = {"e4m3": 2.0**-4, "f16": 2.0**-11, "bf16": 2.0**-8, "f32": 1e-12}[dtype]
    room = 3 * last_place * np.sum(np.abs(inputs["W"]))
    plain = evaluate(program, inputs)["Y"]
    for other in (stream(program), parted, stream(parted, frozenset({"k_part"}))):
        found = evaluate(other, inputs, block=3, rounds=True)["Y"]
        np.testing.assert_allclose(found, plain, atol=room)


def test_attention_of_any_type_is_streamed() -> None:
    for dtype in ("e4m3", "f16", "bf16", "f32"):
        arguments = {"b": 1, "heads": 1, "sq": 4, "sk": 7, "d": 4, "dtype": dtype}
        for name in ("attention", "dropout_attention"):
            program = load_operator(name).build(**arguments)
            assert not why_not(program)
            assert not why_not(split(program, "sk", 2))


def test_a_weight_must_be_masked_as_its_maximum_is() -> None:
    def body(g: Graph, x: Tile, w: Tile, k: Axis) -> Tile:
        top = reduce("max", where(g.iota(k) < 20, x, float("-inf")), k)
        return contract(cast(exp(x - top), "f16"), w, k)

    assert "rounds to f16" in str(why_not(built(body)))


@pytest.mark.parametrize(("target", "source", "exact", "alike"), [
    ("f64", "f32", True, True), ("f32", "bf16", True, True), ("f32", "i8", True, False),
    ("f64", "i32", True, False), ("tf32", "f16", True, True), ("bf16", "e4m3", True, True),
    ("f32", "i32", False, False), ("f16", "bf16", False, False), ("bf16", "f16", False, True),
    ("bf16", "f32", False, True), ("tf32", "f32", False, True), ("f16", "f32", False, False),
    ("f32", "f64", False, False),
])  # fmt: skip
def test_which_casts_change_nothing_or_a_share(
    target: str, source: str, exact: bool, alike: bool
) -> None:
    assert holds(target, source) == exact
    assert keeps_range(target, source) == alike
