"""Swizzles: involutions on bit fields, their granularity, and layouts behind them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ir.layout.errors import LayoutError
from ir.layout.layout import Layout
from ir.layout.swizzle import Composed, Swizzle, parse
from tests.layout.random_layouts import attempt


@st.composite
def swizzles(draw: st.DrawFn) -> Swizzle:
    bits, base = draw(st.integers(0, 4)), draw(st.integers(0, 6))
    shift = draw(st.integers(bits, 6)) * draw(st.sampled_from([1, -1]))
    return Swizzle(bits, base, shift)


@given(swizzles(), st.integers(0, 1 << 20))
def test_its_own_inverse(swizzle: Swizzle, offset: int) -> None:
    assert swizzle(swizzle(offset)) == offset
    assert parse(f"{swizzle} o 0 o 4:1") == Composed(swizzle, 0, Layout(4, 1))


@given(swizzles())
def test_arrays_and_numbers_agree(swizzle: Swizzle) -> None:
    offsets = np.arange(4096)
    moved = swizzle(offsets)
    assert moved.tolist() == [swizzle(int(o)) for o in offsets]
    whole = 1 << max(swizzle.base + swizzle.bits + abs(swizzle.shift), 12)
    assert sorted(swizzle(np.arange(min(whole, 1 << 17))).tolist()) == list(
        range(min(whole, 1 << 17))
    )


@pytest.mark.parametrize(
    ("offset", "moved"), [(0, 0), (16, 16), (128, 144), (144, 128), (256, 288), (1008, 896)]
)
def test_documented_values(offset: int, moved: int) -> None:
    assert Swizzle(3, 4, 3)(offset) == moved


def test_128_bytes_permute_chunks_by_row() -> None:
    """16-byte chunk c of row r goes to chunk c XOR (r mod 8)."""
    swizzle = Swizzle(3, 3, 3)
    for row, chunk in np.ndindex(16, 8):
        assert swizzle(row * 64 + chunk * 8) == row * 64 + (chunk ^ (row % 8)) * 8


@given(swizzles(), st.sampled_from([4, 8, 16, 32]), st.sampled_from([4, 8, 16, 32]))
def test_recast_counts_other_elements(swizzle: Swizzle, old: int, new: int) -> None:
    other = attempt(swizzle.recast, old, new)
    if isinstance(other, LayoutError):
        assert other.code == "swizzle-range"
        assert swizzle.base + old.bit_length() - new.bit_length() < 0
        return
    wide, narrow = max(old, new), min(old, new)
    step = wide // narrow
    for element in range(0, 4096, 7):
        a, b = (element, element * step) if old == wide else (element * step, element)
        assert swizzle(a) * old == other(b) * new


def test_documented_recasts() -> None:
    assert Swizzle(3, 4, 3).recast(8, 16) == Swizzle(3, 3, 3)
    assert Swizzle(3, 4, 3).recast(8, 32) == Swizzle(3, 2, 3)
    with pytest.raises(LayoutError, match="no powers of two"):
        Swizzle(3, 4, 3).recast(8, 24)


@given(swizzles(), st.integers(0, 64))
def test_composed(swizzle: Swizzle, offset: int) -> None:
    layout = Composed(swizzle, offset, Layout((8, 64), (64, 1)))
    assert parse(str(layout)) == layout
    assert layout.offsets().tolist() == [layout(i) for i in range(layout.size)]
    assert layout((3, 5)) == swizzle(offset + 3 * 64 + 5)


@given(st.integers(1, 4), st.integers(0, 3), st.integers(0, 3))
def test_overlapping_fields_are_refused(bits: int, base: int, shift: int) -> None:
    assume(shift < bits)
    with pytest.raises(LayoutError, match=f"a shift of {shift} is below {bits} bits"):
        Swizzle(bits, base, shift)
