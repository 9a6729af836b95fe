"""Element types: exact widening, rounding to nearest even, and what has no numpy type."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir.dtypes import (
    DTYPES,
    WHOLE_BYTES,
    compute_dtype,
    dtype_of,
    from_float,
    holds,
    keeps_range,
    numpy_dtype,
    promote,
    rounded,
    to_float,
    within,
)
from ir.errors import ProgramError
from ir.packs import pack, unpack

FLOATS = tuple(name for name, dtype in DTYPES.items() if dtype.kind == "float")
CODES = np.arange(256, dtype=np.uint8)
NUMBERS = to_float(CODES, "e4m3")


@pytest.mark.parametrize("name", sorted(WHOLE_BYTES))
def test_storage_round_trips(name: str) -> None:
    """Every pattern, or many of a wide type, comes back as it was; NaN as some NaN."""
    size = dtype_of(name).bytes
    rng = np.random.default_rng(0)
    bits = np.arange(1 << 8 * min(size, 2)) if size <= 2 else rng.integers(0, 1 << 31, 4096)
    stored = bits.astype(f"u{size}").view(numpy_dtype(name))
    if name == "bool":
        stored = np.array([False, True])
    with np.errstate(invalid="ignore"):  # signalling NaNs
        value = to_float(stored, name)
        again = from_float(value, name)
    assert again.dtype == numpy_dtype(name)
    known = ~np.isnan(value) if name in FLOATS else np.ones(value.shape, bool)
    assert np.array_equal(again[known], stored[known])
    if name in FLOATS:
        assert np.isnan(to_float(again, name)[~known]).all()


def test_e4m3_numbers() -> None:
    assert (NUMBERS[0x38], NUMBERS[0xB8], NUMBERS[0x7E]) == (1.0, -1.0, 448.0)
    assert (NUMBERS[0x01], NUMBERS[0x08]) == (2.0**-9, 2.0**-6)
    assert np.flatnonzero(np.isnan(NUMBERS)).tolist() == [0x7F, 0xFF]
    assert np.isfinite(np.delete(NUMBERS, [0x7F, 0xFF])).all()


@given(st.floats(-448, 448) | st.floats(-0.02, 0.02))
@settings(max_examples=165, deadline=None)
def test_e4m3_rounds_to_the_nearest_and_ties_to_even(value: float) -> None:
    code = int(from_float(np.array([value]), "e4m3")[0])
    finite = np.delete(CODES, [0x7F, 0xFF])
    distance = np.abs(NUMBERS[finite] - value)
    nearest = finite[distance == distance.min()]
    assert code in nearest
    if len({abs(NUMBERS[c]) for c in nearest}) > 1:
        assert code % 2 == 0
    assert bool(code & 128) == bool(np.signbit(value))


def test_e4m3_ties_between_all_neighbours() -> None:
    low = CODES[:0x7E]
    middle = (NUMBERS[low] + NUMBERS[low + 1]) / 2
    even = np.where(low % 2 == 0, low, low + 1)
    assert np.array_equal(from_float(middle, "e4m3"), even)
    assert np.array_equal(from_float(-middle, "e4m3"), even + 128)


def test_e4m3_has_no_infinity() -> None:
    given_values = np.array([449.0, 1e30, np.inf, -np.inf, np.nan, 0.0, -0.0])
    found = from_float(given_values, "e4m3")
    assert found.tolist() == [0x7E, 0x7E, 0x7E, 0xFE, 0x7F, 0x00, 0x80]


_THEIRS = """\
import sys
import numpy, torch
folder = sys.argv[1]
values = torch.from_numpy(numpy.load(f"{folder}/values.npy"))
codes = torch.from_numpy(numpy.load(f"{folder}/codes.npy"))
narrow = values.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
numpy.save(f"{folder}/e4m3.npy", narrow.numpy())
numpy.save(f"{folder}/bf16.npy", values.to(torch.bfloat16).view(torch.int16).numpy())
numpy.save(f"{folder}/numbers.npy", codes.view(torch.float8_e4m3fn).to(torch.float32).numpy())
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="no torch to compare with")
def test_narrow_types_are_torchs(tmp_path: Path) -> None:
    """In a process of its own: torch does not come twice into one, and others need it later."""
    rng = np.random.default_rng(1)
    near = (rng.standard_normal(20_000) * np.exp2(rng.integers(-12, 9, 20_000))).astype(np.float32)
    any_bits = rng.integers(0, 1 << 32, 20_000, dtype=np.uint32).view(np.float32)
    values = np.concatenate([near, any_bits[np.isfinite(any_bits)]])
    np.save(tmp_path / "values.npy", values)
    np.save(tmp_path / "codes.npy", CODES)
    subprocess.run([sys.executable, "-c", _THEIRS, str(tmp_path)], check=True)
    theirs = {name: np.load(tmp_path / f"{name}.npy") for name in ("e4m3", "bf16", "numbers")}
    assert np.array_equal(from_float(values, "e4m3"), theirs["e4m3"])
    assert np.array_equal(from_float(values, "bf16"), theirs["bf16"].view(np.uint16))
    assert np.array_equal(NUMBERS.astype(np.float32), theirs["numbers"], equal_nan=True)


def test_tf32_is_stored_as_f32_and_computes_in_it() -> None:
    assert numpy_dtype("tf32") == np.float32
    assert compute_dtype("tf32") == compute_dtype("e4m3") == "f32"
    assert promote(("e4m3", "i32")) == "f32"
    assert promote(("tf32", "f64")) == "f64"
    assert promote(("i8", "bool")) == "i32"


def test_an_unknown_type_is_refused_with_those_there_are() -> None:
    with pytest.raises(ProgramError, match=r"unknown dtype 'e3m4': known are .*e4m3.*tf32"):
        dtype_of("e3m4")


def test_rounding_goes_to_the_nearest_number_with_ties_to_even() -> None:
    step = 2.0**-10
    values = np.array([1 + 0.4 * step, 1 + 0.5 * step, 1 + 1.5 * step, -1 - 0.6 * step, np.inf])
    wanted = [1, 1, 1 + 2 * step, -1 - step, np.inf]
    assert rounded(values, "tf32").tolist() == wanted
    assert rounded(values, "f16").tolist() == wanted
    assert rounded(np.array([1 + 2.0**-9]), "bf16").tolist() == [1.0]


# -- floats of at most 8 bits, by tables that are written here

HALVES = (np.arange(256, dtype=np.uint16) << 8).view(np.float16).astype(np.float64)
TABLES = {
    "e4m3": NUMBERS,
    "e5m2": HALVES,  # the high bytes of f16
    "e2m1": np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]),
    "e8m0": np.array([*(2.0 ** (k - 127) for k in range(255)), np.nan]),
}


def nearest(value: float, name: str) -> int:
    """The pattern of the number next to `value`, of two the even one; of zeros that of its sign."""
    table = TABLES[name]
    finite = np.flatnonzero(np.isfinite(table))
    finite = finite[np.signbit(table[finite]) == np.signbit(value)] if name != "e8m0" else finite
    inside = np.clip(value, table[finite].min(), table[finite].max())
    distance = np.abs(table[finite] - inside)
    near = finite[distance == distance.min()]
    return int(near[near % 2 == 0][0] if len(near) > 1 else near[0])


@pytest.mark.parametrize("name", sorted(TABLES))
def test_numbers_of_short_floats(name: str) -> None:
    patterns = np.arange(len(TABLES[name]), dtype=np.uint8)
    found = to_float(patterns, name)
    assert np.array_equal(found, TABLES[name], equal_nan=True)
    known = ~np.isnan(found)
    assert np.array_equal(np.signbit(found[known]), np.signbit(TABLES[name][known]))
    assert np.array_equal(from_float(found, name)[known], patterns[known])


@pytest.mark.parametrize("name", ["e5m2", "e2m1", "e8m0"])
@given(exponent=st.integers(-140, 140), part=st.integers(-64, 64), by=st.sampled_from((0, 1, -1)))
@settings(max_examples=80, deadline=None)
def test_short_floats_round_to_the_nearest(name: str, exponent: int, part: int, by: int) -> None:
    """Among them all numbers, what is half way between two, and what lies beside that."""
    value = float(np.ldexp(part / 32, exponent))
    value = float(np.nextafter(value, by * np.inf)) if by else value
    row = {"e5m2": 61440.0, "e2m1": np.inf, "e8m0": np.inf}[name]
    if abs(value) >= row:
        assert to_float(from_float(np.array([value]), name), name)[0] == np.copysign(np.inf, value)
        return
    assert int(from_float(np.array([value]), name)[0]) == nearest(value, name)


def test_what_has_no_room_in_short_floats() -> None:
    values = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 0.0, -3.0])
    found = {name: to_float(from_float(values, name), name) for name in ("e5m2", "e2m1", "e8m0")}
    infinite, least = np.inf, 2.0**-127
    want = [infinite, -infinite, np.nan, infinite, -infinite, 0, -3]
    assert np.array_equal(found["e5m2"], want, equal_nan=True)
    assert np.array_equal(found["e2m1"], [6, -6, 6, 6, -6, 0, -3])
    want = [2.0**127, least, np.nan, 2.0**100, least, least, least]
    assert np.array_equal(found["e8m0"], want, equal_nan=True)
    for name, numbers in found.items():
        assert np.array_equal(rounded(within(values, name), name), numbers, equal_nan=True)


@pytest.mark.parametrize("name", ["i2", "i4", "u4", "i16", "u16", "u32"])
@given(value=st.integers(-(2**40), 2**40), share=st.floats(-0.99, 0.99))
@settings(max_examples=55, deadline=None)
def test_ranges_of_whole_numbers(name: str, value: int, share: float) -> None:
    """Integers keep their low bits; floats go to the nearest number on their way to 0."""
    bits, signed = int(name[1:]), name[0] == "i"
    half = 1 << (bits - 1) if signed else 0
    low = (value + half) % (1 << bits) - half
    assert within(np.array([value]), name)[0] == low
    most = (1 << bits) - 1 - half
    for number in (value, low):
        real = float(number) + share
        assert within(np.array([real]), name)[0] == min(max(int(real), -half), most)
    assert to_float(from_float(np.array([low]), name), name)[0] == low


def test_arithmetic_of_whole_numbers() -> None:
    assert {name: compute_dtype(name) for name in ("i2", "u4", "i16", "u16", "u32")} == {
        "i2": "i32", "u4": "i32", "i16": "i32", "u16": "i32", "u32": "i64",
    }  # fmt: skip
    assert promote(("u32", "i32")) == "i64"
    assert promote(("u32", "e8m0")) == "f32"


def test_what_holds_what() -> None:
    assert holds("bf16", "e5m2")
    assert holds("f16", "e5m2")
    assert holds("e4m3", "e2m1")
    assert holds("bf16", "e8m0")
    assert not holds("f16", "e8m0")
    assert not holds("e8m0", "bool")
    assert not holds("e8m0", "bf16")
    assert not keeps_range("e8m0", "f32")


# -- elements that share bytes


@pytest.mark.parametrize("name", ["i2", "i4", "u4", "e2m1"])
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_packing_comes_back(name: str, seed: int, rows: int, octets: int) -> None:
    given_bytes = np.random.default_rng(seed).integers(0, 256, (rows, octets), dtype=np.uint8)
    parts = unpack(given_bytes, name)
    assert parts.dtype == numpy_dtype(name)
    assert parts.shape == (rows, octets * dtype_of(name).per_byte)
    assert np.array_equal(pack(parts, name), given_bytes)


def test_the_first_element_lies_in_the_low_bits() -> None:
    assert pack(np.array([[1, -2, 7, -8]], np.int8), "i4").tolist() == [[0xE1, 0x87]]
    assert pack(np.array([0, 1, -2, -1], np.int8), "i2").tolist() == [0b11100100]
    assert to_float(unpack(np.array([0x9F], np.uint8), "e2m1"), "e2m1").tolist() == [-6, -0.5]
