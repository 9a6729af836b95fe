"""Kernels of a form in one of its residences, emulated."""

from __future__ import annotations

import numpy as np

from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.build.program_text import lower_all
from ir.targets.cuda.space.engines import residence_space, routes_of
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import QUICK, problems


def form_problems(program: Program, form: Program, residence: str) -> list[str]:
    """What is wrong with two drawn kernels of the first route of `form`, which has to be `program`
    in other words."""
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted, found = bounds_of(program, inputs), list[str]()
    route = routes_of(form, HARDWARE, residence)[0]
    space = residence_space(form, HARDWARE, None, residence)
    space = space if route.alone else space.pin({"engine": route.engine})
    for turn, row in enumerate(space.sample(np.random.default_rng(1), 2)):
        values = route.own(space.schedule(row).as_dict())
        kernel = lower_all(form, values, HARDWARE, route.engine, residence)
        found += problems(form, kernel, inputs, wanted, QUICK[turn])
    return found


def kernel_problems(program: Program, seeds: int = 2, drawn: int = 3) -> list[str]:
    """What is wrong with some seeds and drawn kernels of a whole program."""
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted, space = bounds_of(program, inputs), BACKEND.space(program, HARDWARE)
    rng, found = np.random.default_rng(2), list[str]()
    for row in (*space.seed_rows(rng)[:seeds], *space.sample(rng, drawn)):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        found += problems(program, kernel, inputs, wanted, 0)
    return found
