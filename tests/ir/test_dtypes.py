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
    numpy_dtype,
    promote,
    rounded,
    to_float,
)
from ir.errors import ProgramError

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
@settings(max_examples=300, deadline=None)
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
