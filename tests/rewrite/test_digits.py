"""Axes that indices have digits of: the same numbers, read at plain indices."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Graph, Tile, cast, contract, cumulative, maximum
from ir.dtypes import dtype_of
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.digits import NAME, digits, is_computed
from ir.rewrite.forms import forms_of
from ir.rewrite.work import Rates

RATES = Rates({"f32": 1e14, "f16": 1e15, "e4m3": 2e15}, 1e13, 1e12)


def scales_of_groups(g: Graph) -> None:
    m, n, k = g.axes(m=3, n=4, k=24)
    s = g.tensor("s", (4, 3), "f32")[n, g.iota(k) // 8]
    g.output("Y", contract(g.input("X", (m, k), "f32"), g.input("W", (n, k), "f32") * s, over=k))


def packed_and_scaled(g: Graph) -> None:
    m, n, k = g.axes(m=3, n=4, k=24)
    w, s = g.input("W", (n, k), "u4"), g.tensor("s", (4, 2), "f32")[n, g.iota(k) // 12]
    g.output("Y", contract(g.input("X", (m, k), "f32"), cast(w, "f32") * s, over=k))


def four_to_a_byte(g: Graph) -> None:
    m, k = g.axes(m=3, k=16)
    g.output("Y", cast(g.input("W", (m, k), "i2"), "f32") * 2.0)


def shared_heads(g: Graph) -> None:
    h, i, j, d = g.axes(h=6, i=4, j=5, d=8)
    k = g.tensor("K", (2, 5, 8), "f32")[g.iota(h) // 3, j, d]
    g.output("S", contract(g.input("Q", (h, i, d), "f32"), k, over=d))


def shuffled(g: Graph) -> None:
    y, x, c = g.axes(y=6, x=8, c=3)
    place = (g.iota(y) % 2 * 2 + g.iota(x) % 2) * 3 + c
    g.output("Y", g.tensor("X", (3, 4, 12), "f32")[g.iota(y) // 2, g.iota(x) // 2, place] * 2.0)


def both_ways(g: Graph) -> None:
    (i,) = g.axes(i=24)
    here = g.tensor("X", (2, 12), "f32")[g.iota(i) // 12, g.iota(i) % 12]
    g.output("Y", here + g.tensor("Z", (6,), "f32")[g.iota(i) // 4])


PROGRAMS = (scales_of_groups, packed_and_scaled, four_to_a_byte, shared_heads, shuffled, both_ways)


def built(write: Callable[[Graph], None]) -> Program:
    g = Graph(write.__name__)
    write(g)
    return g.program()


def computed(program: Program) -> int:
    return sum(is_computed(program, position) for position in range(len(program.nodes)))


def same(program: Program, other: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(0))
    shaped = {spec.name: inputs[spec.name].reshape(spec.shape) for spec in other.inputs}
    found = evaluate(other, shaped)
    for name, values in evaluate(program, inputs).items():
        np.testing.assert_allclose(found[name].reshape(values.shape), values, rtol=1e-12)


@pytest.mark.parametrize("write", PROGRAMS)
def test_indices_of_digits_are_plain(write: Callable[[Graph], None]) -> None:
    program = built(write)
    apart = digits(program)
    assert computed(program)
    assert not computed(apart)
    same(program, apart)
    assert digits(apart) == apart


def test_digits_are_offered_as_a_form() -> None:
    program = built(packed_and_scaled)
    names = [form.steps[0].rule for form in forms_of(program, RATES).offered if form.steps]
    assert NAME in names


def test_scales_of_blocks_leave_the_products_inside_them() -> None:
    """What a block's scale is looked up by is a digit; behind it the scale leaves the sum."""
    g = Graph("blocks")
    m, n, k = g.axes(m=256, n=256, k=512)
    a, b = g.input("A", (m, k), "e4m3"), g.input("B", (n, k), "e4m3")
    at, beside = g.tensor("sa", (256, 4), "f32"), g.tensor("sb", (2, 4), "f32")
    left = cast(a, "f32") * at[m, g.iota(k) // 128]
    right = cast(b, "f32") * beside[g.iota(n) // 128, g.iota(k) // 128]
    g.output("C", contract(left, right, over=k), "bf16")
    least = forms_of(g.program(), RATES).offered[1]
    assert [step.rule for step in least.steps] == [NAME, "scale-behind", "scale-behind"]


def test_an_axis_that_something_takes_whole_stays() -> None:
    g = Graph("whole")
    i, t = g.axes(i=3, t=8)
    x = g.input("X", (i, t), "f32") * g.tensor("s", (4,), "f32")[g.iota(t) // 2]
    g.output("Y", cumulative("sum", x, t))
    program = g.program()
    assert computed(digits(program))
    same(program, digits(program))


def test_names_that_are_taken_are_not_taken_again() -> None:
    g = Graph("taken")
    k, part, inner = g.axes(k=8, k_part=4, k_in=2)
    y = g.tensor("s", (4,), "f32")[g.iota(k) // 2] + g.tensor("t", (4, 2), "f32")[part, inner]
    g.output("Y", y * 2.0)
    program = g.program()
    same(program, digits(program))
    assert set(digits(program).axes) == {"k", "k_part", "k_in"}


def test_an_index_of_many_steps_is_looked_at_once() -> None:
    """Each step uses the one before twice: as a tree it has 2^60 leaves."""
    g = Graph("long")
    (i,) = g.axes(i=8)
    place = g.iota(i)
    for _ in range(60):
        place = (place + place) % 7
    g.output("Y", g.tensor("X", (8,), "f32")[place] * 2.0)
    same(g.program(), digits(g.program()))


def test_what_is_computed_of_data_stays() -> None:
    g = Graph("data")
    (i,) = g.axes(i=8)
    table = maximum(g.input("table", (i,), "i32") * 0, 0)
    g.output("Y", g.tensor("X", (4,), "f32")[table] * 2.0)
    program = g.program()
    assert digits(program) is program


@st.composite
def indices(draw: st.DrawFn) -> Program:
    """A vector read at quotients and rests of sums of two axes."""
    g = Graph("drawn")
    i, j = g.axes(i=draw(st.sampled_from((6, 8, 12))), j=draw(st.sampled_from((4, 6))))
    made: Tile = g.iota(i) * draw(st.integers(1, 6)) + g.iota(j) * draw(st.integers(0, 6))
    made = made + draw(st.integers(0, 9))
    for _ in range(draw(st.integers(1, 3))):
        by = draw(st.sampled_from((2, 3, 4, 6, 8)))
        whole = made // by
        made = draw(st.sampled_from((whole, made % by, whole * by + made % by, whole + i)))
    x = g.tensor("X", (128,), "f32", fill=0.0)
    g.output("Y", x[made] + x[g.iota(i) // 2] + x[g.iota(j) % 2], "f32", (i, j))
    return g.program()


@settings(max_examples=35, deadline=None)
@given(indices())
def test_drawn_indices(program: Program) -> None:
    same(program, digits(program))


def test_every_packed_type_has_a_digit_for_its_place() -> None:
    for name in ("i4", "u4", "i2", "e2m1"):
        g = Graph("packed")
        m, k = g.axes(m=2, k=16)
        g.output("Y", cast(g.input("W", (m, k), name), "f32"))
        apart = digits(g.program())
        assert dict(apart.extents)["k_in"] == dtype_of(name).per_byte


@pytest.mark.usefixtures("collecting")
def test_a_large_divisor_takes_no_room() -> None:
    """A shift by it would be a number of that many bits: a quarter of a gigabyte."""
    g = Graph("hashed")
    i, j = g.axes(i=32, j=16)
    place = (g.iota(i) * 7919) % 2_000_000_011 % 32
    g.output("Y", g.tensor("X", (32, 16), "f32")[place, j])
    program = g.program()
    tracemalloc.start()
    digits(program)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 8 << 20
