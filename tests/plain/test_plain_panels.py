"""Points of a group beside each other: the same numbers, where it is possible at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from explorer.workload import Workload
from ir.dtypes import from_float
from ir.inputs import drawn_inputs
from ir.ops.base import Array
from ir.oracle import evaluate
from ir.phases import phases_of
from ir.plain.accesses import every
from ir.plain.build import plain_kernel
from ir.plain.code import Claim, Name, PlainKernel, Spread, Write
from ir.plain.meaning import meaning
from ir.plain.panels import panel_axis, panelled
from ir.program import Program

CHUNKED = {"b": 1, "heads": 2, "d": 4, "dv": 4, "t": 8, "chunk": 4}
CASES = {
    "gated_delta_net_chunked": (CHUNKED, {"i_dv_1", "i_r_1"}),
    "gated_delta_net": ({"b": 2, "heads": 1, "d": 3, "dv": 4, "t": 3}, {"i_dv_1"}),
    "triangular_inverse": ({"batch": 2, "n": 4}, {"i_r_1"}),
    "gla": ({"b": 1, "heads": 2, "t": 3, "d": 4}, {"i_dv_1"}),
}


def program_of(operator: str, arguments: Mapping[str, object]) -> Program:
    return Workload.of(operator, arguments, "cpu").program


def computed(
    program: Program, inputs: Mapping[str, Array], count: int
) -> tuple[set[str], dict[str, Array]]:
    """The outputs with panels of `count` points wherever there may be some, and their axes."""
    known, axes = dict(inputs), set[str]()
    for phase in phases_of(program):
        if not phase.plain:
            dtypes = {spec.name: spec.dtype for spec in phase.program.outputs}
            exact = evaluate(phase.program, known)
            known |= {name: from_float(array, dtypes[name]) for name, array in exact.items()}
            continue
        kernel = plain_kernel(phase.program)
        axis = panel_axis(kernel)
        if axis is not None and axis.extent % count == 0:
            kernel, axes = panelled(kernel, axis, count), axes | {axis.name}
        known |= meaning(kernel, known)
    return axes, {spec.name: known[spec.name] for spec in program.outputs}


@pytest.mark.parametrize("operator", CASES)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_panels_compute_the_same(operator: str, count: int) -> None:
    arguments, axes = CASES[operator]
    program = program_of(operator, arguments)
    inputs = drawn_inputs(program, 3)
    _, expected = computed(program, inputs, 1 << 20)
    found, results = computed(program, inputs, count)
    assert found == axes
    for name, array in expected.items():
        np.testing.assert_array_equal(results[name], array)


def state_of(operator: str) -> PlainKernel:
    """The kernel of the last loop of states."""
    program = program_of(operator, CASES[operator][0])
    return [plain_kernel(phase.program) for phase in phases_of(program) if phase.plain][-1]


def test_arrays_that_differ_have_an_element_for_each_point() -> None:
    kernel = state_of("gated_delta_net_chunked")
    axis = panel_axis(kernel)
    assert axis is not None
    wide = panelled(kernel, axis, 2)
    sizes = {array.name: array.size for array in kernel.arrays}
    for array in wide.arrays:
        assert array.size == sizes[array.name] * (2 if array.name in axis.differing else 1)
    assert dict(wide.points)[Name("i_dv_1")] == 2
    for spread in (s for s in every(wide.body) if isinstance(s, Spread)):
        assert spread.variables[-1] == (Name("lane"), 2)


def test_nothing_is_beside_where_outside_of_loops_something_differs() -> None:
    kernel = state_of("gated_delta_net_chunked")
    spread = next(s for s in every(kernel.body) if isinstance(s, Spread))
    write = next(s for s in every(spread.body) if isinstance(s, Write))
    assert panel_axis(replace(kernel, body=(*kernel.body, write))) is None
    claim = Claim(Name("place", "i32"), "state_1", write.index)
    assert panel_axis(replace(kernel, body=(*kernel.body, claim))) is None
    assert panel_axis(replace(kernel, cooperative=False)) is None
