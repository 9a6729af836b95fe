"""Functions that narrow outputs alone are made of may be coarse, beside others that are wide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from explorer.check import Bounds
from explorer.expectation import error_model
from ir import Graph, exp, log, recur, reduce
from ir.coarsest import coarsest
from ir.inputs import random_inputs
from ir.oracle import answers
from ir.program import Program
from ir.roundoff import FORMATS


def program(both: bool) -> Program:
    """Exponentials in bf16 and sums in f32: of the numbers, or of the exponentials too."""
    g = Graph("mixed")
    m, n = g.axes(m=8, n=64)
    x = g.input("X", (m, n), "f32")
    e = exp(x)
    g.output("Y", e, "bf16", (m, n))
    g.output("R", reduce("sum", e if both else x, over=n), "f32", (m,))
    return g.program()


def test_a_function_is_as_coarse_as_what_is_made_of_it() -> None:
    for both, unit in ((False, FORMATS["bf16"].unit), (True, 0.0)):
        made = program(both)
        place = next(n for n, node in enumerate(made.nodes) if str(node.op).find("exp") >= 0)
        assert coarsest(made)[place] == unit
        assert error_model(made).mixed
        assert error_model(made).coarsest == 0.0


def test_coarse_exponentials_are_right_where_narrow_numbers_are_made_of_them() -> None:
    """Off by 2^-14, which moves some of them to the next number of bf16; sums of them are not."""
    for both in (False, True):
        made = program(both)
        inputs = random_inputs(made, np.random.default_rng(0))
        found = answers(made, inputs, error_model(made))
        exact = found["Y"].value
        assert (found["Y"].reach / exact > 2.0**-14).all()
        near = (exact * (1 + 2.0**-14)).astype(np.float32).view(np.uint32)
        rounded = ((near + 0x7FFF + ((near >> 16) & 1)) >> 16).astype(np.uint16)
        assert Bounds.around(found["Y"], "bf16").judge(rounded).right
        moved = (found["R"].value * (1 + 2.0**-14)).astype(np.float32)
        assert not Bounds.around(found["R"], "f32").judge(moved).right


def test_what_a_state_is_made_of_is_not_coarse() -> None:
    g = Graph("stepped")
    t, n = g.axes(t=6, n=8)
    h = g.state(t, (n,))
    after = exp(0.1 * h) + g.input("X", (t, n), "f32")
    g.output("H", after, "bf16", (t, n))
    g.output("last", recur(h, after), "bf16", (n,))
    made = g.program()
    place = next(n for n, node in enumerate(made.nodes) if str(node.op).find("exp") >= 0)
    assert coarsest(made)[place] == 0.0


def test_a_narrow_output_may_have_a_coarse_function_of_its_own() -> None:
    """What shares it is as fine as ever: its kernel need not be the same."""
    g = Graph("shares")
    m, n = g.axes(m=8, n=32)
    z = g.input("Z", (m, n), "f32")
    most = reduce("max", z, over=n)
    e = exp(z - most)
    total = reduce("sum", e, over=n)
    g.output("P", e / total, "bf16", (m, n))
    g.output("L", log(total) + most, "f32", (m,))
    made = g.program()
    inputs = random_inputs(made, np.random.default_rng(0))
    model = error_model(made)
    found = answers(made, inputs, model)
    fine = answers(made, inputs, replace(model, mixed=False, coarsest=0.0))
    assert (found["P"].reach > 10 * fine["P"].reach).all()
    assert np.array_equal(found["L"].reach, fine["L"].reach)
    assert np.array_equal(found["P"].value, fine["P"].value)
