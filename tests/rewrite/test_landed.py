"""Scatters to sums of coordinates, read from where they land."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Graph, contract, cos, exp
from ir.folding import scatter
from ir.inputs import random_inputs
from ir.ops.scatter import Scatter
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.forms import forms_of
from ir.rewrite.landed import NAME, rewritten
from ir.rewrite.work import Rates
from ir.target import get_backend
from ir.targets.cuda.rows.hardware import known_hardware
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.targets.test_unforeseen import emulated

RATES = Rates({"bf16": 1e15}, 5e13, 4e12)


def _judge(program: Program, seed: int = 0) -> Program:
    """The program without scatters, which gives the same numbers."""
    found = rewritten(program)
    assert found is not None
    assert not any(isinstance(node.op, Scatter) for node in found[1].nodes)
    inputs = random_inputs(program, np.random.default_rng(seed))
    wanted, others = evaluate(program, inputs), evaluate(found[1], inputs)
    for name, value in wanted.items():
        other = others[name].reshape(value.shape)
        np.testing.assert_allclose(other, value, rtol=1e-9, atol=1e-9, err_msg=name)
    return found[1]


@st.composite
def sent(draw: st.DrawFn) -> Program:
    """One or two axes of results, each a sum of multiples of up to three axes and a number."""
    g = Graph("sent")
    extents = draw(st.lists(st.integers(1, 6), min_size=2, max_size=5))
    axes = [g.axis(f"a{number}", extent) for number, extent in enumerate(extents)]
    own = draw(st.booleans())
    free = axes[1:] if own else axes
    split = draw(st.integers(1, len(free)))
    groups = [group for group in (free[:split], free[split:]) if group]
    written = {}
    for number, group in enumerate(groups[: draw(st.integers(1, len(groups)))]):
        most = draw(st.integers(-3, 5))
        index = draw(st.integers(-4, 4)) + 0 * axes[0]
        for axis in group[: draw(st.integers(1, 3))]:
            factor = draw(st.sampled_from((1, -1, 2, 3, -2, 4)))
            index, most = index + factor * axis, most + abs(factor) * axis.extent
        written[g.axis(f"t{number}", max(1, most))] = index
    dtype = draw(st.sampled_from(("f32", "i32")))
    kind = "sum" if dtype == "i32" else draw(st.sampled_from(("sum", "max", "min")))
    x = g.input("x", tuple(axes), dtype)
    x = exp(0.1 * x) if dtype == "f32" and draw(st.booleans()) else x
    if own:
        written[axes[0]] = 1 * axes[0]
    g.output("y", scatter(kind, x, written))
    return g.program()


@settings(max_examples=100, deadline=None)
@given(sent(), st.integers(0, 5))
def test_what_lands_is_the_same(program: Program, seed: int) -> None:
    _judge(program, seed)


def overlapping(b: int, f: int, n: int, hop: int, k: int = 0) -> Program:
    """Frames under a window, or made by a product, added where they overlap."""
    g = Graph("overlapping")
    i, frame, w, t = g.axes(b=b, f=f, w=n, t=(f - 1) * hop + n)
    if k:
        depth = g.axis("k", k)
        x = contract(g.input("X", (i, frame, depth), "bf16"),
                     g.input("W", (depth, w), "bf16"), over=depth)  # fmt: skip
    else:
        x = g.input("X", (i, frame, w), "f32") * (0.5 - 0.5 * cos(g.iota(w) * (2 * math.pi / n)))
    g.output("Y", scatter("sum", x, {t: frame * hop + w, i: g.iota(i)}), dims=(i, t))
    return g.program()


def patches(b: int, h: int, c: int, k: int, stride: int) -> Program:
    """An image of its patches."""
    g = Graph("patches")
    size = (h - 1) * stride + k
    n, i, j, r, s, d, y, x = g.axes(b=b, i=h, j=h, r=k, s=k, c=c, y=size, x=size)
    p = g.input("P", (n, i, j, r, s, d), "bf16")
    g.output("O", scatter("sum", p, {n: n, y: i * stride + r, x: j * stride + s, d: d}), "f32")
    return g.program()


@pytest.mark.parametrize("program", [
    overlapping(2, 9, 16, 4), overlapping(2, 7, 10, 4), overlapping(1, 5, 8, 8),
    patches(2, 4, 3, 3, 2),
], ids=["halves", "odd", "apart", "patches"])  # fmt: skip
def test_terms_are_those_that_land(program: Program) -> None:
    """What is summed is what comes to a place, not all that might."""
    found = _judge(program)
    assert max(found.axes[a] for a in found.axes if a.endswith("_step")) <= 4


@pytest.mark.parametrize("program", [overlapping(16, 4000, 1024, 256), patches(16, 56, 64, 3, 1)],
                         ids=["overlapping", "patches"])  # fmt: skip
def test_it_is_offered_and_one_kernel(program: Program) -> None:
    forms = forms_of(program, RATES).offered
    assert any(step.rule == NAME for form in forms for step in form.steps)
    backend, hardware = get_backend("cuda"), known_hardware("h200")
    space = backend.space(program, hardware)
    best = space.pin({"form": next(f.name for f in forms if f.steps and f.steps[-1].rule == NAME)})
    schedule = best.schedule(best.seed_matrix[best.legal(best.seed_matrix)][0])
    assert backend.lower(program, schedule, hardware).text("launch").count('"name"') == 1


def test_places_that_are_data_stay_sent() -> None:
    g = Graph("looked_up")
    i, t = g.axes(i=5, t=7)
    place = g.input("place", (i,), "i32")
    g.output("y", scatter("sum", g.input("x", (i,), "f32"), {t: place}))
    assert rewritten(g.program()) is None


def test_names_that_are_taken_leave_it_sent() -> None:
    g = Graph("taken")
    f, w, t, _ = g.axes(f=3, w=4, t=8, w_step=2)
    g.output("y", scatter("sum", g.input("x", (f, w), "f32"), {t: 2 * f + w}))
    assert rewritten(g.program()) is None


def test_an_axis_that_two_places_have_stays_sent() -> None:
    g = Graph("diagonal")
    i, j, s, t = g.axes(i=3, j=4, s=3, t=6)
    g.output("y", scatter("sum", g.input("x", (i, j), "f32"), {s: i, t: i + j}))
    assert rewritten(g.program()) is None


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
@pytest.mark.parametrize("program", [
    overlapping(2, 9, 16, 4), overlapping(2, 9, 32, 8, 16), patches(2, 5, 6, 3, 2),
], ids=["window", "product", "patches"])  # fmt: skip
@draws(2, 4)
def test_its_kernels_are_right(program: Program, count: int) -> None:
    hardware = known_hardware("h200")
    space = get_backend("cuda").space(program, hardware)
    rng = np.random.default_rng(0)
    for row in space.sample(rng, count):
        schedule = space.schedule(row)
        assert not emulated(program, schedule, hardware), schedule
