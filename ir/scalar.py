"""The scalar functions that a map may apply: one row each, with numpy meaning and cost.

Targets read the rows; how a function is computed on a machine is the target's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ir import wholes
from ir.counting import WORD, philox, unit
from ir.dtypes import is_float, promote
from ir.errors import ProgramError


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """`result`: "promote" (type of the operands), "bool", "select", "float", or a dtype's name.

    `operands`: "" (any), "bits" (whole numbers or truth values), "whole" (the same as numbers), or
    the dtype that they are converted to: of "bool" any, of others no floats. The meaning of a
    `typed` function is asked with the dtype that it computes in.

    A right kernel's result may be off by `ulps` units of roundoff of it, and by `floor` units of
    roundoff of 1 where it is small beside what it is made of; an `exact` one's not at all. Of one
    that `jumps`, results say nothing of those at operands between theirs; one that `steps` moves by
    whole steps if at all.
    """

    name: str
    arity: int
    meaning: Callable[..., Any]
    flops: int
    result: str = "promote"
    ulps: float = 1.0
    floor: float = 0.0
    operands: str = ""
    typed: bool = False
    exact: bool = False
    jumps: bool = False
    steps: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it is a function of whole numbers, none of floats."""
        return self.operands not in ("", "bool")

    @property
    def orders(self) -> bool:
        """Whether it compares as numbers what may be truth values."""
        return self.compares and self.name != "eq"

    @property
    def compares(self) -> bool:
        """Whether it says how two numbers stand to each other."""
        return self.result == "bool" and self.operands != "bool"

    def operand(self, types: Sequence[str]) -> str:
        """The dtype in which it computes with operands of `types`."""
        if self.operands not in ("", "bits", "whole"):
            return self.operands
        found = promote(tuple(types[1:] if self.result == "select" else types))
        if self.result == "float" and not is_float(found):
            return "f32"
        return "i32" if found == "bool" and (self.operands == "whole" or self.orders) else found


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: Any) -> Any:
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-x))


def _divide(x: Any, y: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(x, y)


def _stepwise(function: np.ufunc) -> Callable[..., Any]:
    """A rounding, which leaves whole numbers what they are."""
    return lambda x: function(x) if x.dtype.kind == "f" else x


def _erf_fast(x: Any) -> Any:
    """erf in float64 by a cached table-free series is slow; scipy is not a dependency of ir."""
    if isinstance(x, np.ndarray | np.generic) and x.size <= 4096:
        return _erf(x)
    return _erf_rational(x)


def _erf_rational(x: Any) -> Any:
    """erf by W. J. Cody's rational approximations (Math. Comp. 23, 1969), error below 1e-15."""
    small = np.abs(x) <= 0.5
    y = np.abs(x)
    square = np.where(small, x * x, 0.0)
    inner = x * _ratio(square, _CODY_P0, _CODY_Q0)
    # meant for y <= 4; beyond, the error of the ratio is multiplied by exp(-y * y) < 1e-7
    outer = 1.0 - np.exp(-y * y) * _ratio(np.minimum(y, 6.0), _CODY_P1, _CODY_Q1)
    return np.where(small, inner, np.copysign(outer, x))


def _ratio(x: Any, top: tuple[float, ...], bottom: tuple[float, ...]) -> Any:
    return _polynomial(x, top) / _polynomial(x, bottom)


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """Horner's rule, lowest degree first."""
    result = coefficients[-1] + 0.0 * x
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + coefficient
    return result


# fmt: off
_CODY_P0 = (3.209377589138469472562e3, 3.774852376853020208137e2, 1.138641541510501556495e2,
            3.161123743870565596947, 1.857777061846031526730e-1)
_CODY_Q0 = (2.844236833439170622273e3, 1.282616526077372275645e3, 2.440246379344441733056e2,
            2.360129095234412093499e1, 1.0)
_CODY_P1 = (1.23033935479799725272e3, 2.05107837782607146532e3, 1.71204761263407058314e3,
            8.81952221241769090411e2, 2.98635138197400131132e2, 6.61191906371416294775e1,
            8.88314979438837594118, 5.64188496988670089180e-1, 2.15311535474403846343e-8)
_CODY_Q1 = (1.23033935480374942043e3, 3.43936767414372163696e3, 4.36261909014324715820e3,
            3.29079923573345962678e3, 1.62138957456669018874e3, 5.37181101862009857509e2,
            1.17693950891312499305e2, 1.57449261107098347253e1, 1.0)
# fmt: on

FUNCTIONS: dict[str, ScalarFunction] = {
    row.name: row
    for row in (
        ScalarFunction("add", 2, np.add, 1),
        ScalarFunction("sub", 2, np.subtract, 1),
        ScalarFunction("mul", 2, np.multiply, 1),
        ScalarFunction("div", 2, _divide, 4, "float", ulps=4),
        ScalarFunction("neg", 1, np.negative, 1, exact=True),
        ScalarFunction("abs", 1, np.abs, 1, exact=True),
        ScalarFunction("max", 2, np.maximum, 1, exact=True),
        ScalarFunction("min", 2, np.minimum, 1, exact=True),
        ScalarFunction("exp", 1, np.exp, 10, "float", ulps=6),
        ScalarFunction("log", 1, np.log, 12, "float", ulps=6),
        ScalarFunction("sqrt", 1, np.sqrt, 4, "float", ulps=2),
        ScalarFunction("rsqrt", 1, lambda x: 1.0 / np.sqrt(x), 4, "float", ulps=4),
        ScalarFunction("tanh", 1, np.tanh, 14, "float", ulps=16),
        ScalarFunction("sigmoid", 1, _sigmoid, 14, "float", ulps=10),
        ScalarFunction("erf", 1, _erf_fast, 16, "float", ulps=8, floor=4),
        ScalarFunction("log1p", 1, np.log1p, 16, "float", ulps=8),
        ScalarFunction("expm1", 1, np.expm1, 16, "float", ulps=8),
        ScalarFunction("sin", 1, np.sin, 24, "float", ulps=4, floor=1),
        ScalarFunction("cos", 1, np.cos, 24, "float", ulps=4, floor=1),
        ScalarFunction("floor", 1, _stepwise(np.floor), 1, exact=True, steps=True),
        ScalarFunction("ceil", 1, _stepwise(np.ceil), 1, exact=True, steps=True),
        ScalarFunction("trunc", 1, _stepwise(np.trunc), 1, exact=True, steps=True),
        ScalarFunction("round", 1, _stepwise(np.rint), 1, exact=True, steps=True),
        ScalarFunction("shr", 2, np.right_shift, 1, operands="whole"),
        ScalarFunction("shl", 2, wholes.shl, 1, operands="whole", typed=True, jumps=True),
        ScalarFunction("bitand", 2, np.bitwise_and, 1, operands="bits", jumps=True),
        ScalarFunction("bitor", 2, np.bitwise_or, 1, operands="bits", jumps=True),
        ScalarFunction("xor", 2, np.bitwise_xor, 1, operands="bits", jumps=True),
        ScalarFunction("mod", 2, np.remainder, 8, operands="whole", jumps=True),
        ScalarFunction("floordiv", 2, wholes.floordiv, 8, operands="whole", typed=True, jumps=True),
        ScalarFunction("popcount", 1, wholes.popcount, 8, operands="whole", typed=True, jumps=True),
        ScalarFunction("bitcast", 1, wholes.bitcast, 1, exact=True),
        ScalarFunction("lookup", 1, wholes.lookup, 2, operands="whole", exact=True, jumps=True),
        # ten rounds of six operations make four words, which neighbours share
        ScalarFunction("philox", 4, philox, 15, WORD, operands="i64", jumps=True),
        ScalarFunction("unit", 1, unit, 3, "f32", operands="i64", exact=True, jumps=True),
        ScalarFunction("lt", 2, np.less, 1, "bool", exact=True),
        ScalarFunction("le", 2, np.less_equal, 1, "bool", exact=True),
        ScalarFunction("eq", 2, np.equal, 1, "bool", exact=True),
        ScalarFunction("and", 2, np.logical_and, 1, "bool", operands="bool"),
        ScalarFunction("or", 2, np.logical_or, 1, "bool", operands="bool"),
        ScalarFunction("not", 1, np.logical_not, 1, "bool", operands="bool"),
        ScalarFunction("where", 3, np.where, 1, "select", exact=True),
    )
}


def scalar_function(name: str) -> ScalarFunction:
    """Return the row called `name`; raises ProgramError."""
    try:
        return FUNCTIONS[name]
    except KeyError:
        raise ProgramError(
            f"unknown scalar function {name!r}: known are {', '.join(FUNCTIONS)}"
        ) from None


@dataclass(frozen=True, slots=True)
class Combine:
    """An associative, commutative way to reduce: its identity, and its numpy ufunc."""

    name: str
    identity: float
    meaning: np.ufunc
    function: str  # the scalar function that combines two partial results


LOWEST = -3.4028234663852886e38  # of the numbers of f32


def lowest(dtype: str) -> float:
    """The lowest finite number of a float's compute type."""
    return -float(np.finfo(np.float64).max) if dtype == "f64" else LOWEST


def running_bound(kind: str, dtype: str) -> tuple[str, float] | None:
    """(function, number) by which the running value of a `kind` is made finite, if it has to be.

    What reads it takes differences with it, which an infinite identity would make NaN; the state
    itself stays what it is.
    """
    if kind not in ("max", "min") or dtype not in ("f32", "f64"):
        return None
    return kind, lowest(dtype) if kind == "max" else -lowest(dtype)


COMBINES: dict[str, Combine] = {
    row.name: row
    for row in (
        Combine("sum", 0.0, np.add, "add"),
        Combine("prod", 1.0, np.multiply, "mul"),
        Combine("max", -math.inf, np.maximum, "max"),
        Combine("min", math.inf, np.minimum, "min"),
    )
}
