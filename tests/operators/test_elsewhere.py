"""What is right for every operator is found by arrays of one library alone, as on a device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from explorer.afforded import DEVICE
from explorer.errors import Uncheckable
from explorer.expectation import Recipe, error_model
from ir.inputs import drawn_inputs
from ir.oracle import answers, sampled, tried
from ir.program import Program
from ir.registry import load_operator
from tests.far import FarArray, far_numpy
from tests.few import few
from tests.operators.contract import Case
from tests.operators.test_corpus import FIRST
from tests.targets.drawn import RARER, drawn
from tests.targets.typed import typed

every_operator = pytest.mark.parametrize(
    "case", few(FIRST, range(0, len(FIRST), 3), map(str, FIRST))
)


@every_operator
def test_expectations_are_made_on_the_device(case: Case) -> None:
    recipe = Recipe(load_operator(case.operator).build(**case.arguments), 0)
    for number in (0, 1):
        made = recipe.expected(number, DEVICE, far_numpy)
        for bounds in made.bounds.values():
            assert all(isinstance(end, FarArray) for end in (bounds.low, bounds.high))


@every_operator
def test_rehearsals_and_trials_are_on_the_device(case: Case) -> None:
    program = load_operator(case.operator).build(**case.arguments)
    inputs, model = drawn_inputs(program, 3, far_numpy), error_model(program)
    tried(program, inputs, model, {}, slice(None), xp=far_numpy, most=1 << 20)
    found = answers(program, inputs, model, {}, xp=far_numpy, room=1 << 20)
    exact = {name: answer.value for name, answer in found.items()}
    reaches = sampled(program, inputs, model, exact, {}, xp=far_numpy, room=1 << 20)
    assert all(isinstance(reach, FarArray) for reach in reaches.values())


@pytest.mark.parametrize("seed", few(range(40), (0, 3, 31)))
@pytest.mark.parametrize("draw", [typed, partial(drawn, ways=RARER)], ids=["typed", "rarer"])
def test_drawn_programs_are_judged_on_the_device(
    draw: Callable[[int], Program | None], seed: int
) -> None:
    program = draw(seed)
    if program is None:
        return
    with suppress(Uncheckable):
        Recipe(program, 0).expected(0, DEVICE, far_numpy)
    inputs, model = drawn_inputs(program, 3, far_numpy), error_model(program)
    found = answers(program, inputs, model, {}, xp=far_numpy, room=1 << 20)
    exact = {name: answer.value for name, answer in found.items()}
    sampled(program, inputs, model, exact, {}, xp=far_numpy, room=1 << 20)
