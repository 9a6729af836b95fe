"""States whose steps leave what others read: they take the old one's place at once."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, recur, where
from ir.inputs import drawn_inputs
from ir.loops import loops_of
from ir.ops.read import Read
from ir.oracle import evaluate
from ir.plain.build import plain_kernel
from ir.plain.code import GROUP
from ir.plain.meaning import meaning
from ir.plain.settled import leaves
from ir.program import Program


def stepped(choice: str) -> Program:
    """x[i] less L[i, s] x[s], where a choice by i and s says so."""
    g = Graph(f"stepped_{choice}")
    s, i, j = g.axes(s=5, i=5, j=5)
    lower = g.input("L", (i, j), "f32")
    x = g.state(s, (i,), g.input("X", (i,), "f32"))
    here = {
        "below": g.iota(i) > s,
        "above": g.iota(i) < s,
        "from": g.iota(i) >= s,
        "others": (g.iota(i) > s) | (g.iota(i) < s),
    }[choice]
    taken = where(here, lower.at(j=s), 0.0) * x.at(i=s)
    g.output("Y", recur(x, x - taken), "f32", (i,))
    return g.program()


def left(program: Program) -> bool:
    (loop,) = loops_of(program)
    ((before, after),) = loop.states
    reads = [
        position
        for position, node in enumerate(program.nodes)
        if isinstance(node.op, Read) and node.args == (before,)
    ]
    return all(leaves(program, before, after, read) for read in reads)


@pytest.mark.parametrize(
    ("choice", "stays"), [("below", True), ("above", True), ("others", True), ("from", False)]
)
def test_a_row_that_stays_needs_no_second_array(choice: str, stays: bool) -> None:
    program = stepped(choice)
    assert left(program) == stays
    kernel = plain_kernel(program)
    arrays = [array for array in kernel.arrays if array.place == GROUP]
    if arrays:
        assert [array.size for array in arrays] == [program.axes["i"] * (1 if stays else 2)]
    inputs = drawn_inputs(program, 2)
    (exact,) = evaluate(program, inputs).values()
    (found,) = meaning(kernel, inputs).values()
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)


def test_what_moves_is_seen() -> None:
    """A row that others read a step later is another one."""
    g = Graph("shifted")
    s, i, j = g.axes(s=5, i=5, j=5)
    lower = g.input("L", (i, j), "f32")
    x = g.state(s, (i,), g.input("X", (i,), "f32"))
    below = where(g.iota(i) > s, lower.at(j=s), 0.0)
    g.output("Y", recur(x, x - below * x.at(i=4 - s)), "f32", (i,))
    assert not left(g.program())
