"""How the scalar functions of `ir.scalar` are computed on vectors (and scalars) of a CPU.

Polynomials are minimax fits for f32, written for this file (degree and error beside each). f64
values go through the same code in f32 precision only where noted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ir.targets.cpu.instructions import FRACTION, SCALE
from ir.targets.cpu.nest import Builder, Type, Value

LOG2E = 1.4426950408889634
LN2_HIGH = 0.693145751953125
LN2_LOW = 1.42860682030941723212e-6
# exp(r) on |r| <= ln2 / 2, relative error 1.1e-7 before rounding
EXP = (1.0, 1.0, 0.49999233, 0.16667115, 0.04188993, 0.00831244)

# 2^f on 0 <= f < 1, relative errors 8.2e-8, 2.9e-6 and 8.6e-5 before rounding; exact at 0: e^0 may
# be truncated to an integer, and is what a state is rescaled by whose maximum stays, block by block
EXP2 = (1.0, 0.693151311, 0.240164458, 0.0557998871, 0.00901706456, 0.00186711491)
EXP2_F16 = (1.0, 0.693044841, 0.241280213, 0.0522424467, 0.0134267015)
EXP2_BF16 = (1.0, 0.695116758, 0.227645054, 0.0770669878)
FAR = 2.0**22
FLATTEST = 1e-33  # below FAR * log2 e / the largest f32
# by the width of what is stored in the end: well below half a unit of its last place
EXP2_FOR = {"f16": EXP2_F16, "bf16": EXP2_BF16}


class Arithmetic:
    """Builder shorthands with constants splat to the operand's type."""

    def __init__(
        self, builder: Builder, fma: bool = True, scales: bool = False, accuracy: str = "f32"
    ) -> None:
        self.b = builder
        self.has_fma = fma
        self.scales = scales
        self.accuracy = accuracy

    def const(self, value: float, like: Value) -> Value:
        return self.b.constant(value, like.type)

    def fma(self, x: Value, y: Value | float, z: Value | float) -> Value:
        y = y if isinstance(y, Value) else self.const(y, x)
        z = z if isinstance(z, Value) else self.const(z, x)
        if self.has_fma:
            return self.b.op("fma", x, y, z)
        return self.b.op("fadd", self.b.op("fmul", x, y), z)

    def polynomial(self, x: Value, coefficients: tuple[float, ...]) -> Value:
        """Horner's rule, lowest degree first."""
        result = self.const(coefficients[-1], x)
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, coefficient)
        return result

    def exp(self, x: Value) -> Value:
        """e^x by range reduction; exactly 0 below -87.3 (f32) or -708 (f64).

        Where the host scales by powers of two in one instruction, 2^(x log2 e) takes eight.
        """
        if self.scales_vectors(x.type):
            return self.exp2(self.b.op("fmul", x, self.const(LOG2E, x)))
        b, wide = self.b, x.type.scalar == "f64"
        # up to 1024 (128) ln 2, where the exponent is one more and the series still below 1
        lowest, highest = (-708.0, 709.78) if wide else (-87.336544, 88.72)
        clamped = self.clamped(x, lowest, highest)
        n = b.op("round", b.op("fmul", clamped, self.const(LOG2E, x)))
        r = self.fma(n, -LN2_HIGH, clamped)
        r = self.fma(n, -LN2_LOW, r)
        series = tuple(1 / math.factorial(i) for i in range(13)) if wide else EXP
        p = self.polynomial(r, series)
        bits, shift = ("i64", 52) if wide else ("i32", 23)
        whole = b.whole(n, bits)
        moved = b.op("shl", whole, b.constant(shift, whole.type))
        scaled = b.op("iadd", b.bitcast(p, whole.type), moved)
        return self._within(x, lowest, highest, b.bitcast(scaled, x.type))

    def clamped(self, x: Value, low: float, high: float) -> Value:
        """x between two numbers; NaN stays."""
        least, most = self.const(low, x), self.const(high, x)
        return self.b.op("fmin", most, self.b.op("fmax", least, x))

    def _within(self, x: Value, low: float, high: float, result: Value) -> Value:
        """A power: 0 where its exponent is below `low`, infinite where above `high`."""
        b = self.b
        least, most = self.const(low, x), self.const(high, x)
        result = b.select(b.test("lt", most, x), self.const(math.inf, x), result)
        return b.select(b.test("lt", x, least), self.const(0.0, x), result)

    def scales_vectors(self, type: Type) -> bool:
        """Whether `exp2` may be asked for values of `type`."""
        return self.scales and type == Type("f32", FRACTION.lanes)

    def exp2(self, y: Value) -> Value:
        """2^y; of vectors by the instructions that take fractions and scale by powers of two."""
        series = EXP2_FOR.get(self.accuracy, EXP2)
        if self.scales_vectors(y.type):
            fraction = self.b.intrinsic(FRACTION, y.type, y)
            return self.b.intrinsic(SCALE, y.type, self.polynomial(fraction, series), y)
        lowest, highest = -126.0, 127.9999
        b, clamped = self.b, self.clamped(y, lowest, highest)
        whole = b.op("floor", clamped)
        p = self.polynomial(b.op("fsub", clamped, whole), series)
        exponent = b.op("shl", b.whole(whole, "i32"), b.constant(23, y.type.of("i32")))
        found = b.bitcast(b.op("iadd", b.bitcast(p, exponent.type), exponent), y.type)
        return self._within(y, lowest, highest, found)

    def exponent_line(self, less: Value, scale: float) -> tuple[Value, Value]:
        """(slope, shift) with e^(scale x - less) = 2^(slope x + shift), for results of few bits.

        One operation then makes the exponent. Its absolute error is that of rounding
        less * log2 e, the same for all x: about less / 2^24. Beyond FAR the slope becomes flatter,
        so that the error stays below two: numbers of that size lie half a unit apart or more, and
        those that equal the largest of their row (all are masked) keep equal weights.
        """
        b, size = self.b, self.b.op("fabs", less)
        flat = b.op("fdiv", self.const(FAR * LOG2E, less), size)
        flat = b.op("fmax", flat, self.const(FLATTEST, less))  # infinite numbers stay infinite
        slope = b.op("fmin", flat, self.const(LOG2E, less))
        shift = b.op("fneg", b.op("fmul", less, slope))
        return (slope if scale == 1 else b.op("fmul", slope, self.const(scale, slope))), shift

    def sigmoid(self, x: Value) -> Value:
        one = self.const(1.0, x)
        return self.b.op("fdiv", one, self.b.op("fadd", one, self.exp(self.b.op("fneg", x))))

    def tanh(self, x: Value) -> Value:
        """An odd polynomial near 0 (no cancellation), 1 - 2 / (e^2x + 1) elsewhere."""
        b = self.b
        two, one = self.const(2.0, x), self.const(1.0, x)
        far = b.op(
            "fsub", one, b.op("fdiv", two, b.op("fadd", self.exp(b.op("fmul", two, x)), one))
        )
        square = b.op("fmul", x, x)
        series = TANH_WIDE if x.type.scalar == "f64" else TANH
        near = b.op("fmul", x, self.polynomial(square, series))
        return b.select(b.test("lt", b.op("fabs", x), self.const(0.3, x)), near, far)

    def erf(self, x: Value) -> Value:
        """x * P(x^2) / Q(x^2) on |x| <= 4, clamped there; absolute error below 2e-7."""
        if x.type.scalar == "f64":
            return self._erf_wide(x)
        b, clamped = self.b, self.clamped(x, -ERF_LIMIT, ERF_LIMIT)
        square = b.op("fmul", clamped, clamped)
        top = self.polynomial(square, ERF_TOP)
        bottom = self.polynomial(square, ERF_BOTTOM)
        return b.op("fdiv", b.op("fmul", clamped, top), bottom)

    def _erf_wide(self, x: Value) -> Value:
        """The Taylor series near 0, 1 - t exp(P(t) - x^2) with t = 2 / (2 + |x|) elsewhere."""
        b, two = self.b, self.const(2.0, x)
        square, size = b.op("fmul", x, x), b.op("fabs", x)
        near = b.op("fmul", x, self.polynomial(square, ERF_NEAR))
        clamped = b.op("fmin", size, self.const(ERFC_LIMIT, x))
        t = b.op("fdiv", two, b.op("fadd", clamped, two))
        series = self.polynomial(self.fma(t, ERFC_SLOPE, ERFC_SHIFT), ERFC)
        power = b.op("fsub", series, b.op("fmul", clamped, clamped))
        far = b.op("fsub", self.const(1.0, x), b.op("fmul", t, self.exp(power)))
        signed = b.select(b.test("lt", x, self.const(0.0, x)), b.op("fneg", far), far)
        return b.select(b.test("le", self.const(0.5, x), size), signed, near)

    def log(self, x: Value) -> Value:
        """Natural logarithm: exponent plus atanh series of the mantissa. NaN below 0."""
        b = self.b
        wide = x.type.scalar == "f64"
        integer = x.type.of("i64" if wide else "i32")
        shift = 52 if wide else 23
        small = b.test("lt", x, self.const(2.0**-1022 if wide else 2.0**-126, x))
        normal = b.select(small, b.op("fmul", x, self.const(2.0**shift, x)), x)
        bits = b.bitcast(normal, integer)
        offset = 0x3FE6A09E00000000 if wide else 0x3F3504F3
        raised = b.op("isub", bits, b.constant(offset, integer))
        exponent = b.op("ashr", raised, b.constant(shift, integer))
        mantissa = b.op("isub", bits, b.op("shl", exponent, b.constant(shift, integer)))
        m = b.bitcast(mantissa, x.type)
        one = self.const(1.0, x)
        s = b.op("fdiv", b.op("fsub", m, one), b.op("fadd", m, one))
        z = b.op("fmul", s, s)
        terms = tuple(2 / (2 * i + 1) for i in range(11 if wide else 6))
        fraction = b.op("fmul", s, self.polynomial(z, terms))
        e = b.convert(exponent, x.type.scalar)
        e = b.select(small, b.op("fsub", e, self.const(shift, x)), e)
        result = self.fma(e, LN2_HIGH, self.fma(e, LN2_LOW, fraction))
        zero, infinite = self.const(0.0, x), self.const(math.inf, x)
        result = b.select(b.test("lt", x, infinite), result, x)
        result = b.select(b.test("lt", x, zero), self.const(math.nan, x), result)
        return b.select(b.test("eq", x, zero), b.op("fneg", infinite), result)

    def rsqrt(self, x: Value) -> Value:
        return self.b.op("fdiv", self.const(1.0, x), self.b.op("fsqrt", x))


# Rational fit of erf(x) / x in x^2 on [0, 16]; error 2.2e-8 before rounding, 3.2e-7 after.
ERF_LIMIT = 4.0
ERF_TOP = (
    1.1283789873,
    0.19624137878,
    0.053466442972,
    0.0040033068509,
    0.00028803135501,
    1.9748588329e-06,
)
ERF_BOTTOM = (1.0, 0.50724554062, 0.11647325009, 0.01544375252, 0.0012162727071, 3.7480629544e-05)

TANH = (1.0, -0.3333333, 0.13332934, -0.05383261, 0.02003715)  # tanh(x) / x in x^2, |x| < 0.3

# For f64. tanh and erf over x as Taylor series in x^2; log(erfc(x) exp(x^2) / t) on 0 <= x <= 6 as
# an interpolation in u = slope * t + shift on [-1, 1]: absolute error of erf 2e-15.
TANH_WIDE = (
    1.0, -0.3333333333333333, 0.13333333333333333, -0.05396825396825397, 0.021869488536155203,
    -0.008863235529902197, 0.003592128036572481, -0.0014558343870513183, 0.000590027440945586,
    -0.00023912911424355248, 9.691537956929451e-05, -3.927832388331683e-05,
)  # fmt: skip
ERF_NEAR = tuple(
    (-1) ** i * 2 / math.sqrt(math.pi) / (math.factorial(i) * (2 * i + 1)) for i in range(12)
)
ERFC_LIMIT, ERFC_SLOPE, ERFC_SHIFT = 6.0, 8 / 3, -5 / 3
ERFC = (
    -0.5014367259211941, 0.5153126870212841, 0.005570761974829134, -0.021523642465432,
    0.000493531722545009, 0.002028764045797387, -0.0003302200311897342, -0.00019494557277942943,
    8.147040218883751e-05, 9.023274040227757e-06, -1.3602378782724776e-05, 2.117430932981658e-06,
    1.4121492095951604e-06, -6.940579777941258e-07, -1.3014936289364112e-08,
    1.0381307860818794e-07, -2.4388269144247676e-08, -7.437195512716343e-09, 3.433852242035473e-09,
)  # fmt: skip

_FLOAT = {
    "add": "fadd",
    "sub": "fsub",
    "mul": "fmul",
    "div": "fdiv",
    "max": "fmaximum",
    "min": "fminimum",
    "neg": "fneg",
    "abs": "fabs",
    "sqrt": "fsqrt",
    "floor": "floor",
}
_INT = {
    "add": "iadd",
    "sub": "isub",
    "mul": "imul",
    "max": "imax",
    "min": "imin",
    "shr": "ashr",
    "bitand": "and",
}
_BITS = {"and": "and", "or": "or"}


def apply_function(arith: Arithmetic, name: str, args: list[Value]) -> Value:
    """Emit scalar function `name` on operands of one type; raises KeyError for an unknown one."""
    b, first = arith.b, args[0]
    if name in ("lt", "le", "eq"):
        if first is args[1] and not first.type.is_float:  # of floats it tells NaN
            return b.constant(name != "lt", first.type.of("i1"))
        return b.test(name, *args)
    if name == "where":
        return b.select(*args)
    if name == "not":
        return b.op("xor", first, b.constant(1, first.type))
    if first.type.scalar == "i1":
        return b.op(_BITS[name], *args)
    if not first.type.is_float:
        return _integer(arith, name, args)
    if name in _FLOAT:
        return b.op(_FLOAT[name], *args)
    special: dict[str, Callable[[Value], Value]] = {
        "exp": arith.exp,
        "sigmoid": arith.sigmoid,
        "tanh": arith.tanh,
        "erf": arith.erf,
        "log": arith.log,
        "rsqrt": arith.rsqrt,
    }
    return special[name](first)


def _integer(arith: Arithmetic, name: str, args: list[Value]) -> Value:
    b, first = arith.b, args[0]
    if name == "neg":
        return b.op("isub", b.constant(0, first.type), first)
    if name == "abs":
        return b.op("imax", first, b.op("isub", b.constant(0, first.type), first))
    if name == "floor":
        return first
    return b.op(_INT[name], *args)
