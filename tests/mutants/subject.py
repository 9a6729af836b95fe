"""What mutants are made of: a program, a set of operands, what it means and what is stored of it.

Knows no kernel and no check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from ir.dtypes import from_float, is_float, numpy_dtype, to_float
from ir.inputs import drawn_inputs
from ir.ops.base import TensorSpec
from ir.ops.map import Cast
from ir.oracle import evaluate
from ir.program import Program
from ir.roundoff import FORMATS, SIGMAS

Arrays = Mapping[str, Any]
LEAN = 0.004  # what right roundings may come to in the mean (docs/checking.md)
_SURE = 4.0  # standard deviations of a mean that a judge can tell from another


@dataclass(frozen=True, slots=True)
class Subject:
    """`exact` are the outputs before they are rounded, `stored` after.

    `noise` is what the roundings come to that the program itself asks for on the way: their root
    mean square in each output.
    """

    program: Program
    inputs: Arrays
    exact: Arrays
    stored: Arrays
    noise: Mapping[str, float]

    @classmethod
    def of(cls, program: Program, seed: int) -> Subject:
        return cls.made(program, drawn_inputs(program, seed))

    @classmethod
    def made(cls, program: Program, inputs: Arrays) -> Subject:
        exact = evaluate(program, inputs)
        rounded = evaluate(_unrounded_outputs(program), inputs, rounds=True)
        noise = {name: _distance(rounded[name], value) for name, value in exact.items()}
        return cls(program, inputs, exact, stored(program.outputs, exact), noise)

    def tells(self, wrong: Arrays) -> bool:
        """Whether anybody could tell these outputs from right ones.

        Not where every element is one of the two numbers beside its exact value, as a faithful
        rounding makes it, or beside what it may be where the program rounds on the way (six
        standard deviations, doubled), and their mean is off by no more than roundings leave by
        chance.
        """
        return any(
            _told(
                spec, self.exact[spec.name], self.stored[spec.name], wrong[spec.name],
                2 * SIGMAS * self.noise[spec.name],
            )
            for spec in self.program.outputs
        )  # fmt: skip


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


def _unrounded_outputs(program: Program) -> Program:
    """The program without casts that round for an output alone."""
    nodes = list(program.nodes)
    for position, store in program.stores():
        value = nodes[position].args[0]
        while isinstance(nodes[value].op, Cast) and is_float(nodes[nodes[value].args[0]].dtype):
            value = nodes[value].args[0]
        if is_float(nodes[position].dtype):
            nodes[position] = replace(nodes[position], op=store, args=(value,))
    return replace(program, nodes=tuple(nodes))


def _distance(left: Any, right: Any) -> float:
    with np.errstate(all="ignore"):
        apart = np.square(left.astype(float) - right)
    finite = apart[np.isfinite(apart)]
    return float(np.sqrt(finite.mean())) if finite.size else 0.0


def _told(spec: TensorSpec, exact: Any, right: Any, wrong: Any, noise: float) -> bool:
    if not is_float(spec.dtype):
        return not np.array_equal(right, wrong)
    form, have = FORMATS[spec.dtype], to_float(wrong, spec.dtype)
    have, right = have.reshape(-1), to_float(right, spec.dtype).reshape(-1)
    exact = np.asarray(exact).reshape(-1)
    want = np.clip(exact, -form.largest, form.largest) if form.saturates else exact
    with np.errstate(all="ignore"):
        off = np.abs(have - want) / (2 * form.half_unit(np.abs(want)) + noise)
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
