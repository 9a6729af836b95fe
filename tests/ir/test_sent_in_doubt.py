"""Points that are sent to a place which roundings leave in doubt."""

from __future__ import annotations

import numpy as np

from explorer.expectation import error_model
from ir import Graph, cast, floor, indices, scatter, uniform
from ir.inputs import drawn_inputs
from ir.oracle import answers


def test_of_several_places_that_are_told_one_may_be_in_doubt() -> None:
    """What may come to a bin, or go, are the points near its ends; the batch is not in doubt."""
    g = Graph("votes")
    b, n, r = g.axes(b=3, n=4000, r=64)
    x, w = g.input("X", (b, n), "f32", values=uniform(0, 1)), g.input("W", (b, n), "f32")
    row = g.input("row", (b, n), "i32", values=indices(3))
    place = cast(floor((x * x + x) * 32.0), "i32")
    g.output("V", scatter("sum", w, {b: row, r: place}), "f32", (b, r))
    program = g.program()
    inputs = drawn_inputs(program, 0)
    found = answers(program, inputs, error_model(program))["V"]
    assert np.all(np.isfinite(found.reach))
    position = (inputs["X"] * (inputs["X"] + 1.0)) * 32.0
    near = np.abs(position - np.rint(position)) < 1e-7 * position
    assert near.sum() < 100
    assert (found.reach > 1e-3).mean() < 0.3
    for at, row_at, weight in zip(
        np.rint(position)[near], inputs["row"][near], inputs["W"][near], strict=True
    ):
        for end in {int(at) - 1, int(at)} - {64, -1}:
            assert found.reach[row_at, end] >= abs(weight) * 0.99
