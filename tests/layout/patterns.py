"""Bit patterns of every element type: their exact meaning, rounding into one, packing.

Written for itself, so that rows of instructions and wrappers are judged by it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import DTYPES, from_float, to_float
from ir.layout.errors import LayoutError
from ir.layout.widths import bits

INTEGERS = tuple(name for name, dtype in DTYPES.items() if dtype.kind != "float")
REGISTER_BITS = 32
_TF32_DROPPED = 13


def carrier(dtype: str) -> np.dtype[Any]:
    """The unsigned numpy type that holds one pattern (types below a byte use one each)."""
    return np.dtype(f"uint{max(8, bits(dtype))}")


def is_integer(dtype: str) -> bool:
    bits(dtype)
    return dtype in INTEGERS


def decode(patterns: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Exact values of bit patterns: float64, or int64 for the integer types."""
    raw = np.ascontiguousarray(patterns).astype(carrier(dtype), copy=False)
    if is_integer(dtype):
        return _decode_integer(raw, dtype)
    if dtype in ("e4m3", "e5m2"):
        exact: NDArray[Any] = _float8_values(dtype)[raw]
        return exact
    if dtype in ("e2m1", "e8m0"):
        return to_float(raw, dtype)
    with np.errstate(invalid="ignore"):  # signalling NaNs become quiet ones
        values: NDArray[np.float64] = _as_float(raw, dtype).astype(np.float64)
        return values


def encode(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Patterns of `values`: integers wrap, floats round to nearest even.

    tf32 rounds ties away from zero and the 8-bit floats saturate, as the conversion
    instructions do (PTX ISA, cvt: .rna, .satfinite).
    """
    array = np.asarray(values)
    if is_integer(dtype):
        mask = (1 << bits(dtype)) - 1 if bits(dtype) < 64 else -1
        return (array.astype(np.int64) & mask).astype(carrier(dtype))
    if dtype in ("f16", "f32", "f64"):
        return array.astype(f"float{bits(dtype)}").view(carrier(dtype))
    if dtype == "bf16":
        return _round_bf16(array)
    if dtype == "tf32":
        return _round_tf32(array)
    if dtype in ("e2m1", "e8m0"):
        return from_float(array, dtype)
    return _round_float8(array.astype(np.float64), dtype)


def pack(patterns: NDArray[Any], dtype: str) -> NDArray[np.uint32]:
    """[thread, value] patterns -> [thread, register] 32-bit registers, first value in the low bits.

    LayoutError "partial-register" unless the values fill whole registers.
    """
    width, (threads, count) = bits(dtype), patterns.shape
    if count * width % REGISTER_BITS:
        raise LayoutError(
            "partial-register",
            f"{count} values of {width} bits are {count * width} bits, not a multiple of 32",
        )
    if width < 8:
        fields = patterns.astype(np.uint8).reshape(threads, -1, 8 // width) & ((1 << width) - 1)
        octets = fields << np.arange(0, 8, width, dtype=np.uint8)
        joined: NDArray[np.uint8] = np.bitwise_or.reduce(octets, axis=-1)
        return joined.view(np.uint32)
    raw = np.ascontiguousarray(patterns.astype(carrier(dtype), copy=False))
    return raw.view(np.uint32).reshape(threads, -1)


def unpack(registers: NDArray[np.uint32], dtype: str) -> NDArray[Any]:
    """[thread, register] 32-bit registers -> [thread, value] patterns; the inverse of `pack`."""
    raw = np.ascontiguousarray(registers, dtype=np.uint32)
    width = bits(dtype)
    if width >= 8:
        return raw.view(carrier(dtype))
    fields = raw.view(np.uint8)[..., None] >> np.arange(0, 8, width, dtype=np.uint8)
    return (fields & ((1 << width) - 1)).reshape(raw.shape[0], -1)


def _as_float(raw: NDArray[Any], dtype: str) -> NDArray[Any]:
    if dtype == "bf16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    if dtype == "tf32":
        return (raw >> _TF32_DROPPED << _TF32_DROPPED).view(np.float32)
    return raw.view(f"float{bits(dtype)}")


def _decode_integer(raw: NDArray[Any], dtype: str) -> NDArray[np.int64]:
    width, signed = bits(dtype), DTYPES[dtype].kind == "int"
    if width >= 8:
        return (raw.view(f"int{width}") if signed else raw).astype(np.int64)
    wide, half = raw.astype(np.int64) & ((1 << width) - 1), 1 << (width - 1)
    return (wide ^ half) - half if signed else wide


def _round_bf16(array: NDArray[Any]) -> NDArray[np.uint16]:
    raw = array.astype(np.float32).view(np.uint32)
    rounded = (raw + np.uint32(0x7FFF) + ((raw >> 16) & np.uint32(1))) >> 16
    return np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype(np.uint16)


def _round_tf32(array: NDArray[Any]) -> NDArray[np.uint32]:
    raw = array.astype(np.float32).view(np.uint32)
    half = np.uint32(1 << (_TF32_DROPPED - 1))
    finite = np.isfinite(array.astype(np.float32))
    rounded = np.where(finite, raw + half, raw) >> _TF32_DROPPED << _TF32_DROPPED
    return rounded.astype(np.uint32)


@lru_cache(maxsize=2)
def _float8_values(dtype: str) -> NDArray[np.float64]:
    """The 256 values of e4m3 (no infinity, one NaN per sign) or e5m2 (the high byte of f16)."""
    codes = np.arange(256, dtype=np.uint16)
    if dtype == "e5m2":
        return (codes << 8).view(np.float16).astype(np.float64)
    exponent, mantissa = (codes >> 3 & 15).astype(np.int64), (codes & 7).astype(np.float64)
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    size = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), normal)
    size[codes & 127 == 127] = np.nan
    return np.where(codes >= 128, -size, size)


def _round_float8(array: NDArray[np.float64], dtype: str) -> NDArray[np.uint8]:
    largest = 126 if dtype == "e4m3" else 123
    finite = _float8_values(dtype)[: largest + 1]
    middle = (finite[1:] + finite[:-1]) / 2
    size = np.abs(array)
    code = np.searchsorted(middle, size)
    inside = code < largest
    tie = inside & (middle[np.minimum(code, largest - 1)] == size) & (code % 2 == 1)
    rounded = np.where(np.isnan(array), 127, code + tie)
    return (rounded + np.where(np.signbit(array), 128, 0)).astype(np.uint8)
