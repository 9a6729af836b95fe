"""What is read at other points is made there: the same numbers, without a copy in memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Graph, Tile, cast, contract, recur, relu, scatter, sqrt, tanh
from ir.inputs import random_inputs
from ir.ops.read import Read
from ir.ops.scatter import Scatter
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.digits import digits
from ir.rewrite.forms import forms_of
from ir.rewrite.narrowing import unwidened
from ir.rewrite.rereading import NAME, rewritten
from ir.rewrite.work import Rates
from ir.values import indices

RATES = Rates({"f32": 1e14, "f16": 1e15}, 1e13, 1e12)


def same(program: Program, other: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(3))
    want, have = (evaluate(one, inputs) for one in (program, other))
    for name in want:
        np.testing.assert_array_equal(have[name], want[name])


def reads(program: Program) -> int:
    return sum(isinstance(node.op, Read) for node in program.nodes)


def laplacian(g: Graph) -> None:
    y, x = g.axes(y=7, x=9)
    v = sqrt(cast(g.input("I", (y, x), "u8"), "f32"))
    around = v.at(y=y - 1, fill=0) + v.at(y=y + 1, fill=0) + v.at(x=x - 1, fill=2.5)
    g.output("O", around + v.at(x=x + 1, fill=-1.0) - 4 * v)


def reversed_and_halved(g: Graph) -> None:
    n, m = g.axes(n=8, m=4)
    v = g.input("X", (n,), "f32") * 2.0 + cast(g.iota(n), "f32")
    g.output("r", v.at(n=7 - n))
    g.output("h", v.at({n: 2 * m}))


def picked(g: Graph) -> None:
    n, m, d = g.axes(n=6, m=5, d=3)
    place = g.input("place", (m,), "i32", values=indices(6))
    v = g.input("X", (n, d), "f32") * g.input("s", (n,), "f32")
    g.output("O", v.at(n=place))
    g.output("P", v.at({n: place - 2}, fill=9.0))


def looked_up(g: Graph) -> None:
    n, m, d = g.axes(n=6, m=5, d=3)
    place = g.input("place", (n,), "i32", values=indices(5))
    v = g.tensor("X", (5, 3), "f32")[place, d] + 1.0
    g.output("O", v.at({n: m + 1}))


WRITTEN = [laplacian, reversed_and_halved, picked, looked_up]


@pytest.mark.parametrize("write", WRITTEN)
def test_reads_make_what_they_read(write: Callable[[Graph], None]) -> None:
    g = Graph("reads")
    write(g)
    program = g.program()
    found = rewritten(program)
    assert found is not None
    assert reads(program) > 0 == reads(found[1])
    same(program, found[1])


def squares(g: Graph, fill: float = 0) -> Tile:
    n, m = g.axes(n=6, m=7)
    x, y = g.input("X", (n, m), "f16"), g.input("Y", (n, m), "f32")
    return (cast(x, "f32") * y + y).at(n=n - 1, m=m + 2, fill=fill)


def scaled_rows(g: Graph, fill: float = 0) -> Tile:
    n, m = g.axes(n=6, m=7)
    x, s = g.input("X", (n, m), "f16"), g.input("s", (n,), "f32")
    return (x * s).at(n=n - 1, m=m + 2, fill=fill)


def parts_of_rows(g: Graph, fill: float = 0) -> Tile:
    n, m = g.axes(n=6, m=5)
    x = cast(g.tensor("X", (6, 7), "f16")[n, m + 1], "f32")
    return x.at(n=n - 1, m=m + 1, fill=fill)


def with_places(g: Graph, fill: float = 0) -> Tile:
    n, m = g.axes(n=6, m=7)
    return (g.input("X", (n, m), "f32") + cast(g.iota(n), "f32")).at(n=n - 1, fill=fill)


def powers(g: Graph, fill: float = 0) -> Tile:
    n, m = g.axes(n=6, m=7)
    return cast(g.input("X", (n, m), "e8m0"), "f32").at(n=n - 1, fill=fill)


@pytest.mark.parametrize(
    ("write", "fill", "masks"),
    [
        (powers, 0, True), (squares, 0, False), (squares, 1.0, True), (scaled_rows, 0, True),
        (parts_of_rows, 0, True), (with_places, 0, True),
    ],
)  # fmt: skip
def test_zeros_outside_are_what_loads_give_there(
    write: Callable[[Graph, float], Tile], fill: float, masks: bool
) -> None:
    """Where all that is read is 0 outside; what a value's axes are a part of is not."""
    g = Graph("outside")
    g.output("O", write(g, fill))
    program = g.program()
    found = rewritten(program)
    assert found is not None
    functions = [getattr(node.op, "function", "") for node in found[1].nodes]
    assert ("where" in functions) is masks
    same(program, found[1])


def test_it_is_offered_where_it_saves_memory() -> None:
    g = Graph("reads")
    n, m = g.axes(n=1 << 12, m=1 << 12)
    v = cast(g.input("X", (n, m), "f16"), "f32")
    g.output("O", v.at(m=m - 1, fill=0) - v.at(n=n - 1, fill=0), "f32", (n, m))
    names = [form.name.rpartition("-")[0] for form in forms_of(g.program(), RATES).offered]
    assert NAME in names


def test_what_is_reduced_stays_in_memory() -> None:
    from ir import reduce

    g = Graph("sums")
    n, m = g.axes(n=8, m=8)
    total = reduce("sum", g.input("X", (n, m), "f32"), over=m)
    g.output("O", total.at(n=n - 1, fill=0))
    assert rewritten(g.program()) is None


@st.composite
def shifts(draw: st.DrawFn) -> Program:
    g = Graph("shifts")
    n, m = g.axes(n=draw(st.integers(1, 6)), m=draw(st.integers(1, 6)))
    v: Tile = g.tensor("X", (9, 9), "f32", fill=draw(st.sampled_from((0.0, 1.5))))[n + 1, 2 * m]
    v = v * 0.5 + cast(g.iota(m), "f32")
    for _ in range(draw(st.integers(1, 2))):
        scale, by = draw(st.sampled_from((1, -1, 2))), draw(st.integers(-3, 5))
        v = v.at(n=scale * n + by, fill=draw(st.sampled_from((0.0, -2.0)))) + 1.0
    g.output("O", v, "f32", (n, m))
    return g.program()


@settings(max_examples=35, deadline=None)
@given(shifts())
def test_drawn_reads(program: Program) -> None:
    while (found := rewritten(program)) is not None:
        same(program, found[1])
        program = found[1]
    assert not reads(program)


def test_indices_of_what_is_sent_and_read_are_plain() -> None:
    g = Graph("sent")
    b, n, k, m = g.axes(b=3, n=12, k=4, m=12)
    x = g.input("X", (b, n), "i32", values=indices(4))
    g.output("h", scatter("sum", x * 0 + 1, {b: g.iota(b), k: x}))
    g.output("s", scatter("sum", g.input("V", (m,), "f32"), {k: g.iota(m) // 3}))
    g.output("t", (x + 1).at(n=11 - g.iota(n)))
    program = g.program()
    plain = digits(program)
    same(program, plain)
    sent = [node for node in plain.nodes if isinstance(node.op, Scatter | Read)]
    assert sorted(len(node.args) for node in sent) == [1, 1, 2]


CHOSEN: list[tuple[Callable[[Tile], Tile], bool]] = [
    (relu, True),
    (lambda x: relu(cast(x, "f32")) * -1.0, False),
    (lambda x: relu(x).at(i=0 * x.graph.axis("j", 4) + 1), True),
    (lambda x: relu(cast(x, "f32") + 1.0), False),
]


@pytest.mark.parametrize(("write", "narrow"), CHOSEN)
def test_a_choice_of_narrow_numbers_is_multiplied_as_narrow(
    write: Callable[[Tile], Tile], narrow: bool
) -> None:
    g = Graph("chosen")
    i, k, n = g.axes(i=4, k=8, n=6)
    left = write(g.input("X", (i, k), "f16"))
    g.output("Y", contract(left, g.input("W", (k, n), "f16"), over=k))
    program = g.program()
    plain = unwidened(program)
    product = next(node for node in plain.nodes if node.op.name == "contract")
    types = {plain.nodes[arg].dtype for arg in product.args}
    assert (types == {"f16"}) == narrow
    same(program, plain)


def ends(g: Graph, through: bool, late: bool) -> None:
    """What a loop makes at its last step, by itself or on its way to an output."""
    t, b, i = g.axes(t=5, b=2, i=4)
    x = g.input("X", (t, b, i), "f32")
    state = g.state(t, (b, i), 1.0)
    after = state * 0.5 + x * state.at(i=0)
    if not late:
        recur(state, after)
    value = after * 2.0 + x if through else after
    g.output("L", value.at(t=4), "f32", (b, i))
    if late:
        g.output("S", recur(state, after), "f32", (b, i))


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_the_last_step_is_what_is_left_at_the_end(through: bool, late: bool) -> None:
    g = Graph("ends")
    ends(g, through, late)
    program = g.program()
    found = rewritten(program)
    assert found is not None
    assert reads(found[1]) == 1  # of the state itself, in each step
    same(program, found[1])


def test_other_steps_are_read_where_they_are_kept() -> None:
    g = Graph("steps")
    t, b = g.axes(t=5, b=2)
    x = g.input("X", (t, b), "f32")
    state = g.state(t, (b,), 1.0)
    after = tanh(state) + x
    g.output("L", after.at(t=3), "f32", (b,))
    g.output("M", recur(state, after), "f32", (b,))
    assert rewritten(g.program()) is None
