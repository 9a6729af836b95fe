"""Maxima said to be unfelt: moved by any amounts, they leave every output as it is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir import Graph, exp, log, maximum, minimum, operator, recur, reduce, sqrt, where
from ir.builder import Operator
from ir.inputs import drawn_inputs
from ir.ops.map import Map
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.graft import copy_node, graft
from ir.shifts import unfelt
from ir.tiles import Tile
from tests.judging import bounds_of

PAIRS = {"max": maximum, "min": minimum}


def moved(program: Program, position: int) -> Program:
    """The program with a value of its own added to a node at each of its points."""
    graph, made = graft(program), list[Tile]()
    for place, node in enumerate(program.nodes):
        tile = copy_node(graph, program, place, [made[arg] for arg in node.args])
        made.append(tile + tile * 0.75 + 0.5 if place == position else tile)
    return graph.program()


def same(program: Program, other: Program) -> bool:
    inputs = drawn_inputs(program, 1)
    wanted, found = evaluate(program, inputs), evaluate(other, inputs)
    return all(
        np.allclose(found[name], wanted[name], rtol=1e-9, atol=1e-9, equal_nan=True)
        for name in wanted
    )


def last(program: Program) -> int:
    """The last maximum (minimum) of two numbers."""
    nodes = enumerate(program.nodes)
    return max(p for p, n in nodes if isinstance(n.op, Map) and n.op.function in PAIRS)


class _Pool:
    """Tiles over rows and columns, and what is made of them."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.graph, self.draw = Graph("drawn"), draw
        self.i, self.j = self.graph.axes(i=3, j=4)
        a, b, x = (
            self.graph.input(name, axes, "f32")
            for name, axes in {"a": (self.i,), "b": (self.i,), "x": (self.i, self.j)}.items()
        )
        self.tiles = [a, b, x]
        self.shift = self.extreme()

    def pick(self) -> Tile:
        return self.draw(st.sampled_from(self.tiles))

    def extreme(self) -> Tile:
        """The largest (smallest) of a row or of two values."""
        kind = self.draw(st.sampled_from(["max", "min"]))
        if self.draw(st.booleans()):
            return reduce(kind, self.tiles[2], over=self.j)
        return PAIRS[kind](self.pick(), self.pick())

    def powers(self) -> Tile:
        """An exponential of what the shift keeps small, summed over columns where it has some."""
        scale = self.draw(st.sampled_from([1.0, 1.0, 2.0, -1.0]))
        found = exp((self.pick() - self.shift) * scale)
        over = {"i": self.i, "j": self.j}
        axis = self.draw(st.sampled_from(["", "i", "j", "j"]))
        return reduce("sum", found, over=over[axis]) if axis in found.axes else found

    def grown(self) -> Tile:
        """Of sums, products, quotients, roots and choices of such exponentials."""
        one, other = self.powers(), self.powers()
        ways = {
            "sum": lambda: one + other,
            "product": lambda: one * other,
            "quotient": lambda: one / other,
            "root": lambda: sqrt(one),
            "most": lambda: maximum(one, other),
            "clamped": lambda: maximum(one, 0.0),
            "pushed": lambda: maximum(one, 0.5),
            "chosen": lambda: where(one < other, one, other),
            "patched": lambda: where(self.pick() > 0.0, one, 0.5),
            "cut": lambda: where(self.pick() > 0.0, one, 0.0),
        }
        return ways[self.draw(st.sampled_from(sorted(ways)))]()

    def result(self) -> Tile:
        """What may have lost the shift again."""
        one, other = (self.powers() if self.draw(st.booleans()) else self.grown() for _ in range(2))
        if self.draw(st.booleans()):
            return log(one) + self.shift * self.draw(st.sampled_from([1.0, 1.0, 2.0, 0.5]))
        return one / other


@st.composite
def _drawn(draw: st.DrawFn) -> Program:
    pool = _Pool(draw)
    axes = {"i": pool.i, "j": pool.j}
    for number in range(draw(st.integers(1, 2))):
        tile = pool.result()
        pool.graph.output(f"Y{number}", tile, "f32", tuple(axes[axis] for axis in tile.axes))
    return pool.graph.program()


@settings(max_examples=275)
@given(_drawn())
def test_no_output_is_another_where_they_are_moved(program: Program) -> None:
    for position in unfelt(program):
        assert same(program, moved(program, position))


@operator
def connectionist(g: Graph, t: int = 60, n: int = 9) -> None:
    """Forward variables over labels and blanks, in logarithms: three states lead to each."""
    time, s = g.axes(t=t, s=n)
    e, skipped = g.input("E", (time, s), "f32"), g.input("P", (s,), "f32")
    before = g.state(time, (s,), -1.0)
    one, two = before.at({s: s - 1}, fill=-1e4), before.at({s: s - 2}, fill=-1e4) + skipped
    m = maximum(maximum(before, one), two)
    powers = exp(before - m) + exp(one - m) + exp(two - m)
    after = m + log(powers) + e
    recur(before, after)
    g.output("A", after, "f32", (time, s))


@operator
def smallest(g: Graph) -> None:
    (i,) = g.axes(i=4)
    a, b, c = (g.input(name, (i,), "f32") for name in "abc")
    m = minimum(minimum(a, b), c)
    g.output("L", m - log(exp(m - a) + exp(m - b) + exp(m - c)), "f32", (i,))


@operator
def shown(g: Graph) -> None:
    (i,) = g.axes(i=4)
    a, b = g.input("a", (i,), "f32"), g.input("b", (i,), "f32")
    m = maximum(a, b)
    g.output("L", m + log(exp(a - m) + exp(b - m)), "f32", (i,))
    g.output("M", m, "f32", (i,))


@operator
def clamped(g: Graph) -> None:
    (i,) = g.axes(i=4)
    g.output("Y", minimum(maximum(g.input("a", (i,), "f32"), -1.0), 1.0), "f32", (i,))


@operator
def forgotten(g: Graph) -> None:
    """A log-sum-exp that lacks the term of one of those compared is still one of the others."""
    (i,) = g.axes(i=4)
    a, b, c = (g.input(name, (i,), "f32") for name in "abc")
    m = maximum(maximum(a, b), c)
    g.output("L", m + log(exp(a - m) + exp(b - m)), "f32", (i,))


@pytest.mark.parametrize("made", [connectionist, smallest, forgotten])
def test_of_three_numbers_the_last_that_is_compared_is_unfelt(made: Operator) -> None:
    program = made.build()
    assert unfelt(program) == {last(program)}
    assert same(program, moved(program, last(program)))


@pytest.mark.parametrize("made", [shown, clamped])
def test_what_an_output_has_is_felt(made: Operator) -> None:
    program = made.build()
    assert not unfelt(program)
    assert not same(program, moved(program, last(program)))


def test_errors_of_three_terms_do_not_grow_with_steps() -> None:
    program = connectionist.build()
    inputs = drawn_inputs(program, 3)
    bounds = bounds_of(program, inputs)["A"]
    exact = evaluate(program, inputs)["A"]
    assert np.max(bounds.high - bounds.low) < 1e-3 * bounds.scale
    state, found = np.full(9, -1, np.float32), []
    for row in inputs["E"].astype(np.float32):
        terms = np.full((3, 9), -1e4, np.float32)
        terms[0], terms[1, 1:], terms[2, 2:] = state, state[:-1], state[:-2]
        terms[2] += inputs["P"].astype(np.float32)
        most = terms.max(axis=0)
        state = most + np.log(np.exp(terms - most).sum(axis=0)) + row
        found.append(state)
    assert bounds.judge(np.stack(found)).right
    assert not bounds.judge((exact * 1.001).astype(np.float32)).right
