"""Bounds for tests that run kernels themselves, as the check makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from explorer.check import Bounds
from explorer.expectation import error_model, leaning_of
from ir.oracle import Answer, answers
from ir.program import Program
from ir.targets.cuda.rows.roundoff import ACCUMULATIONS


def bounds_of(program: Program, inputs: Mapping[str, Any]) -> dict[str, Bounds]:
    """What each output may be, on either target."""
    found = answers(program, inputs, error_model(program, ACCUMULATIONS))
    leaning = leaning_of(program, ACCUMULATIONS)
    return {
        spec.name: Bounds.around(found[spec.name], spec.dtype, None, leaning)
        for spec in program.outputs
    }


def exactly(reference: Any, dtype: str, picks: Any = None) -> Bounds:
    """Bounds of values that are off by nothing but the rounding of their type."""
    value = np.asarray(reference)
    return Bounds.around(Answer(value, np.zeros(value.shape, np.float32)), dtype, picks)


def strictly(program: Program, inputs: Mapping[str, Any]) -> dict[str, Bounds]:
    """As `bounds_of`, but that no element may be anything: infinities and NaNs are pinned too."""
    found = answers(program, inputs, error_model(program, ACCUMULATIONS))
    with np.errstate(all="ignore"):
        tamed = {
            name: Answer(
                answer.value,
                np.where(np.isinf(answer.reach), _most(answer.value), answer.reach),
            )
            for name, answer in found.items()
        }
    return {spec.name: Bounds.around(tamed[spec.name], spec.dtype) for spec in program.outputs}


def _most(value: Any) -> Any:
    """A thousandth of each element, and of the root of their mean square."""
    finite = value[np.isfinite(value)] if value.dtype.kind == "f" else value
    scale = float(np.sqrt(np.mean(np.square(finite.astype(float))))) if finite.size else 1.0
    return (1e-3 * (np.abs(value) + scale)).astype(np.float32)
