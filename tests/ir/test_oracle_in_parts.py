"""The oracle gives the same however little room it has: what is cut is not what others sum over."""

from __future__ import annotations

import math

import numpy as np
import pytest

from explorer.expectation import error_model
from ir import Graph, cast, contract, exp, indices, maximum, minimum, recur, reduce, rsqrt, scatter
from ir.evaluation import Evaluation
from ir.inputs import drawn_inputs
from ir.ops.base import TileArray
from ir.oracle import answers
from ir.program import Program


def turned_back(m: int = 48, n: int = 40) -> Program:
    """A matrix that is turned on both sides, divided by its size, and turned back."""
    g = Graph("turned_back")
    i, j, k, l = g.axes(i=m, j=n, k=m, l=n)  # noqa: E741
    d, left = g.input("G", (k, l), "bf16"), g.input("QL", (k, i), "bf16")
    right = g.input("QR", (l, j), "bf16")
    t = contract(cast(contract(left, d, over=k), "bf16"), right, over=l)
    size = t * t + 1.0
    g.output("V", size, "f32", (i, j))
    step = cast(t * rsqrt(size), "bf16")
    back = contract(cast(contract(left, step, over=i), "bf16"), right, over=j)
    g.output("S", back, "f32", (k, l))
    return g.program()


def twice_normed(m: int = 64, n: int = 56) -> Program:
    """Sums over rows of what was divided by sums over columns, and back over the rows."""
    g = Graph("twice_normed")
    i, j = g.axes(i=m, j=n)
    e = exp(g.input("X", (i, j), "f32"))
    rows = e / reduce("sum", e, over=(j,))
    both = rows / reduce("sum", rows, over=(i,))
    g.output("Y", both * reduce("max", both, over=(i, j)), "f32", (i, j))
    return g.program()


def reached(n: int = 24, steps: int = 3) -> Program:
    """What is reached from each point of a graph, and by how much: products inside of steps."""
    g = Graph("reached")
    t, i, j, k = g.axes(t=steps, i=n, j=n, k=n)
    edges = g.tensor("E", (n, n), "f32")
    far = g.state(t, (i, j), edges[i, j])
    over = reduce("max", minimum(far.at({j: k}), far.at({i: k})), over=(k,))
    g.output("R", recur(far, maximum(far, over) * 0.5), "f32", (i, j))
    return g.program()


def mean_path(n: int = 600, steps: int = 5) -> Program:
    """The mean of what drawn steps come to: a loop that one sum alone is made of."""
    g = Graph("mean_path")
    t, i = g.axes(t=steps, i=n)
    x = g.state(t, (i,), g.constant(1.0, "f32"))
    step = exp(g.input("Z", (i, t), "f32") * 0.25)
    g.output("M", reduce("sum", recur(x, x * step + 0.125), over=(i,)) / n, "f32", ())
    return g.program()


def sent(n: int = 300, m: int = 7, bins: int = 11) -> Program:
    """Sums, largest and least of what points send to bins, some of them to none."""
    g = Graph("sent")
    i, j, b = g.axes(i=n, j=m, b=bins)
    x, place = g.input("X", (i, j), "f32"), g.input("P", (i,), "i32", values=indices(bins))
    value, to = exp(x), place + g.iota(j) - 3
    for kind in ("sum", "max", "min"):
        g.output(kind, scatter(kind, value, {b: to}), "f32", (b,))
    return g.program()


_PROGRAMS = [turned_back(), twice_normed(), reached(), mean_path(), sent()]


@pytest.mark.parametrize("program", [*_PROGRAMS[2:]], ids=lambda p: p.name)
def test_what_is_there_at_a_time_has_the_room(program: Program) -> None:
    """Also inside of steps, through a loop that one sum is made of, and of points that are sent."""
    inputs, model, room, seen = drawn_inputs(program, 0), error_model(program), 1 << 10, [0]
    computed = Evaluation._compute

    def watched(self: Evaluation, position: int) -> TileArray:
        found = computed(self, position)
        seen.append(found.array.nbytes)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evaluation, "_compute", watched)
        answers(program, inputs, model, room=room)
    stored = [8 * math.prod(spec.shape) for spec in program.outputs]
    assert max(seen) <= max(room, *stored)


def test_values_are_let_go_as_soon_as_nobody_asks_for_them() -> None:
    """Of a chain of elementwise steps few are there at a time."""
    g = Graph("chain")
    (i,) = g.axes(i=64)
    x = g.input("X", (i,), "f32")
    for number in range(20):
        x = x * 0.5 + number
    g.output("Y", x, "f32", (i,))
    program = g.program()
    alive: list[int] = []
    computed = Evaluation._compute

    def watched(self: Evaluation, position: int) -> TileArray:
        found = computed(self, position)
        alive.append(sum(1 for tile in self.known.values() if tile.axes))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evaluation, "_compute", watched)
        answers(program, drawn_inputs(program, 0), error_model(program))
    assert len(alive) > 40
    assert max(alive) <= 4


@pytest.mark.parametrize("program", _PROGRAMS, ids=lambda p: p.name)
@pytest.mark.parametrize("room", [1 << 9, 1 << 11, 1 << 13])
def test_little_room_changes_nothing(program: Program, room: int) -> None:
    inputs, model = drawn_inputs(program, 0), error_model(program)
    wanted, found = (answers(program, inputs, model, room=size) for size in (1 << 30, room))
    for name, answer in wanted.items():
        np.testing.assert_allclose(found[name].value, answer.value, rtol=1e-12, atol=1e-12)
        most = 4.0 if program.name == "reached" else 1.0  # the largest of parts is taken once more
        reach, exact = found[name].reach, answer.reach
        assert np.all(reach >= exact * (1 - 1e-5) - 1e-9)
        assert np.all(reach <= most * exact * (1 + 1e-5) + 1e-9)
