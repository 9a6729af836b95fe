"""Functions of the difference of two coordinates become tables; the numbers are the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import (
    Axis,
    Graph,
    absolute,
    cast,
    contract,
    cos,
    evaluate,
    exp,
    log,
    maximum,
    minimum,
    reduce,
)
from ir import where as choice
from ir.inputs import random_inputs
from ir.ops.map import Map
from ir.ops.read import Read
from ir.program import Program
from ir.rewrite.forms import forms_of
from ir.rewrite.tabulated import NAME, tabulated
from ir.rewrite.work import Rates
from ir.tiles import Tile

RATES = Rates({"bf16": 1e15, "f32": 6e13}, 6e13, 4e12)


Bias = Callable[[Graph, Axis, Tile, Tile], Tile]


def scored(bias: Bias, n: int = 40, m: int = 48) -> Program:
    """Sums of exponentials of scores and a bias."""
    g = Graph("scored")
    h, i, j, d = g.axes(h=3, i=n, j=m, d=4)
    s = contract(g.input("Q", (h, i, d), "bf16"), g.input("K", (h, j, d), "bf16"), over=d)
    s = s + bias(g, h, g.iota(i), g.iota(j))
    g.output("O", reduce("sum", exp(0.1 * s), over=j), "f32", (h, i))
    return g.program()


def buckets(g: Graph, h: Axis, i: Tile, j: Tile) -> Tile:
    """A table for each head by the logarithm of the distance, and by its sign."""
    away = maximum(j - i, i - j)
    far = 4 + cast(log(maximum(cast(away, "f32"), 1.0)) * 2.0, "i32")
    bucket = choice(away < 4, away, minimum(far, 15)) + cast(choice(j > i, 16, 0), "i32")
    return g.tensor("bias", (3, 32), "f32")[h, bucket]


def decay(g: Graph, h: Axis, i: Tile, j: Tile) -> Tile:
    away = cast(absolute(i - j), "f32")
    return exp(-0.3 * away) * cos(0.1 * away) + 1.0 / (1.0 + away)


def scaled(g: Graph, h: Axis, i: Tile, j: Tile) -> Tile:
    """Multiples of coordinates that keep step, and extremes of what moves alike."""
    far = cast(2 * i - 2 * j + minimum(i, j + 3) - maximum(i - 1, j), "f32")
    return log(2.0 + absolute(far)) / (1.0 + far * far)


@pytest.mark.parametrize("bias", [decay, scaled, buckets])
def test_numbers_are_the_same(bias: Bias) -> None:
    program = scored(bias)
    found = tabulated(program)
    assert found is not None
    assert found.program.axes["i_j"] == 40 + 48 - 1
    assert any({*node.axes} in ({"i_j"}, {"h", "i_j"}) for node in found.program.nodes)
    inputs = random_inputs(program, np.random.default_rng(0))
    expected, made = evaluate(program, inputs)["O"], evaluate(found.program, inputs)["O"]
    assert np.array_equal(made, expected)
    assert tabulated(found.program) is None


def test_two_directions_have_one_table() -> None:
    """Rows and columns of windows: a function of both distances."""
    g = Graph("windows")
    a, b, c, e = g.axes(a=36, b=40, c=36, e=40)
    rows, columns = cast(g.iota(a) - c, "f32"), cast(g.iota(b) - e, "f32")
    bias = exp(-0.01 * (rows * rows + columns * columns)) / (1.0 + absolute(rows * columns))
    x = g.input("X", (c, e), "f32")
    g.output("Y", reduce("sum", x * bias, over=(c, e)), "f32", (a, b))
    program = g.program()
    found = tabulated(program)
    assert found is not None
    assert {71, 79} <= {*found.program.axes.values()}
    inputs = random_inputs(program, np.random.default_rng(1))
    expected, made = evaluate(program, inputs)["Y"], evaluate(found.program, inputs)["Y"]
    assert np.allclose(made, expected, rtol=1e-12)
    functions = [n for n in found.program.nodes if isinstance(n.op, Map) and n.op.function == "exp"]
    assert all(len(node.axes) == 2 and "c" not in node.axes for node in functions)


@pytest.mark.parametrize(
    "bias",
    [
        lambda g, h, i, j: cast(i - j, "f32") * 0.5,  # cheaper than a table
        lambda g, h, i, j: exp(-0.3 * cast(i + j, "f32")) / (1.0 + cast(i, "f32")),
        lambda g, h, i, j: exp(-0.3 * cast(i - 2 * j, "f32")) / (1.0 + cast(i - 2 * j, "f32") ** 2),
        lambda g, h, i, j: log(1.0 + cast((i // 2 - j // 2) ** 2, "f32")) + exp(0.1 * i),
    ],
)  # fmt: skip
def test_what_is_none_has_no_table(bias: Bias) -> None:
    assert tabulated(scored(bias)) is None


def test_few_pairs_have_no_table() -> None:
    assert tabulated(scored(decay, 8, 8)) is None


def test_it_is_offered_where_points_would_compute_it_again() -> None:
    offered = forms_of(scored(decay, 512, 512), RATES).offered
    assert any(form.steps and form.steps[-1].rule == NAME for form in offered)


def transformed(blocks: int = 40, window: int = 0) -> Program:
    """Blocks of a signal times a window, transformed by cosines of both coordinates."""
    g = Graph("transformed")
    b, n, k = g.axes(b=blocks, n=8, k=8)
    x = g.input("X", (b, n), "f32")
    if window:
        x = x * (0.5 - 0.5 * cos(g.iota(n) * (2 * np.pi / window)))
    turns = cos((2 * g.iota(n) + 1) * g.iota(k) * (np.pi / 16)) * choice(g.iota(k) == 0, 0.5, 1.0)
    g.output("Y", reduce("sum", x * turns, over=n), "f32", (b, k))
    return g.program()


@pytest.mark.parametrize(("window", "tables"), [(0, 1), (8, 2)])
def test_functions_of_coordinates_are_kept_where_many_read_them(window: int, tables: int) -> None:
    program = transformed(window=window)
    found = tabulated(program)
    assert found is not None
    reads = [n for n in found.program.nodes if isinstance(n.op, Read)]
    assert [{*node.axes} for node in reads] == [{"n"}, {"n", "k"}][2 - tables :]
    inputs = random_inputs(program, np.random.default_rng(0))
    expected, made = evaluate(program, inputs)["Y"], evaluate(found.program, inputs)["Y"]
    assert np.array_equal(made, expected)
    assert tabulated(found.program) is None


def test_functions_of_coordinates_that_few_read_are_not() -> None:
    assert tabulated(transformed(blocks=8)) is None


def test_tables_leave_other_forms_offered() -> None:
    """Their work is less by what that of others does not count."""
    g = Graph("filters")
    t, n, f, m = g.axes(t=4096, n=512, f=512, m=512)
    x, v, w = g.input("X", (t, n), "f32"), g.input("V", (n, f), "f32"), g.input("W", (f, m), "f32")
    turned = x * cos(g.iota(n) * 0.1) * exp(-0.01 * cast(g.iota(n), "f32"))
    g.output("Y", contract(turned, contract(v, w, over=f), over=n), "f32", (t, m))
    offered = forms_of(g.program(), RATES).offered
    assert any(form.tabulated for form in offered)
    assert any(form.steps and not form.tabulated for form in offered)
