"""The oracle in little memory, and what it makes of programs that go step by step."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.expectation import DEVICE, STEPPED, Recipe, _afforded
from explorer.recipe import recipe_of
from ir import Graph, contract, exp, reduce, scatter
from ir.inputs import random_inputs
from ir.oracle import answers
from ir.program import Program
from ir.registry import load_operator
from ir.roundoff import ErrorModel
from ir.target import get_backend
from ir.targets.cuda.rows.hardware import known_hardware
from ir.values import indices

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


@pytest.mark.parametrize("room", [1, 1 << 10, 1 << 14])
def test_sums_in_parts_are_the_same(room: int) -> None:
    program = gathered()
    inputs = random_inputs(program, np.random.default_rng(0))
    whole = answers(program, inputs, MODEL)["Y"]
    parts = answers(program, inputs, MODEL, room=room)["Y"]
    assert np.allclose(parts.value, whole.value, rtol=1e-13)
    assert np.allclose(parts.reach, whole.reach, rtol=1e-5)


def test_what_goes_step_by_step_is_evaluated_where_steps_are_short() -> None:
    """On the host, of few points; what a device does at once stays there."""
    long = load_operator("delta_rule").build(b=8, t=2048, heads=4, d=64, dtype="bf16")
    means, picked = _afforded(long, DEVICE, 0, ())
    assert means is STEPPED
    assert picked["dv"][0] == 0
    assert picked["dv"][-1] == 63
    wide = load_operator("life").build(m=4096, n=4096, steps=16)
    assert _afforded(wide, DEVICE, 0, ()) == (DEVICE, {})
    chunks = {"b": 1, "t": 4096, "heads": 32, "d": 128, "chunk": 64, "dtype": "bf16"}
    held = load_operator("gated_delta_net_chunked").build(**chunks)
    assert _afforded(held, DEVICE, 0, ())[0] is DEVICE
    squares = load_operator("power_iteration").build(n=8192, steps=20)
    assert _afforded(squares, DEVICE, 0, ()) == (DEVICE, {})
    product = load_operator("matmul").build(m=256, n=256, k=256)
    assert _afforded(product, DEVICE, 0, ()) == (DEVICE, {})


def test_a_long_axis_is_sampled_in_order() -> None:
    huge = load_operator("sgd").build(n=1 << 30)
    _, picked = _afforded(huge, DEVICE, 0, ())
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
