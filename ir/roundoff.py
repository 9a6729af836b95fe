"""How far a right kernel may be from the exact result: roundoffs of types, of sums, of functions.

Numbers only: `ir.propagation` carries them through a program. The model and its sources are in
docs/checking.md. Knows no op and no lowering.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ir.dtypes import is_float

if TYPE_CHECKING:  # ops import this module
    from ir.ops.base import Array

SIGMAS = 6.0  # no element of a billion lies further out, were errors normal
SAFETY = 2.0  # what the model's constants may be off
LEAST_TERM = 2.0**10  # units of a sum that its terms have in the mean, where kernels go on adding


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """`precision` bits of significand (the hidden one too); exponents of normal numbers."""

    precision: int
    lowest: int
    largest: float
    saturates: bool = False

    @property
    def unit(self) -> float:
        """Half a unit of the last place of 1: the largest relative error of one rounding."""
        return 2.0**-self.precision

    def half_unit(self, size: Array) -> Array:
        """Half the distance of neighbours at numbers of magnitude `size`, elementwise."""
        exponent = np.where(size > 0, np.frexp(size)[1] - 1, self.lowest)
        half: Array = np.ldexp(0.5, np.maximum(exponent, self.lowest) - self.precision + 1)
        return half


FORMATS: dict[str, FloatFormat] = {
    "f64": FloatFormat(53, -1022, 1.7976931348623157e308),
    "f32": FloatFormat(24, -126, 3.4028234663852886e38),
    "tf32": FloatFormat(11, -126, 3.4011621342146535e38),
    "f16": FloatFormat(11, -14, 65504.0),
    "bf16": FloatFormat(8, -126, 3.3895313892515355e38),
    "e4m3": FloatFormat(4, -6, 448.0, saturates=True),
    "e5m2": FloatFormat(3, -14, 57344.0),
    "e2m1": FloatFormat(2, 0, 6.0, saturates=True),
    "e8m0": FloatFormat(1, -127, 2.0**127, saturates=True),
}


# numbers that machines may take for 0: those below the smallest normal one
FLUSHED = {"f32": 2.0**-126, "tf32": 2.0**-126, "bf16": 2.0**-126}


@dataclass(frozen=True, slots=True)
class Accumulation:
    """How a machine adds up products: every `terms` of them are rounded to `unit` once.

    With `truncates`, towards zero: such errors do not cancel.
    """

    unit: float
    terms: int = 1
    truncates: bool = False

    def in_a_row(self, terms: int | Array) -> Array:
        """How many roundings of a sum of so many terms count: those of runs in which a term is
        still some units of the sum, and of adding up the runs. One after the other without an end,
        a sum gets where it loses a part of each term, always to the same side."""
        steps = np.ceil(np.divide(terms, self.terms))
        run = 1.0 / (LEAST_TERM * self.unit)
        found: Array = np.minimum(steps, run + steps / run)
        return found

    def bias(self, terms: int) -> float:
        """By which part of itself a sum of so many terms may be too small: half a unit for each
        truncation of what is half as large in the mean."""
        return self.unit / 4 * math.ceil(terms / self.terms) if self.truncates else 0.0


Accumulations = tuple[tuple[tuple[str, str], Accumulation], ...]  # by pairs of operand types

ROUNDED = {"f32": Accumulation(2.0**-24), "f64": Accumulation(2.0**-53)}


@dataclass(frozen=True, slots=True)
class ErrorModel:
    """The roundoffs of a target, for the outputs of one program.

    `accumulations` are those of products of a pair of operand types, where they are not added in
    the accumulator's own arithmetic. `coarsest` is the unit roundoff of the program's narrowest
    output, when all are narrow: scalar functions need not be better than a part of it. `mixed`:
    only some are, and functions of which nothing but these is made need not be either.
    """

    accumulations: Accumulations = ()
    coarsest: float = 0.0
    mixed: bool = False

    def accumulation(self, left: str, right: str, acc: str) -> Accumulation:
        """How products of the two types are added to an accumulator of `acc`."""
        known = dict(self.accumulations)
        for pair in ((left, right), (right, left)):
            if pair in known and acc == "f32":
                return known[pair]
        return ROUNDED[acc]

    def unit(self, dtype: str) -> float:
        """The roundoff of arithmetic in `dtype`; 0 where it is exact."""
        return FORMATS[dtype].unit if is_float(dtype) else 0.0
