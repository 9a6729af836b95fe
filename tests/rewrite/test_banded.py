"""Windows that move with what reads them, as bands of all points."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, maximum, minimum, reduce, where
from ir.axes import Axis, IndexExpression
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite import banded
from ir.rewrite.forms import forms_of
from ir.rewrite.work import Rates
from ir.tiles import Tile
from tests.cuda.run import needs_compiler
from tests.targets.formed import form_problems

RATES = Rates({"bf16": 1e15}, other=3e13, bytes=4e12)


def softmax(g: Graph, z: Tile, v: Tile, over: tuple[Axis, ...], out: tuple[Axis, ...]) -> None:
    p = exp(z - reduce("max", z, over=over))
    o = contract(cast(p, "bf16"), v, over=over)
    g.output("O", o / reduce("sum", p, over=over), "f32", out)


def sliding(
    n: int = 40, w: int = 6, ahead: bool = False, masked: bool = True, width: int = 16
) -> Program:
    """Each query sees so many keys up to its own, or from its own on."""
    g = Graph("sliding")
    i, s, d, e = g.axes(i=n, s=w, d=width, e=width)
    q = g.input("Q", (i, d), "bf16")
    rows = n if masked else n + w - 1
    k, v = (g.tensor(name, (rows, width), "bf16", fill=0 if masked else None) for name in "KV")
    first: IndexExpression = i + s if ahead or not masked else i - s
    z = contract(q, k[first, d], over=d) * 0.25
    if masked:
        at = g.iota(i) + s if ahead else g.iota(i) - s
        z = where(at < n if ahead else at >= 0, z, -math.inf)
    softmax(g, z, v[first, e], (s,), (i, e))
    return g.program()


def around(x: int = 24, clipped: bool = False, bias: bool = False) -> Program:
    """Each point of a plane sees the three by five around it."""
    g = Graph("around")
    i, j, r, s, d, e = g.axes(i=5, j=x, r=3, s=5, d=16, e=16)
    q = g.input("Q", (i, j, d), "bf16")
    k, v = (g.tensor(name, (5, x, 16), "bf16", fill=None if clipped else 0) for name in "KV")
    py, px = g.iota(i) + r - 1, g.iota(j) + s - 2
    inside = (py >= 0) & (py < 5) & (px >= 0) & (px <= x - 1)
    if clipped:
        at = (minimum(maximum(py, 0), 4), minimum(maximum(px, 0), x - 1))
        z, values = contract(q, k[*at, d], over=d), v[*at, e]
    else:
        z, values = contract(q, k[i + r - 1, j + s - 2, d], over=d), v[i + r - 1, j + s - 2, e]
    z = z * 0.25 + g.input("bias", (r, s), "f32") if bias else z * 0.25
    softmax(g, where(inside, z, -math.inf), values, (r, s), (i, j, e))
    return g.program()


def same(program: Program, made: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(5))
    wanted, had = evaluate(program, inputs), evaluate(made, inputs)
    for name in wanted:
        np.testing.assert_allclose(had[name], wanted[name], rtol=1e-12, atol=1e-12)


PROGRAMS = [
    sliding(), sliding(48, 9), sliding(ahead=True), sliding(masked=False), sliding(32, 6),
    around(), around(32), around(clipped=True), around(bias=True), around(20, True, True),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_window_is_a_band_of_its_row(number: int) -> None:
    program = PROGRAMS[number]
    found = banded.rewritten(program)
    assert found is not None
    same(program, found[1])
    assert "s" not in found[1].axes
    assert found[1].axes["s_row"] % 16 == 0
    loads = [node for node in found[1].nodes if node.op.name == "load" and "s_row" in node.axes]
    assert len(loads) >= 2
    assert "axis s " not in str(found[1])


def unmasked(g: Graph) -> None:
    i, s, d, e = g.axes(i=40, s=6, d=16, e=16)  # what is outside counts, as 0
    k, v = (g.tensor(name, (40, 16), "bf16", fill=0) for name in "KV")
    z = contract(g.input("Q", (i, d), "bf16"), k[i - s, d], over=d)
    softmax(g, z, v[i - s, e], (s,), (i, e))


def half_masked(g: Graph) -> None:
    i, s, d, e = g.axes(i=40, s=6, d=16, e=16)  # the sum of weights has all of them
    k, v = (g.tensor(name, (40, 16), "bf16", fill=0) for name in "KV")
    z = contract(g.input("Q", (i, d), "bf16"), k[i - s, d], over=d)
    m = reduce("max", where(g.iota(i) - s >= 0, z, -math.inf), over=s)
    o = contract(cast(exp(z - m), "bf16"), v[i - s, e], over=s)
    g.output("O", o, "f32", (i, e))


def two_windows(g: Graph) -> None:
    i, s, d, e = g.axes(i=40, s=6, d=16, e=16)  # values of other places than the keys
    k, v = (g.tensor(name, (46, 16), "bf16") for name in "KV")
    z = contract(g.input("Q", (i, d), "bf16"), k[i + s, d], over=d)
    softmax(g, z, v[i + s + 1, e], (s,), (i, e))


def stored(g: Graph) -> None:
    i, s, d = g.axes(i=40, s=6, d=16)  # each place is an output
    z = contract(g.input("Q", (i, d), "bf16"), g.tensor("K", (45, 16), "bf16")[i + s, d], over=d)
    g.output("Z", z, "f32", (i, s))


def least(g: Graph) -> None:
    i, s, d = g.axes(i=40, s=6, d=16)  # nothing is known that is no least
    z = contract(g.input("Q", (i, d), "bf16"), g.tensor("K", (45, 16), "bf16")[i + s, d], over=d)
    g.output("Z", reduce("min", z, over=s), "f32", (i,))


def filtered(g: Graph) -> None:
    i, s, d = g.axes(i=40, s=6, d=16)  # a convolution: taps are summed, and no scores
    x = g.tensor("X", (45, 16), "bf16")
    g.output("Y", contract(x[i + s, d], g.input("W", (s, d), "bf16"), over=s), "f32", (i, d))


@pytest.mark.parametrize("make", [unmasked, half_masked, two_windows, stored, least, filtered])
def test_others_stay(make: Callable[[Graph], None]) -> None:
    g = Graph("others")
    make(g)
    assert banded.rewritten(g.program()) is None


def test_a_long_window_is_a_form_that_is_offered() -> None:
    names = [form.name for form in forms_of(sliding(4096, 512, width=128), RATES).offered]
    assert any(name.startswith(banded.NAME) for name in names)
    names = [form.name for form in forms_of(sliding(4096, 2, width=128), RATES).offered]
    assert not any(name.startswith(banded.NAME) for name in names)


@needs_compiler
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_kernels_of_it_are_right(number: int) -> None:
    program = PROGRAMS[number]
    found = banded.rewritten(program)
    assert found is not None
    assert not form_problems(program, found[1], "usual")
