"""Element types: their names, sizes, numpy storage, and exact conversions. No arithmetic here.

bf16 has no numpy type; it is stored as uint16 bit patterns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.errors import ProgramError


@dataclass(frozen=True, slots=True)
class DType:
    """One element type. `bits` is its storage width; `rank` orders promotion."""

    name: str
    bits: int
    kind: str  # "float" | "int" | "uint" | "bool"
    storage: str
    rank: int

    @property
    def bytes(self) -> int:
        return self.bits // 8


DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("bool", 8, "bool", "bool", 0),
        DType("u8", 8, "uint", "uint8", 1),
        DType("i8", 8, "int", "int8", 1),
        DType("i32", 32, "int", "int32", 2),
        DType("i64", 64, "int", "int64", 3),
        DType("bf16", 16, "float", "uint16", 4),
        DType("f16", 16, "float", "float16", 4),
        DType("f32", 32, "float", "float32", 5),
        DType("f64", 64, "float", "float64", 6),
    )
}


def dtype_of(name: str) -> DType:
    """Return the type called `name`; raises ProgramError with the known names."""
    try:
        return DTYPES[name]
    except KeyError:
        raise ProgramError(f"unknown dtype {name!r}: known are {', '.join(DTYPES)}") from None


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy type in which elements of `name` are stored."""
    return np.dtype(dtype_of(name).storage)


def is_float(name: str) -> bool:
    return dtype_of(name).kind == "float"


def compute_dtype(name: str) -> str:
    """The type in which arithmetic on `name` happens: narrow floats widen to f32, ints to i32."""
    kind = dtype_of(name).kind
    if kind == "float":
        return "f64" if name == "f64" else "f32"
    if kind == "bool":
        return "bool"
    return "i64" if name == "i64" else "i32"


def promote(names: tuple[str, ...]) -> str:
    """The arithmetic type of an expression over `names`."""
    return max((compute_dtype(name) for name in names), key=lambda name: dtype_of(name).rank)


def to_float(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Widen storage of dtype `name` exactly: floats to float64, ints to int64, bool to bool."""
    if name == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    kind = dtype_of(name).kind
    if kind == "bool":
        return array.astype(np.bool_)
    return array.astype(np.float64 if kind == "float" else np.int64)


def from_float(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Round to dtype `name` (nearest, ties to even) and return its storage."""
    if name != "bf16":
        return array.astype(numpy_dtype(name))
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    quiet = np.where(np.isnan(array), np.uint32(0x7FC0), rounded)
    return quiet.astype(np.uint16)
