"""Element types: their names, sizes, numpy storage, and exact conversions. No arithmetic here.

bf16 and floats of a byte have no numpy type; they are stored as uint16 and uint8 bit patterns. tf32
is stored as float32, of which products read 10 bits of mantissa. Types of less than a byte lie side
by side in the bytes of a tensor; a single element, as values on their way are, takes a byte.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.errors import ProgramError
from ir.reduced import some


@dataclass(frozen=True, slots=True)
class DType:
    """One element type. `bits` is its width; `rank` orders promotion.

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
        """Of an element by itself."""
        return -(-self.bits // 8)

    @property
    def per_byte(self) -> int:
        """How many share a byte of a tensor; 1 where an element has bytes of its own."""
        return max(1, 8 // self.bits)


DTYPES: dict[str, DType] = {
    dtype.name: dtype
    for dtype in (
        DType("bool", 8, "bool", "bool", 0, 1),
        DType("u8", 8, "uint", "uint8", 1, 8),
        DType("i8", 8, "int", "int8", 1, 7),
        DType("i2", 2, "int", "int8", 1, 1),
        DType("u4", 4, "uint", "uint8", 1, 4),
        DType("i4", 4, "int", "int8", 1, 3),
        DType("u16", 16, "uint", "uint16", 1, 16),
        DType("i16", 16, "int", "int16", 1, 15),
        DType("i32", 32, "int", "int32", 2, 31),
        DType("u32", 32, "uint", "uint32", 2, 32),
        DType("i64", 64, "int", "int64", 3, 63),
        DType("e2m1", 4, "float", "uint8", 3, 1, 2),
        DType("e8m0", 8, "float", "uint8", 3, 0, 8),
        DType("e5m2", 8, "float", "uint8", 3, 2, 5),
        DType("e4m3", 8, "float", "uint8", 3, 3, 4),
        DType("bf16", 16, "float", "uint16", 4, 7, 8),
        DType("f16", 16, "float", "float16", 4, 10, 5),
        DType("tf32", 32, "float", "float32", 5, 10, 8),
        DType("f32", 32, "float", "float32", 5, 23, 8),
        DType("f64", 64, "float", "float64", 6, 52, 11),
    )
}

# types that elements of a tensor have by themselves; others share bytes
WHOLE_BYTES = tuple(name for name, dtype in DTYPES.items() if dtype.per_byte == 1)
STEPPED = ("e2m1", "e8m0")  # floats so few that every cast rounds, as one to integers does
NARROW = ("bf16", "f16", "e4m3", "e5m2", "e2m1", "e8m0", "tf32")  # floats whose rounding shows


@dataclass(frozen=True, slots=True)
class Code:
    """How the patterns of a float of at most 8 bits are read.

    Exponents count from `bias`. What is larger than `largest` becomes it, or infinite, the pattern
    before the NaNs, if the type has that; NaN is the pattern `nan`.
    """

    bias: int
    largest: float
    nan: int
    infinite: bool = False
    signed: bool = True


CODES = {
    "e4m3": Code(7, 448.0, 0x7F),
    "e5m2": Code(15, 57344.0, 0x7E, infinite=True),
    "e2m1": Code(1, 6.0, 0x7),  # which has no NaN: the largest number stands for it
    "e8m0": Code(127, 2.0**127, 0xFF, signed=False),
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
    """The type in which arithmetic on `name` happens: narrow floats widen to f32, ints to i32, and
    u32 to i64, which has all of its numbers."""
    kind = dtype_of(name).kind
    if kind == "float":
        return "f64" if name == "f64" else "f32"
    if kind == "bool":
        return "bool"
    return "i64" if name in ("i64", "u32") else "i32"


def whole_range(name: str) -> tuple[int, int]:
    """The least and the largest whole number of an integer dtype."""
    row = dtype_of(name)
    return (-(1 << row.mantissa) if row.kind == "int" else 0), (1 << row.mantissa) - 1


def within(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Numbers with the range of dtype `name`, not rounded to it.

    Floats too large become infinite, or the largest where a type has no infinity. A float becomes
    the nearest whole number on the way to 0 that an integer dtype has, NaN 0; of a whole number the
    low bits are kept.
    """
    kind = dtype_of(name).kind
    if kind == "bool":
        truth: NDArray[Any] = array != 0
        return truth
    if kind != "float":
        return _whole(array, name) if array.dtype.kind == "f" else _low_bits(array, name)
    wide = array.astype(np.float64, copy=False)
    if name in CODES and not CODES[name].infinite:
        return _saturated(wide, name)
    over = np.abs(wide) >= overflow(name)
    return np.where(over, np.copysign(np.inf, wide), wide) if some(over) else wide


def _saturated(wide: NDArray[Any], name: str) -> NDArray[Any]:
    """Numbers between the least and the largest of a type without infinity."""
    code = CODES[name]
    least = -code.largest if code.signed else 2.0**-code.bias
    inside: NDArray[Any] = np.clip(wide, least, code.largest)
    return np.where(np.isnan(wide), code.largest, inside) if name == "e2m1" else inside


def overflow(name: str) -> float:
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
    row = dtype_of(name)
    if row.per_byte == 1:
        return array.astype(numpy_dtype(name)).astype(np.int64)
    low: NDArray[Any] = array.astype(np.int64) & ((1 << row.bits) - 1)
    return low - (low >> (row.bits - 1) << row.bits) if row.kind == "int" else low


def holds(target: str, source: str) -> bool:
    """Whether float dtype `target` has every number of `source`: a cast to it changes none."""
    to, by = dtype_of(target), dtype_of(source)
    if "e8m0" in (target, source) and target != source:  # of one sign, without 0
        return source == "e8m0" and to.exponent >= by.exponent
    if by.kind != "float":
        return to.mantissa + 1 >= by.mantissa
    return to.mantissa >= by.mantissa and to.exponent >= by.exponent


TOGETHER = (frozenset({"i8", "u8"}), frozenset({"e4m3", "e5m2"}))
"""Types that tensor cores multiply with each other as they are."""


def holding(dtypes: Collection[str], among: Iterable[str]) -> str:
    """The first float type of some that has every number of these; empty if none has."""
    found = (one for one in among if is_float(one) and all(holds(one, d) for d in dtypes))
    return next(found, "")


def keeps_range(target: str, source: str) -> bool:
    """Whether a cast to float `target` rounds by a share of each number alone, and none of float
    `source` is too large or too small for it."""
    keeps = is_float(source) and dtype_of(target).exponent >= dtype_of(source).exponent
    return keeps and (target != "e8m0" or source == target)


def promote(names: tuple[str, ...]) -> str:
    """The arithmetic type of an expression over `names`."""
    return max((compute_dtype(name) for name in names), key=lambda name: dtype_of(name).rank)


def to_float(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Widen storage of dtype `name` exactly: floats to float64, ints to int64, bool to bool."""
    if name == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if name in CODES:
        known: NDArray[Any] = (
            _values(name)[array] if isinstance(array, np.ndarray) else _decoded(array, name)
        )
        return known
    kind = dtype_of(name).kind
    if kind == "bool":
        return array.astype(np.bool_)
    return array.astype(np.float64 if kind == "float" else np.int64)


def from_float(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Round to dtype `name` (nearest, ties to even) and return its storage."""
    if name in CODES:
        return _to_exponent(array) if name == "e8m0" else _encoded(array, name)
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


def _decoded(pattern: NDArray[Any], name: str) -> NDArray[Any]:
    """The numbers of patterns: sign, exponent and mantissa; without a sign, exponents alone."""
    row, code = dtype_of(name), CODES[name]
    bits = pattern.astype(np.int64)
    if not code.signed:
        return np.where(bits == code.nan, np.nan, np.exp2((bits - code.bias) * 1.0))
    size = bits & ((1 << (row.bits - 1)) - 1)
    exponent, part = size >> row.mantissa, size & ((1 << row.mantissa) - 1)
    normal = (part + (1 << row.mantissa)) * np.exp2(exponent - 1.0)
    value = np.where(exponent == 0, part, normal) * 2.0 ** (1 - code.bias - row.mantissa)
    if code.infinite:
        special = exponent == (1 << row.exponent) - 1
        value = np.where(special, np.where(part == 0, np.inf, np.nan), value)
    elif name == "e4m3":
        value = np.where(size == code.nan, np.nan, value)
    return np.where(bits >> (row.bits - 1) & 1, -value, value)


@cache
def _values(name: str) -> NDArray[Any]:
    """The numbers of all bytes; those of a narrower type lie in the low bits."""
    return _decoded(np.arange(256), name)


def _encoded(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Patterns of the nearest numbers, ties to even."""
    row, code = dtype_of(name), CODES[name]
    value = array.astype(np.float64)
    size = np.minimum(np.abs(value), 2 * code.largest if code.infinite else code.largest)
    lowest = 1 - code.bias
    with np.errstate(divide="ignore", invalid="ignore"):
        exponent = np.floor(np.log2(np.where(size > 0, size, 2.0**lowest)))
    exponent = np.maximum(exponent, lowest)
    steps = np.rint(size / np.exp2(exponent - row.mantissa))
    found = steps + (exponent - lowest) * (1 << row.mantissa)
    if code.infinite:
        found = np.minimum(found, ((1 << row.exponent) - 1) << row.mantissa)
    found = np.where(np.isnan(value), code.nan, found)
    negative = np.signbit(value) & ~(np.isnan(value) & (name == "e2m1"))
    signed: NDArray[Any] = np.where(negative, found + (1 << (row.bits - 1)), found).astype(np.uint8)
    return signed


def _to_exponent(array: NDArray[Any]) -> NDArray[Any]:
    """Patterns of the nearest powers of two, ties to an even exponent's pattern.

    What is below the least of them becomes that, zero and negative numbers too.
    """
    value, code = array.astype(np.float64), CODES["e8m0"]
    inside = np.clip(np.where(np.isnan(value), 1.0, value), 2.0**-code.bias, code.largest)
    part, exponent = np.frexp(inside)  # from 0.5 up to 1
    pattern = exponent + (code.bias - 1)
    up = (part > 0.75) | ((part == 0.75) & (pattern & 1 == 1))
    found: NDArray[Any] = np.where(np.isnan(value), code.nan, pattern + up).astype(np.uint8)
    return found
