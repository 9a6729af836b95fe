"""Bit patterns of the narrow types: exact decoding, rounding at the edges, packing."""

from __future__ import annotations

import numpy as np
import pytest

from ir.layout.errors import LayoutError
from ir.layout.widths import bits
from tests.layout.patterns import decode, encode, pack, unpack


@pytest.mark.parametrize("dtype", ["i4", "u4", "i8", "u8", "e4m3", "e5m2", "f16", "bf16", "tf32"])
def test_patterns_survive_decoding_and_packing(dtype: str) -> None:
    count = min(1 << bits(dtype), 1 << 16)
    patterns = np.arange(count, dtype=np.uint64) << max(0, bits(dtype) - 16)
    values = decode(patterns.astype(f"uint{max(8, bits(dtype))}"), dtype)
    finite = np.isfinite(values)
    again = decode(encode(values[finite], dtype), dtype)
    assert np.array_equal(again, values[finite])
    block = patterns[: count // 16 * 16].reshape(-1, 16).astype(f"uint{max(8, bits(dtype))}")
    assert np.array_equal(unpack(pack(block, dtype), dtype), block)


@pytest.mark.parametrize(
    ("dtype", "value", "rounded"),
    [
        ("e4m3", 448.0, 448.0),
        ("e4m3", 1e9, 448.0),
        ("e4m3", -1.0625, -1.0),
        ("e4m3", 1.1875, 1.25),
        ("e4m3", 2.0**-10, 0.0),
        ("e4m3", 3 * 2.0**-10, 2.0**-8),
        ("e5m2", 57344.0, 57344.0),
        ("e5m2", -np.inf, -57344.0),
        ("e5m2", 1.125, 1.0),
        ("e5m2", 1.375, 1.5),
        ("bf16", 1.00390625, 1.0),
        ("tf32", 1.00048828125, 1.0009765625),
        ("i4", 9, -7),
        ("u8", 257, 1),
    ],
)
def test_rounding_at_the_edges(dtype: str, value: float, rounded: float) -> None:
    assert decode(encode(np.array([value]), dtype), dtype)[0] == rounded


def test_nan_stays_and_packing_refuses_part_of_a_register() -> None:
    for dtype in ("e4m3", "e5m2", "bf16", "f16", "tf32"):
        assert np.isnan(decode(encode(np.array([np.nan]), dtype), dtype)[0])
    with pytest.raises(LayoutError, match="3 values of 8 bits are 24 bits"):
        pack(np.zeros((32, 3), np.uint8), "e4m3")
    with pytest.raises(LayoutError, match="unknown dtype 'f24'"):
        bits("f24")


def test_first_value_is_in_the_low_bits() -> None:
    assert pack(np.array([[1, 2, 3, 4]], np.uint8), "i8")[0, 0] == 0x04030201
    assert pack(np.arange(8, dtype=np.uint8)[None], "u4")[0, 0] == 0x76543210
    assert pack(np.array([[1, 2]], np.uint16), "f16")[0, 0] == 0x00020001
