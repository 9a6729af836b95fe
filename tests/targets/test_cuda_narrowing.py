"""Wide products in narrow parts on emulated tensor cores, judged as the programs they are of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ir.inputs import random_inputs
from ir.rewrite.narrowing import narrowed
from tests.emulator.emulate import compiler
from tests.few import by_turns
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built, drawn
from tests.targets.test_cuda_emulated import problems

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "two wide factors": ("matmul", {"m": 70, "n": 72, "k": 72}),
    "signs": ("hadamard", {"m": 20, "n": 64, "dtype": "bf16"}),
    "four products": ("dft", {"m": 24, "n": 40}),
    "beside sums": ("distances", {"n": 70, "m": 40, "d": 24, "kind": "expanded"}),
}


@pytest.mark.parametrize(("name", "engine"), by_turns(CASES, ["wgmma", "mma"]))
@pytest.mark.alike(2)
def test_products_of_parts_are_as_exact_as_wide_ones(name: str, engine: str) -> None:
    program = built(*CASES[name])
    found = narrowed(program)
    assert found is not None
    inputs = random_inputs(program, np.random.default_rng(4))
    wanted = bounds_of(program, inputs)
    for schedule in drawn(found.program, 5, 1, 1, engine):
        kernel = BACKEND.lower(found.program, schedule, HARDWARE)
        assert not problems(found.program, kernel, inputs, wanted, 0), schedule
