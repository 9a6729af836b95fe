"""Element types: their names, sizes, numpy storage, and exact conversions. No arithmetic here.

bf16 and e4m3 have no numpy type; they are stored as uint16 and uint8 bit patterns. tf32 is stored
as float32, of which products read 10 bits of mantissa.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.errors import ProgramError


@dataclass(frozen=True, slots=True)
class DType:
    """One element type. `bits` is its storage width; `rank` orders promotion.

    Floats have bits of an `exponent` and of a `mantissa`, whole numbers of a mantissa alone.
    """

    name: str
    bits: int
    kind: str  # "float" | "int" | "uint" | "bool"
    storage: str
    rank: int
    mantissa: int
    exponent: int = 0

    @property
    def bytes(self) -> int:
        return self.bits // 8


DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("bool", 8, "bool", "bool", 0, 1),
        DType("u8", 8, "uint", "uint8", 1, 8),
        DType("i8", 8, "int", "int8", 1, 7),
        DType("i32", 32, "int", "int32", 2, 31),
        DType("i64", 64, "int", "int64", 3, 63),
        DType("e4m3", 8, "float", "uint8", 3, 3, 4),
        DType("bf16", 16, "float", "uint16", 4, 7, 8),
        DType("f16", 16, "float", "float16", 4, 10, 5),
        DType("tf32", 32, "float", "float32", 5, 10, 8),
        DType("f32", 32, "float", "float32", 5, 23, 8),
        DType("f64", 64, "float", "float64", 6, 52, 11),
    )
}


NARROW = ("bf16", "f16", "e4m3", "tf32")  # floats whose rounding shows


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


def whole_range(name: str) -> tuple[int, int]:
    """The least and the largest whole number of an integer dtype."""
    row = dtype_of(name)
    return (-(1 << row.mantissa) if row.kind == "int" else 0), (1 << row.mantissa) - 1


def within(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Numbers with the range of dtype `name`, not rounded to it.

    Floats too large become infinite, or e4m3's largest. A float becomes the nearest whole number
    on the way to 0 that an integer dtype has, NaN 0; of a whole number the low bits are kept.
    """
    kind = dtype_of(name).kind
    if kind == "bool":
        truth: NDArray[Any] = array != 0
        return truth
    if kind != "float":
        return _whole(array, name) if array.dtype.kind == "f" else _low_bits(array, name)
    wide = array.astype(np.float64, copy=False)
    largest = _E4M3_LARGEST if name == "e4m3" else _overflow(name)
    over = np.abs(wide) >= largest
    if not over.any():
        return wide
    return np.where(over, np.copysign(largest if name == "e4m3" else np.inf, wide), wide)


def _overflow(name: str) -> float:
    """From where on a float rounds to infinity: half a step above the largest."""
    row = dtype_of(name)
    return (
        np.inf
        if name == "f64"
        else (2 - 2.0 ** -(row.mantissa + 1)) * 2.0 ** ((1 << row.exponent - 1) - 1)
    )


def _whole(array: NDArray[Any], name: str) -> NDArray[Any]:
    low, high = whole_range(name)
    value = np.nan_to_num(np.trunc(array), nan=0.0, posinf=np.inf, neginf=-np.inf)
    top = float(high)  # of i64 it is 2^63, which an int64 is not
    inside = np.where((value > low) & (value < top), value, 0.0).astype(np.int64)
    return np.where(value <= low, low, np.where(value >= top, high, inside))


def _low_bits(array: NDArray[Any], name: str) -> NDArray[Any]:
    return array.astype(numpy_dtype(name)).astype(np.int64)


def holds(target: str, source: str) -> bool:
    """Whether float dtype `target` has every number of `source`: a cast to it changes none."""
    to, by = dtype_of(target), dtype_of(source)
    if by.kind != "float":
        return to.mantissa + 1 >= by.mantissa
    return to.mantissa >= by.mantissa and to.exponent >= by.exponent


def keeps_range(target: str, source: str) -> bool:
    """Whether a cast to float `target` rounds by a share of each number alone, and none of float
    `source` is too large or too small for it."""
    return is_float(source) and dtype_of(target).exponent >= dtype_of(source).exponent


def promote(names: tuple[str, ...]) -> str:
    """The arithmetic type of an expression over `names`."""
    return max((compute_dtype(name) for name in names), key=lambda name: dtype_of(name).rank)


def to_float(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Widen storage of dtype `name` exactly: floats to float64, ints to int64, bool to bool."""
    if name == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if name == "e4m3":
        known: NDArray[Any] = _E4M3[array] if isinstance(array, np.ndarray) else _e4m3_values(array)
        return known
    kind = dtype_of(name).kind
    if kind == "bool":
        return array.astype(np.bool_)
    return array.astype(np.float64 if kind == "float" else np.int64)


def from_float(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Round to dtype `name` (nearest, ties to even) and return its storage."""
    if name == "e4m3":
        return _to_e4m3(array)
    if name != "bf16":
        with np.errstate(over="ignore", invalid="ignore"):
            return array.astype(numpy_dtype(name))
    bits = array.astype(np.float32, order="C").view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
    quiet = np.where(np.isnan(array), np.uint32(0x7FC0), rounded)
    return quiet.astype(np.uint16)


def rounded(array: NDArray[Any], name: str) -> NDArray[Any]:
    """The nearest numbers that float dtype `name` has, as float64."""
    if name != "tf32":
        return to_float(from_float(array, name), name)
    bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    kept = (bits + np.uint32(0xFFF) + ((bits >> 13) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return kept.view(np.float32).astype(np.float64)


def _e4m3_values(code: NDArray[Any]) -> NDArray[Any]:
    """The numbers of bytes: 1 sign, 4 exponent (bias 7) and 3 mantissa bits, no infinities."""
    code = code.astype(np.int64)
    exponent, mantissa = (code >> 3) & 15, code & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * np.exp2(exponent - 10.0))
    value = np.where(code & 128, -value, value)
    return np.where((code & 127) == 127, np.nan, value)


_E4M3 = _e4m3_values(np.arange(256))
_E4M3_LARGEST = 448.0


def _to_e4m3(array: NDArray[Any]) -> NDArray[Any]:
    """Round to nearest, ties to even; what is too large becomes the largest number."""
    value = array.astype(np.float64)
    size = np.minimum(np.abs(value), _E4M3_LARGEST)
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.clip(np.floor(np.log2(np.where(size > 0, size, 2.0**-6))), -6, 8)
    steps = np.rint(size / np.exp2(exponent - 3))
    code = np.where(np.isnan(value), 127, steps + 8 * (exponent + 6))
    found: NDArray[Any] = np.where(np.signbit(value), code + 128, code).astype(np.uint8)
    return found
