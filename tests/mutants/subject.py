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
        return _leans(have, right, want, form.half_unit(np.abs(want)))


def _leans(have: Any, right: Any, want: Any, half: Any) -> bool:
    """Whether elements are too large, or too small, by more than roundings come to in the mean."""
    finite = np.isfinite(have) & np.isfinite(want) & np.isfinite(right)
    have, right, want, half = (a[finite].astype(float) for a in (have, right, want, half))
    weight = np.square(want).sum()
    chance = sqrt(np.square(half * want).sum() / 3)
    return bool(abs(((have - right) * want).sum()) > LEAN * weight + _SURE * chance)
