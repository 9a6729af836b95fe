"""LLVM's spelling of types, constants, operations and casts. Knows no program and no printer."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ir.targets.cpu.narrow import FORMATS, pattern
from ir.targets.cpu.nest import Type

# narrow floats are bits that only conversions look into
SCALARS = {
    "i1": "i1",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
    "bf16": "i16",
    "f16": "i16",
    "e4m3": "i8",
    "e5m2": "i8",
    "e2m1": "i8",
    "e8m0": "i8",
    "f32": "float",
    "f64": "double",
    "ptr": "ptr",
}
PLAIN = {
    "iadd": "add",
    "isub": "sub",
    "imul": "mul",
    "idiv": "udiv",
    "irem": "urem",
    "sdiv": "sdiv",
    "srem": "srem",
    "fadd": "fadd",
    "fsub": "fsub",
    "fmul": "fmul",
    "fdiv": "fdiv",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "shl": "shl",
    "lshr": "lshr",
    "ashr": "ashr",
}
CALLS = {
    "imin": "smin",
    "imax": "smax",
    "fabs": "fabs",
    "fsqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "nearbyint",
    "fma": "fma",
}
EXTREMES = {"fmax": "ogt", "fmin": "olt", "fmaximum": "ogt", "fminimum": "olt"}
FOLDS = {"sum": "fadd", "prod": "fmul", "max": "fmaximum", "min": "fminimum"}
INT_FOLDS = {"sum": "add", "prod": "mul", "max": "smax", "min": "smin"}
BIT_FOLDS = {"sum": "or", "prod": "and", "max": "or", "min": "and"}
INT_PREDICATES = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
FLOAT_PREDICATES = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def type_text(type: Type) -> str:
    """LLVM's spelling of a type."""
    scalar = SCALARS[type.scalar]
    return f"<{type.lanes} x {scalar}>" if type.lanes else scalar


def suffix(type: Type) -> str:
    """The type in the name of an intrinsic."""
    format = FORMATS.get(type.scalar)
    scalar = format.integer if format else type.scalar
    return f"v{type.lanes}{scalar}" if type.lanes else scalar


def literal(value: float, scalar: str) -> str:
    """A scalar constant in LLVM's spelling (floats as exact bit patterns)."""
    if scalar in ("f32", "f64"):
        if scalar == "f32":
            value = struct.unpack("f", struct.pack("f", value))[0]
        return "0x{:016X}".format(struct.unpack("Q", struct.pack("d", value))[0])
    if scalar in FORMATS:
        return str(pattern(value, scalar))
    return str(int(value))


def table_text(name: str, entries: Sequence[float], scalar: str) -> str:
    """A table of constants."""
    word = SCALARS[scalar]
    items = ", ".join(f"{word} {literal(entry, scalar)}" for entry in entries)
    return f"@{name} = private unnamed_addr constant [{len(entries)} x {word}] [{items}]"


def signed_bytes(type: Type) -> int:
    return 1 if type.scalar == "i1" else type.bytes // max(1, type.lanes)


def conversion(source: str, target: str, unsigned: bool) -> str:
    """The LLVM cast that converts scalar `source` to `target` by value; not for narrow floats."""
    floats = ("f32", "f64")
    width = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f32": 32, "f64": 64}
    if source in floats and target in floats:
        return "fpext" if width[target] > width[source] else "fptrunc"
    if source in floats:
        return "fptoui" if unsigned else "fptosi"
    if target in floats:
        return "uitofp" if unsigned or source == "i1" else "sitofp"
    if width[target] < width[source]:
        return "trunc"
    return "zext" if unsigned or source == "i1" else "sext"
