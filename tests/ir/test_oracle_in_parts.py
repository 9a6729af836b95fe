"""The oracle gives the same however little room it has: what is cut is not what others sum over."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.expectation import error_model
from ir import Graph, cast, contract, exp, reduce, rsqrt
from ir.inputs import drawn_inputs
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


@pytest.mark.parametrize("program", [turned_back(), twice_normed()], ids=lambda p: p.name)
@pytest.mark.parametrize("room", [1 << 9, 1 << 11, 1 << 13])
def test_little_room_changes_nothing(program: Program, room: int) -> None:
    inputs, model = drawn_inputs(program, 0), error_model(program)
    wanted, found = (answers(program, inputs, model, room=size) for size in (1 << 30, room))
    for name, answer in wanted.items():
        np.testing.assert_allclose(found[name].value, answer.value, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found[name].reach, answer.reach, rtol=1e-5, atol=1e-9)
