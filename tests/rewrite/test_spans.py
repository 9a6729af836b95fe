"""Values lie within the spans that are told of them, whatever the inputs are."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from ir import Graph, absolute, cast, contract, exp, maximum, minimum, reduce, sigmoid, tanh, where
from ir.axes import Axis
from ir.rewrite.spans import Span, spans_of
from ir.tiles import Tile

Values = dict[str, Tile]


def last(tile: Tile) -> Span:
    tile.graph.output("O", tile)
    program = tile.graph.program()
    return spans_of(program)[program.nodes[-1].args[0]]


def scene() -> tuple[Axis, Axis, Values]:
    g = Graph("scene")
    i, j = g.axes(i=5, j=7)
    x, b = g.input("X", (i, j), "f32"), g.input("B", (i, j), "i8")
    return i, j, {"x": x, "b": cast(b, "f32"), "i": cast(g.iota(i), "f32"), "t": tanh(x)}


CASES: dict[str, tuple[Callable[[Values], Tile], float, float]] = {
    "tangent": (lambda v: v["t"] * 50.0, -50.0, 50.0),
    "share": (lambda v: sigmoid(v["x"]) + 1.0, 1.0, 2.0),
    "bytes": (lambda v: v["b"] * -0.5, -63.5, 64.0),
    "places": (lambda v: v["i"] / 4.0, 0.0, 1.0),
    "size": (lambda v: absolute(v["b"]), 0.0, 128.0),
    "clamped": (lambda v: maximum(minimum(v["x"], 3.0), -2.0), -2.0, 3.0),
    "chosen": (lambda v: where(v["x"] > 0.0, v["i"], v["t"]), -1.0, 4.0),
    "grown": (lambda v: exp(v["t"]), math.exp(-1), math.e),
    "less": (lambda v: v["i"] - v["t"], -1.0, 5.0),
    "halves": (lambda v: cast(v["t"] * 50.0, "bf16"), -50.0, 50.0),
}


def counted() -> Values:
    g = Graph("counted")
    (i,) = g.axes(i=5)
    w, n = cast(g.input("W", (i,), "u8"), "i32"), g.input("n", (i,), "i32")
    return {"w": w, "i": g.iota(i), "n": n}


WHOLE: dict[str, tuple[Callable[[Values], Tile], float, float]] = {
    "widened": (lambda v: v["w"], 0, 255),
    "nibble": (lambda v: (v["n"] & 15) - 8, -8, 7),
    "high": (lambda v: v["w"] >> 4, 0, 15),
    "rest": (lambda v: v["n"] % 7, 0, 6),
    "third": (lambda v: v["w"] // 3 - v["i"], -4, 85),
    "joined": (lambda v: v["w"] | (v["i"] << 0), 0, 2**31 - 1),
    "either": (lambda v: v["w"] ^ 256, 0, 511),
    "size": (lambda v: absolute(-v["w"] - 1), 1, 256),
    "scaled": (lambda v: v["w"] * -2, -510, 0),
    "byte": (lambda v: cast((v["n"] & 15) - 8, "i8"), -8, 7),
    "cut": (lambda v: cast(v["w"], "i8"), -128, 127),
    "beyond": (lambda v: v["n"] + 1, -(2**31), 2**31 - 1),
}


@pytest.mark.parametrize("name", WHOLE)
def test_ends_of_whole_numbers(name: str) -> None:
    made, least, most = WHOLE[name]
    found = last(made(counted()))
    assert found.least <= least
    assert most <= found.most
    if name not in ("joined", "size"):
        assert (found.least, found.most) == (least, most)


@pytest.mark.parametrize("name", CASES)
def test_ends_go_through_functions(name: str) -> None:
    made, least, most = CASES[name]
    found = last(made(scene()[2]))
    assert found.known
    assert not found.hole
    assert least - 1 <= found.least <= least
    assert most <= found.most <= most + 1


def test_sums_have_as_many_times_the_ends() -> None:
    i, _, v = scene()
    found = last(reduce("sum", v["t"], over=i))
    assert found.least <= -5 <= 5 <= found.most < 6
    _, j, v = scene()
    found = last(contract(v["t"], sigmoid(v["x"]), over=j))
    assert found.least <= -7 <= 7 <= found.most < 8
    _, j, v = scene()
    assert last(reduce("max", v["t"], over=j)) == Span(-1.0, 1.0)


OPEN: dict[str, Callable[[Values], Tile]] = {
    "loaded": lambda v: v["x"],
    "scaled": lambda v: v["x"] * v["t"],
    "over what may be 0": lambda v: v["b"] / v["t"],
    "one side": lambda v: minimum(v["x"], 3.0),
    "a byte": lambda v: cast(v["t"], "e4m3"),
    "infinite": lambda v: where(v["x"] > 0.0, v["t"], math.inf),
    "a mask turned": lambda v: -where(v["x"] > 0.0, v["t"], -math.inf),
    "a mask scaled": lambda v: where(v["x"] > 0.0, v["t"], -math.inf) * v["t"],
    "less a mask": lambda v: v["t"] - where(v["x"] > 0.0, v["t"], -math.inf),
}


@pytest.mark.parametrize("name", OPEN)
def test_nothing_is_told_of_what_may_be_anything(name: str) -> None:
    assert not last(OPEN[name](scene()[2])).known


def test_a_mask_leaves_a_hole() -> None:
    def masked(change: Callable[[Tile, Values], Tile]) -> Span:
        v = scene()[2]
        return last(change(where(v["x"] > 0.0, v["t"], -math.inf), v))

    assert masked(lambda m, _: m) == Span(-1.0, 1.0, hole=True)
    assert masked(lambda m, _: m * 2.0).hole
    assert masked(lambda m, v: m + v["i"]).hole
    assert not masked(lambda m, _: maximum(m, -9.0)).hole
    grown = masked(lambda m, _: exp(m))
    assert grown.known
    assert grown.least <= 0.0
    assert not grown.hole
