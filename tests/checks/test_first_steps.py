"""Of sets of operands after the first, what goes step by step is known up to a point."""

from __future__ import annotations

import pytest

from explorer.afforded import DEVICE, first_steps
from explorer.check import poison
from explorer.expectation import Recipe
from ir import Graph, recur, reduce
from ir.dtypes import from_float
from ir.oracle import evaluate
from ir.program import Program


def stepped(ends: str) -> Program:
    """A gated sum of many steps: of every step, and (`ends`) of the last."""
    g = Graph("stepped")
    t, b = g.axes(t=4096, b=5)
    x, gate = g.input("X", (b, t), "f32"), g.input("G", (b, t), "f32")
    h = g.state(t, (b,), g.constant(0.0, "f32"))
    after = h * (gate * 0.25) + x
    last = recur(h, after)
    g.output("Y", after, "f32", (b, t))
    if ends == "state":
        g.output("last", last, "f32", (b,))
    elif ends == "number":
        g.output("last", reduce("sum", last, over=(b,)), "f32", ())
    elif ends == "within":
        g.output("Z", x - last, "f32", (b, t))
    return g.program()


@pytest.mark.parametrize(
    ("ends", "unknown"), [("", ()), ("state", ("last",)), ("number", None), ("within", ("Z",))]
)
def test_which_outputs_are_known_of_the_first_steps(
    ends: str, unknown: tuple[str, ...] | None
) -> None:
    program = stepped(ends)
    picked, left = first_steps(program, 1 / 8)
    if unknown is None:
        assert not picked
        assert not left
    else:
        assert {axis: len(points) for axis, points in picked.items()} == {"t": 512}
        assert left == {*unknown}
    assert first_steps(program, 1.0) == ({}, frozenset())


def test_the_second_set_is_judged_by_its_first_steps() -> None:
    program = stepped("state")
    whole, found = (Recipe(program, 0).expected(number, DEVICE) for number in (0, 1))
    assert whole.bounds["last"].low.size
    outputs = {
        name: from_float(array, "f32") for name, array in evaluate(program, found.inputs).items()
    }
    assert all(found.bounds[name].judge(outputs[name]).right for name in outputs)
    assert found.bounds["Y"].low.size < outputs["Y"].size / 4
    outputs["Y"][3, 500] *= 1.001
    outputs["last"][2] = 7.0
    assert not found.bounds["Y"].judge(outputs["Y"]).right
    assert found.bounds["last"].judge(outputs["last"]).right  # nothing is said of it
    poison(outputs["Y"], "f32")
    assert not found.bounds["Y"].judge(outputs["Y"]).right
