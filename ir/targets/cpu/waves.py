"""sin and cos, and exp and log close to where they are 0 or 1, on vectors and scalars of a CPU.

Angles are reduced in f64 by pi / 2 in three parts, the first two of 33 bits: their products with
less than 2^20 quarter turns are exact, with or without fused operations.
"""

from __future__ import annotations

import math

from ir.targets.cpu.mathlib import Arithmetic
from ir.targets.cpu.nest import Value

TURNS = 2 / math.pi
QUARTER = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
REACH = 0.7854  # a little over pi / 4: how far an angle is from whole quarter turns
# Taylor series in x^2 up to pi / 4: relative errors 2e-9 and 2e-10 (f32), below 1e-18 (f64)
SIN = {
    "f32": tuple((-1) ** i / math.factorial(2 * i + 1) for i in range(5)),
    "f64": tuple((-1) ** i / math.factorial(2 * i + 1) for i in range(9)),
}
COS = {
    "f32": tuple((-1) ** i / math.factorial(2 * i) for i in range(6)),
    "f64": tuple((-1) ** i / math.factorial(2 * i) for i in range(10)),
}
NEAR = 1.0  # up to where e^x - 1 is a series: relative errors 4e-10 (f32) and 2e-19 (f64)
EXPM1 = {
    "f32": tuple(1 / math.factorial(i + 1) for i in range(12)),
    "f64": tuple(1 / math.factorial(i + 1) for i in range(20)),
}


def sine(arith: Arithmetic, x: Value, quarters: int = 0) -> Value:
    """sin of x plus so many quarter turns; cos with one."""
    b, kind = arith.b, x.type.scalar
    wide = b.convert(x, "f64")
    turns = b.op("round", b.op("fmul", wide, arith.const(TURNS, wide)))
    rest = wide
    for part in QUARTER:
        rest = arith.fma(turns, -part, rest)
    rest = b.convert(arith.clamped(rest, -REACH, REACH), kind)  # beyond 2^52 nothing else is known
    square = b.op("fmul", rest, rest)
    along = b.op("fmul", rest, arith.polynomial(square, SIN[kind]))
    across = arith.polynomial(square, COS[kind])
    half, odd = _halved(arith, b.op("fadd", turns, arith.const(quarters, turns)))
    _, turned = _halved(arith, half)
    found = b.select(odd, across, along)
    return b.select(turned, b.op("fneg", found), found)


def _halved(arith: Arithmetic, whole: Value) -> tuple[Value, Value]:
    """Half of a whole number, rounded down, and whether it is odd."""
    b = arith.b
    half = b.op("floor", b.op("fmul", whole, arith.const(0.5, whole)))
    left = b.op("fsub", whole, b.op("fadd", half, half))
    return half, b.test("lt", arith.const(0.5, left), left)


def expm1(arith: Arithmetic, x: Value) -> Value:
    """e^x - 1: a series near 0, where the difference cancels."""
    b = arith.b
    far = b.op("fsub", arith.exp(x), arith.const(1.0, x))
    near = b.op("fmul", x, arith.polynomial(x, EXPM1[x.type.scalar]))
    return b.select(b.test("le", b.op("fabs", x), arith.const(NEAR, x)), near, far)


def log1p(arith: Arithmetic, x: Value) -> Value:
    """log(u) x / (u - 1) with u = 1 + x rounded: what is lost in u cancels in the quotient."""
    b, one = arith.b, arith.const(1.0, x)
    u = b.op("fadd", x, one)
    less = b.op("fsub", u, one)
    found = b.op("fmul", arith.log(u), b.op("fdiv", x, less))
    found = b.select(b.test("eq", less, arith.const(0.0, x)), x, found)
    return b.select(b.test("lt", x, arith.const(math.inf, x)), found, x)
