"""What mutants are made of: a program, a set of operands, what it means and what is stored of it.

Knows no kernel and no check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from ir.dtypes import from_float, is_float, numpy_dtype, to_float
from ir.inputs import drawn_inputs
from ir.ops.base import TensorSpec
from ir.oracle import evaluate
from ir.program import Program
from ir.roundoff import FORMATS

Arrays = Mapping[str, Any]
LEAN = 0.004  # what right roundings may come to in the mean (docs/checking.md)
_SURE = 4.0  # standard deviations of a mean that a judge can tell from another


@dataclass(frozen=True, slots=True)
class Subject:
    """`exact` are the outputs before they are rounded, `stored` after."""

    program: Program
    inputs: Arrays
    exact: Arrays
    stored: Arrays

    @classmethod
    def of(cls, program: Program, seed: int) -> Subject:
        inputs = drawn_inputs(program, seed)
        exact = evaluate(program, inputs)
        return cls(program, inputs, exact, stored(program.outputs, exact))

    def tells(self, wrong: Arrays) -> bool:
        """Whether anybody could tell these outputs from right ones.

        Not where every element is one of the two numbers beside its exact value, as a faithful
        rounding makes it, and their mean is off by no more than such roundings leave by chance.
        """
        return any(
            _told(spec, self.exact[spec.name], self.stored[spec.name], wrong[spec.name])
            for spec in self.program.outputs
        )


def stored(specs: tuple[TensorSpec, ...], values: Arrays) -> Arrays:
    """Outputs as their types hold them."""
    with np.errstate(all="ignore"):
        return {
            spec.name: np.ascontiguousarray(
                from_float(np.asarray(values[spec.name]), spec.dtype)
                if is_float(spec.dtype)
                else values[spec.name].astype(numpy_dtype(spec.dtype))
            )
            for spec in specs
        }


def _told(spec: TensorSpec, exact: Any, right: Any, wrong: Any) -> bool:
    if not is_float(spec.dtype):
        return not np.array_equal(right, wrong)
    form, have = FORMATS[spec.dtype], to_float(wrong, spec.dtype)
    have, right = have.reshape(-1), to_float(right, spec.dtype).reshape(-1)
    exact = np.asarray(exact).reshape(-1)
    want = np.clip(exact, -form.largest, form.largest) if form.saturates else exact
    with np.errstate(all="ignore"):
        off = np.abs(have - want) / (2 * form.half_unit(np.abs(want)))
        same = (have == right) | (np.isnan(have) & np.isnan(want))
        if not (same | (off < 1)).all():
            return True
        lean, count = _lean(have, right, want)
    return abs(lean) > LEAN + _SURE * form.unit / sqrt(3 * max(count, 1e-9))


def _lean(have: Any, right: Any, want: Any) -> tuple[float, float]:
    """By which part of themselves elements are too large, and how many there are that weigh."""
    finite = np.isfinite(have) & np.isfinite(want) & np.isfinite(right)
    have, right, want = (array[finite].astype(float) for array in (have, right, want))
    weight = np.square(want)
    if not weight.any():
        return 0.0, 0.0
    lean = float(((have - right) * want).sum() / weight.sum())
    return lean, float(weight.sum() ** 2 / np.square(weight).sum())
