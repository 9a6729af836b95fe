"""The scalar functions of `ir.scalar` by name, as operations of the nest IR."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ir.targets.cpu import integers, waves
from ir.targets.cpu.mathlib import Arithmetic
from ir.targets.cpu.nest import Value

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
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "round",
}
_INT = {
    "add": "iadd",
    "sub": "isub",
    "mul": "imul",
    "max": "imax",
    "min": "imin",
    "bitand": "and",
    "bitor": "or",
    "xor": "xor",
}
_BITS = {"and": "and", "or": "or", "bitand": "and", "bitor": "or", "xor": "xor"}


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
    return _series(arith, name, first)


def _series(arith: Arithmetic, name: str, x: Value) -> Value:
    """A function that is approximated; raises KeyError for an unknown one."""
    special: dict[str, Callable[[Value], Value]] = {
        "exp": arith.exp,
        "sigmoid": arith.sigmoid,
        "tanh": arith.tanh,
        "erf": arith.erf,
        "log": arith.log,
        "rsqrt": arith.rsqrt,
        "sin": partial(waves.sine, arith),
        "cos": partial(waves.sine, arith, quarters=1),
        "expm1": partial(waves.expm1, arith),
        "log1p": partial(waves.log1p, arith),
    }
    return special[name](x)


def _integer(arith: Arithmetic, name: str, args: list[Value]) -> Value:
    b, first = arith.b, args[0]
    if name == "neg":
        return b.op("isub", b.constant(0, first.type), first)
    if name == "abs":
        return b.op("imax", first, b.op("isub", b.constant(0, first.type), first))
    if name in ("floor", "ceil", "trunc", "round"):
        return first
    if name in ("mod", "floordiv"):
        return integers.divided(b, name, *args)
    if name == "popcount":
        return integers.popcount(b, first)
    if name == "philox":
        return integers.philox(b, *args)
    if name == "unit":
        return integers.unit(b, first)
    return b.op(_INT[name], *args)
