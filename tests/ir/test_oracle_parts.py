"""The oracle in little memory, and what it makes of programs that go step by step."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from explorer.afforded import DEVICE, STEPPED, afforded
from explorer.check import Bounds
from explorer.expectation import Recipe, _answers
from explorer.recipe import recipe_of
from ir import Graph, absolute, argmax, cast, contract, exp, recur, reduce, scatter, tanh
from ir.inputs import random_inputs
from ir.oracle import answers
from ir.program import Program
from ir.registry import load_operator
from ir.roundoff import ErrorModel
from ir.target import get_backend
from ir.targets.cuda.rows.hardware import known_hardware
from ir.tiles import apply
from ir.values import indices, normal

MODEL = ErrorModel()


def gathered() -> Program:
    """Products with rows' own weights, combined where the rows came from."""
    g = Graph("gathered")
    m, n, k, e, out = g.axes(m=40, n=12, k=20, e=3, out=9)
    expert = g.input("expert", (m,), "i32", indices(3))
    place = g.input("place", (m,), "i32", indices(9))
    x, w = g.input("X", (m, k), "bf16"), g.input("W", (e, k, n), "bf16")
    y = contract(x, exp(w.at(e=expert)), over=k) + reduce("max", x * 0.5, over=k)
    g.output("Y", scatter("sum", y, {out: place, n: n}), "f32", (out, n))
    return g.program()


def nearest() -> Program:
    """The nearest of some points, how many have each, and their sums: no axis is all outputs'."""
    g = Graph("nearest")
    n, k, d = g.axes(n=60, k=14, d=5)
    x, c = g.input("X", (n, d), "f32"), g.input("C", (k, d), "f32")
    place = argmax(contract(x, c, over=d) - 0.5 * reduce("sum", c * c, over=d), k)
    g.output("place", place, "i32")
    g.output("count", scatter("sum", g.constant(1, "i32") + 0 * place, {k: place}), "i32")
    g.output("sums", scatter("sum", x, {k: place, d: d}), "f32")
    return g.program()


def both_ways() -> Program:
    """Scores with a softmax along either axis, and two results: none has the other's axis."""
    g = Graph("both_ways")
    i, j, d = g.axes(i=30, j=20, d=4)
    s = contract(g.input("A", (i, d), "f32"), g.input("B", (j, d), "f32"), over=d)
    for name, over in (("X", j), ("Y", i)):
        p = exp(s - reduce("max", s, over=over))
        g.output(name, reduce("sum", p * s, over=over) / reduce("sum", p, over=over))
    return g.program()


@pytest.mark.parametrize("make", [gathered, nearest, both_ways])
@pytest.mark.parametrize("room", [1, 1 << 10, 1 << 14])
@pytest.mark.alike(2)
def test_sums_in_parts_are_the_same(make: Callable[[], Program], room: int) -> None:
    program = make()
    inputs = random_inputs(program, np.random.default_rng(0))
    whole, parts = (answers(program, inputs, MODEL, room=n) for n in (1 << 25, room))
    for name, found in parts.items():
        assert np.allclose(found.value, whole[name].value, rtol=1e-13)
        assert np.allclose(found.reach, whole[name].reach, rtol=1e-5)


def test_what_is_sent_to_a_place_in_doubt_is_in_doubt_there_alone() -> None:
    """Two candidates that are as near: a row may count for either, and for none farther off."""
    program = nearest()
    inputs = random_inputs(program, np.random.default_rng(0))
    inputs["C"][5] = inputs["C"][3]
    found = answers(program, inputs, MODEL)
    doubtful = found["place"].reach > 0
    assert 0 < doubtful.sum() < 30
    counts = found["count"].reach
    assert counts[3] == counts[4] == counts[5] == doubtful.sum()
    assert (counts[[0, 8, 13]] == 0).all()
    moved = np.abs(inputs["X"][doubtful]).sum(axis=0)
    assert (found["sums"].reach[[3, 5]] >= moved).all()
    assert (found["sums"].reach[[0, 13]] < 1e-4).all()


@pytest.mark.usefixtures("collecting")
def test_pieces_hold_no_more_than_they_need() -> None:
    """The product of all rows with all candidates is 6 MB, in f64, and is never there whole."""
    g = Graph("large")
    n, k, d = g.axes(n=4096, k=192, d=2)
    x, c = g.input("X", (n, d), "f32"), g.input("C", (k, d), "f32")
    place = argmax(contract(x, c, over=d), k)
    g.output("count", scatter("sum", g.constant(1, "i32") + 0 * place, {k: place}), "i32")
    program = g.program()
    inputs, most = random_inputs(program, np.random.default_rng(0)), []
    for room in (1 << 25, 1 << 18):
        tracemalloc.start()
        answers(program, inputs, MODEL, room=room)
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] < most[0] / 2


def test_what_goes_step_by_step_is_evaluated_where_steps_are_short() -> None:
    """On the host, of few points; what a device does at once stays there."""
    long = load_operator("delta_rule").build(b=8, t=2048, heads=4, d=64, dtype="bf16")
    means, picked = afforded(long, DEVICE, 0, ())
    assert means is STEPPED
    assert picked["dv"][0] == 0
    assert picked["dv"][-1] == 63
    wide = load_operator("life").build(m=4096, n=4096, steps=16)
    assert afforded(wide, DEVICE, 0, ()) == (DEVICE, {})
    chunks = {"b": 1, "t": 4096, "heads": 32, "d": 128, "chunk": 64, "dtype": "bf16"}
    held = load_operator("gated_delta_net_chunked").build(**chunks)
    assert afforded(held, DEVICE, 0, ())[0] is DEVICE
    squares = load_operator("power_iteration").build(n=8192, steps=20)
    assert afforded(squares, DEVICE, 0, ()) == (DEVICE, {})
    product = load_operator("matmul").build(m=256, n=256, k=256)
    assert afforded(product, DEVICE, 0, ()) == (DEVICE, {})


def test_a_long_axis_is_sampled_in_order() -> None:
    huge = load_operator("sgd").build(n=1 << 30)
    _, picked = afforded(huge, DEVICE, 0, ())
    points = picked["i"]
    assert 1 << 20 < len(points) < 1 << 23
    assert (np.diff(points) > 0).all()
    assert {0, 1, (1 << 30) - 2, (1 << 30) - 1} <= set(points[[0, 1, -2, -1]].tolist())


def test_chunks_may_be_off_by_differences_of_sums() -> None:
    """Kernels of a chunked form are judged by what that form may be off."""
    program = load_operator("gla").build(b=1, t=256, heads=2, d=32, dtype="bf16")
    backend, card = get_backend("cuda"), known_hardware("h200")
    recipe = recipe_of(program, 0, backend, card)
    assert len(recipe.forms) == 1
    alone = Recipe(program, 0, recipe.accumulations).expected(0, DEVICE)
    found = recipe.expected(0, DEVICE)
    for name, bounds in found.bounds.items():
        before = alone.bounds[name]
        assert (bounds.high - bounds.low >= before.high - before.low).all()
        assert (bounds.high - bounds.low > 2 * (before.high - before.low)).any()


def test_forms_on_coarser_cores_say_what_they_may_be_off() -> None:
    """With the scales behind the sums, products are those of e4m3, whose sums have 14 bits."""
    g = Graph("scaled")
    m, n, k = g.axes(m=128, n=128, k=512)
    a, b = g.input("A", (m, k), "e4m3"), g.input("B", (n, k), "e4m3")
    scale = g.tensor("s", (128, 4), "f32")[m, g.iota(k) // 128]
    g.output("C", contract(cast(a, "f32") * scale, cast(b, "f32"), over=k), "f32")
    program = g.program()
    recipe = recipe_of(program, 0, get_backend("cuda"), known_hardware("h200"))
    assert len(recipe.forms) == 1
    alone = Recipe(recipe.program, 0, recipe.accumulations).expected(0, DEVICE).bounds["C"]
    found = recipe.expected(0, DEVICE).bounds["C"]
    assert np.median(found.high - found.low) > 2 * np.median(alone.high - alone.low)
    wide = get_backend("cpu")
    assert recipe_of(program, 0, wide, wide.hardware(1)).forms == ()


def pairs() -> Program:
    """Of pairs of points a sum, an extreme, a product, a count and a sum of products."""
    g = Graph("pairs")
    i, j = g.axes(i=70, j=50)
    x, y = g.input("X", (i,), "f32"), g.input("Y", (j,), "f32")
    far = absolute(x - y) + 1e-3
    g.output("energy", reduce("sum", x * y / far, over=(i, j)), "f32", ())
    g.output("weighed", reduce("sum", (x + y) * (x - y), over=(i, j)), "f32", ())
    g.output("least", reduce("min", far, over=(i, j)), "f32", ())
    g.output("volume", reduce("prod", 1.0 + far * 1e-4, over=(i, j)), "f32", ())
    g.output("ordered", reduce("sum", cast(x < y, "i32"), over=(i, j)), "i32", ())
    g.output("rows", reduce("max", far, over=j), "f32", (i,))
    return g.program()


@pytest.mark.parametrize("room", [1, 1 << 10, 1 << 13])
def test_what_no_result_has_an_axis_of_is_reduced_in_turns(room: int) -> None:
    program = pairs()
    inputs = random_inputs(program, np.random.default_rng(0))
    whole, parts = (answers(program, inputs, MODEL, room=n) for n in (1 << 25, room))
    for name, found in parts.items():
        assert np.allclose(found.value, whole[name].value, rtol=1e-12)
        assert (found.reach <= 3 * whole[name].reach).all()
        assert (found.reach >= 0.3 * whole[name].reach).all()


@pytest.mark.usefixtures("collecting")
def test_what_is_reduced_in_turns_takes_little_memory() -> None:
    g = Graph("pairs")
    i, j = g.axes(i=3000, j=2000)
    ordered = cast(g.input("X", (i,), "f32") < g.input("Y", (j,), "f32"), "f32")
    g.output("share", reduce("sum", ordered, over=(i, j)), "f32", ())
    inputs = random_inputs(g.program(), np.random.default_rng(0))
    answers(g.program(), inputs, MODEL, room=1 << 20)  # what is imported first takes memory, too
    tracemalloc.start()
    found = answers(g.program(), inputs, MODEL, room=1 << 20)["share"]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 12 << 20  # of 48 MB that all pairs are
    assert found.value == (inputs["X"][:, None] < inputs["Y"]).sum()


@pytest.mark.parametrize("function", ["sqrt", "rsqrt", "log", "log1p"])
def test_what_may_or_may_not_be_a_number_says_nothing(function: str) -> None:
    """A difference that is 0 but for its rounding, on the wrong side; one far off is NaN."""
    g = Graph("edges")
    (i,) = g.axes(i=3)
    x = g.input("X", (i,), "f32") * 3.0 - g.input("Y", (i,), "f32")
    x = x - 1.0 if function == "log1p" else x
    g.output("Z", apply(function, x), "f32", (i,))
    program = g.program()
    third = np.float32(1 / 3)
    inputs = {"X": np.array([third, 1, third], "f4"), "Y": np.array([1 + 2**-22, 4, -1], "f4")}
    found = answers(program, inputs, MODEL)["Z"]
    bounds = Bounds.around(found, "f32")
    nan = np.float32(np.nan)
    assert [*np.isinf(found.reach)] == [True, False, False]
    for first in (0.0, nan, np.float32(1e-4)):
        output = np.array([first, nan, found.value[2]], np.float32)
        assert bounds.judge(output).right
    assert not bounds.judge(np.array([0.0, 0.0, found.value[2]], np.float32)).right


def test_steps_that_say_nothing_are_tried_at_few_points() -> None:
    g = Graph("mixed_cells")
    t, b, k, n = g.axes(t=24, b=40, k=48, n=48)
    h = g.state(t, (b, k))
    w = g.input("W", (k, n), "f32", values=normal(0.3))
    after = tanh(g.input("X", (t, b, n), "f32") + contract(h, w, over=k)).at(n=k)
    g.output("H", recur(h, after), "f32", (b, k))
    program, sample = g.program(), {"b": np.arange(0, 40, 2)}
    inputs = random_inputs(program, np.random.default_rng(0))
    found, picked = _answers(program, inputs, MODEL, sample, np, STEPPED)
    assert picked["b"].tolist() == [0, 12, 24, 38]
    assert found["H"].value.shape == found["H"].reach.shape == (4, 48)
    assert (found["H"].reach < 0.1).mean() > 0.8
    whole = answers(program, inputs, MODEL, sample)["H"]
    assert np.array_equal(whole.value[[0, 6, 12, 19]], found["H"].value)
