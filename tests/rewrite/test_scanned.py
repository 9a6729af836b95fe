"""States whose steps are associative are scans; a state that a step has twice is met once."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, maximum, minimum, recur, tanh, where
from ir.inputs import drawn_inputs
from ir.ops.recur import Before, Recur
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.scanned import met_once, rewritten
from ir.tiles import Tile


def _step(number: int, s: Tile, e: Tile, other: Tile) -> Tile:
    ways = (
        lambda: s * 0.9 + e,
        lambda: maximum(s, e),
        lambda: s * other + e * (1.0 - other),
        lambda: e - s,
        lambda: where(e > 0.3, s + e, s * 0.5),
        lambda: minimum(e, s),
        lambda: s + e,
        lambda: (-(s - e)) / 2.0 + s * 0.25,
        lambda: s + (e - s) * 0.3,
    )
    return ways[number]()


def _drawn(rng: np.random.Generator) -> Program:
    """One to three states, of inputs and of each other's steps."""
    g = Graph("states")
    t, b, c = g.axes(t=int(rng.integers(1, 9)), b=3, c=4)
    tiles = [g.input(name, (t, b, c), "f32") for name in "xyz"] + [g.input("u", (b, t), "f32")]
    begin = g.input("f", (b, c), "f32")
    for number in range(int(rng.integers(1, 4))):
        axes = (b, c) if rng.random() < 0.8 else (b,)
        known = [tile for tile in tiles if {*tile.axes} <= {"t", *(axis.name for axis in axes)}]
        first = (0.0, 1.5, begin)[int(rng.integers(3 if len(axes) == 2 else 2))]
        s = g.state(t, axes, first)
        e, other = (known[int(rng.integers(len(known)))] for _ in range(2))
        new = _step(int(rng.integers(9)), s, e, other)
        g.output(f"L{number}", recur(s, new), "f32", axes)
        g.output(f"S{number}", new, "f32", (t, *axes))
        g.output(f"B{number}", s * 2.0, "f32", (t, *axes))
        tiles += [new, s + 1.0]
    return g.program()


@pytest.mark.parametrize("seed", range(40))
def test_scans_and_steps_give_the_same_numbers(seed: int) -> None:
    program = _drawn(np.random.default_rng(seed))
    inputs = drawn_inputs(program, seed)
    wanted, found = evaluate(program, inputs), rewritten(program)
    others = [met_once(program), *([found[1]] if found else [])]
    for other in others:
        for name, value in evaluate(other, inputs).items():
            np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-5, err_msg=name)


def _states(*steps: str) -> Program:
    g = Graph("loop")
    t, b = g.axes(t=6, b=5)
    x = g.input("x", (t, b), "f32")
    states = [g.state(t, (b,)) for _ in steps]
    for number, (s, how) in enumerate(zip(states, steps, strict=True)):
        before = states[number - 1]
        new = {"tanh": tanh(s) + x, "other": before * 0.5 + x, "scan": s * 0.5 + x}[how]
        recur(s, new)
        g.output(f"S{number}", new, "f32", (t, b))
    return g.program()


def _loops(program: Program) -> int:
    return sum(isinstance(node.op, Recur) for node in program.nodes)


def test_a_step_that_is_no_scan_stays_a_step() -> None:
    assert rewritten(_states("tanh")) is None
    found = rewritten(_states("tanh", "scan"))
    assert found is not None
    assert _loops(found[1]) == 1


def test_three_states_that_are_made_of_each_other_stay() -> None:
    assert rewritten(_states("other", "other", "other")) is None


def test_a_state_over_an_axis_that_its_step_lacks_is_a_scan_too() -> None:
    g = Graph("alike")
    t, b, c = g.axes(t=6, b=5, c=3)
    x = g.input("x", (t, b), "f32")
    for number, low in enumerate((False, True)):
        s = g.state(t, (b, c))
        new = minimum(s, x) if low else s * 0.5 + x
        g.output(f"L{number}", recur(s, new), "f32", (b, c))
        g.output(f"S{number}", new, "f32", (t, b, c))
    program = g.program()
    found, inputs = rewritten(program), drawn_inputs(program, 0)
    assert found is not None
    assert _loops(found[1]) == 0
    wanted = evaluate(program, inputs)
    for name, value in evaluate(found[1], inputs).items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-6, err_msg=name)


def test_a_state_that_memory_has_no_room_for_stays() -> None:
    g = Graph("outer")
    t, d, e = g.axes(t=64, d=32, e=32)
    k, v = g.input("k", (t, d), "f32"), g.input("v", (t, e), "f32")
    s = g.state(t, (d, e))
    g.output("S", recur(s, s * 0.9 + k * v), "f32", (d, e))
    assert rewritten(g.program()) is None


def test_a_state_is_met_once() -> None:
    g = Graph("mean")
    t, b = g.axes(t=6, b=5)
    x = g.input("x", (t, b), "f32")
    s = g.state(t, (b,))
    g.output("L", recur(s, s + (x - s) * 0.3), "f32", (b,))
    made = met_once(g.program())
    (before,) = [p for p, node in enumerate(made.nodes) if isinstance(node.op, Before)]
    assert (
        len([user for user in made.users(before) if not isinstance(made.nodes[user].op, Recur)])
        == 1
    )
    once = _states("scan")
    assert met_once(once) is once


def _coupled(number: int, s: Tile, r: Tile, e: Tile, other: Tile) -> tuple[Tile, Tile]:
    """What a step makes of two states."""
    ways = (
        lambda: (1.2 * s - 0.5 * r + e, s),  # a filter of second order
        lambda: (0.9 * s - 0.3 * r + e, 0.3 * s + 0.9 * r),  # a complex pole
        lambda: (other * s + (e - r) / 2.0, where(e > 0.0, s, r * other)),
        lambda: (s - 0.1 * r, r + 0.1 * s),  # nothing is added
        lambda: (r, s + e),
    )
    return ways[number]()


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("begins", [False, True])
def test_states_that_are_made_of_each_other_are_one_scan(number: int, begins: bool) -> None:
    g = Graph("coupled")
    t, b = g.axes(t=9, b=3)
    e, other = g.input("e", (t, b), "f32"), g.input("o", (t, b), "f32")
    first = g.input("f", (b,), "f32") if begins else 0.5
    s, r = g.state(t, (b,), first), g.state(t, (b,))
    after, behind = _coupled(number, s, r, e, other)
    g.output("S", after, "f32", (t, b))
    g.output("B", r + s, "f32", (t, b))
    g.output("L", recur(s, after), "f32", (b,))
    g.output("M", recur(r, behind), "f32", (b,))
    program, inputs = g.program(), drawn_inputs(g.program(), number)
    found = rewritten(program)
    assert found is not None
    assert not any(isinstance(node.op, Before) for node in found[1].nodes)
    wanted = evaluate(program, inputs)
    for name, value in evaluate(found[1], inputs).items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_products_of_two_states_stay() -> None:
    g = Graph("others")
    t, b = g.axes(t=9, b=3)
    s, r = g.state(t, (b,)), g.state(t, (b,))
    g.output("L", recur(s, s * r + 1.0), "f32", (b,))
    recur(r, r * s + g.input("e", (t, b), "f32"))
    assert rewritten(g.program()) is None


@pytest.mark.parametrize("both", [False, True])
def test_states_that_begin_infinite_stay(both: bool) -> None:
    """What is chosen instead of them would be 0 times an infinity."""
    g = Graph("last_seen")
    t, b = g.axes(t=5, b=3)
    x, c = g.input("x", (t, b), "f32"), g.input("c", (t, b), "f32")
    a, other = g.state(t, (b,), -np.inf), g.state(t, (b,), 0.0)
    before = other if both else a
    g.output("L", recur(a, where(c > 0.5, x, before)), "f32", (b,))
    recur(other, where(c > 0.3, a, other) if both else other * c)
    found = rewritten(g.program())
    left = [] if found is None else [n.op.axes for n in found[1].nodes if isinstance(n.op, Before)]
    assert found is None or len(left) == 1
