"""Runs plain kernels scalar by scalar, and judges what they give by the program's meaning."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ir.dtypes import from_float
from ir.inputs import drawn_inputs
from ir.ops.base import Array
from ir.oracle import evaluate
from ir.phases import phases_of
from ir.plain.build import plain_kernel
from ir.plain.meaning import meaning
from ir.program import Program
from tests.judging import bounds_of


def computed(program: Program, inputs: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
    """The outputs, phase by phase; of phases that are not plain as numpy has them."""
    known = dict(inputs)
    for phase in phases_of(program):
        if phase.plain:
            known |= meaning(plain_kernel(phase.program), known, seed)
            continue
        dtypes = {spec.name: spec.dtype for spec in phase.program.outputs}
        exact = evaluate(phase.program, known)
        known |= {name: from_float(array, dtypes[name]) for name, array in exact.items()}
    return {spec.name: known[spec.name] for spec in program.outputs}


def judge(
    program: Program, inputs: Mapping[str, Array] | None = None, seed: int = 0
) -> dict[str, Array]:
    """The outputs of the program, which lie where a right kernel's do."""
    given = drawn_inputs(program, seed) if inputs is None else inputs
    found = computed(program, given, seed)
    with np.errstate(all="ignore"):
        for name, bounds in bounds_of(program, given).items():
            verdict = bounds.judge(found[name])
            assert verdict.right, f"{name}: {verdict.detail}"
    return found
