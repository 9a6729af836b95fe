"""Bank conflicts and sectors by rank equal what counting finds; chosen swizzles are the best."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir.layout.banks import (
    PHASE_LANES,
    Access,
    access_conflicts,
    coalescing,
    coalescing_by_rank,
    conflicts,
    conflicts_by_rank,
)
from ir.layout.errors import LayoutError
from ir.layout.linear import Linear
from ir.layout.swizzle import Swizzle
from ir.layout.swizzle_choice import choose_swizzle


def counted(addresses: Iterable[int], width: int) -> tuple[int, ...]:
    """Brute force: for each phase the most distinct 4-byte words in one of 32 banks."""
    lanes = list(addresses)
    together = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[width]
    found = []
    for start in range(0, len(lanes), together):
        words = defaultdict(set)
        for address in lanes[start : start + together]:
            for word in range(address // 4, (address + max(width, 1) - 1) // 4 + 1):
                words[word % 32].add(word)
        found.append(max(len(w) for w in words.values()))
    return tuple(found)


@st.composite
def warp_accesses(draw: st.DrawFn) -> tuple[tuple[int, ...], int]:
    """Byte addresses of five lane bits, aligned to the width."""
    width = draw(st.sampled_from(sorted(PHASE_LANES)))
    bases = draw(st.lists(st.integers(0, 4095), min_size=5, max_size=5))
    return tuple(base // width * width for base in bases), width


@settings(max_examples=600)
@given(warp_accesses())
def test_rank_formula_equals_counting(access: tuple[tuple[int, ...], int]) -> None:
    bases, width = access
    addresses = Linear((("lane", bases),), (("byte", 12),)).offsets()
    assert conflicts_by_rank(bases, width).phases == counted(addresses.tolist(), width)
    assert conflicts(addresses, width).phases == counted(addresses.tolist(), width)


@settings(max_examples=300)
@given(warp_accesses())
def test_sectors_equal_counting(access: tuple[tuple[int, ...], int]) -> None:
    bases, width = access
    addresses = Linear((("lane", bases),), (("byte", 12),)).offsets()
    touched = {(a + byte) for a in addresses.tolist() for byte in range(width)}
    for found in (coalescing_by_rank(bases, width), coalescing(addresses, width)):
        assert found.sectors == len({byte // 32 for byte in touched})
        assert found.lines == len({byte // 128 for byte in touched})
        assert found.bytes == len(touched)


def row_major(rows: int, columns: int) -> Linear:
    """Tile index (rows fastest) -> element offset of a row-major tile."""
    low, high = rows.bit_length() - 1, columns.bit_length() - 1
    columns_of = [columns << bit for bit in range(low)] + [1 << bit for bit in range(high)]
    return Linear((("index", tuple(columns_of)),), (("offset", low + high),))


def matrix_rows(rows: int) -> Access:
    """Eight rows of 16 bytes (16-bit elements), as ldmatrix reads them."""
    return Access(lanes=(1, 2, 4, 0, 0), vector=tuple(rows << bit for bit in range(3)), name="rows")


def written_rows(rows: int, columns: int) -> Access:
    """16-byte stores of consecutive chunks, row after row."""
    chunks = (columns // 8).bit_length() - 1
    lanes = [rows << (3 + bit) for bit in range(chunks)] + [1 << bit for bit in range(5 - chunks)]
    return Access(tuple(lanes[:5]), tuple(rows << bit for bit in range(3)), name="chunks")


@pytest.mark.parametrize("columns", [16, 32, 64])
@pytest.mark.parametrize("family", ["swizzle", "hardware", "general"])
def test_swizzles_of_matrix_tiles_are_free_of_conflicts(columns: int, family: str) -> None:
    rows = 64
    accesses = [matrix_rows(rows), written_rows(rows, columns)]
    memory = row_major(rows, columns)
    choice = choose_swizzle(accesses, memory, 16, family)  # type: ignore[arg-type]
    assert all(found.ways == 1 for found in choice.conflicts)
    assert choice.fewest
    for access, found in zip(accesses, choice.conflicts, strict=True):
        assert access_conflicts(access, choice.memory, 16) == found


def test_128_byte_rows_get_the_128_byte_swizzle() -> None:
    accesses = [matrix_rows(64), written_rows(64, 64)]
    choice = choose_swizzle(accesses, row_major(64, 64), 16, "hardware")
    assert choice.swizzle == Swizzle(3, 3, 3)
    assert access_conflicts(accesses[0], row_major(64, 64), 16).ways == 8


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Access], Linear]:
    """Accesses of single elements to a row-major 16 x 32 tile of 32-bit elements."""
    memory = row_major(16, 32)
    vectors = st.integers(1, 511)
    count = draw(st.integers(1, 3))
    accesses = [Access(tuple(draw(vectors) for _ in range(5))) for _ in range(count)]
    return accesses, memory


@settings(max_examples=40, deadline=None)
@given(problems())
def test_no_swizzle_is_better_than_the_chosen_one(problem: tuple[list[Access], Linear]) -> None:
    """Exhaustively over Swizzle(bits <= 4, base, shift)."""
    accesses, memory = problem
    choice = choose_swizzle(accesses, memory, 32, "swizzle")
    best = choice.wavefronts
    for bits in range(5):
        for base in range(9 - bits):
            for shift in range(bits, 9 - base - bits + 1):
                swizzle = Swizzle(bits, base, shift)
                total = 0
                for access in accesses:
                    lanes = Linear((("lane", access.lanes),), (("i", 9),)).offsets()
                    offsets = swizzle(memory(lanes))
                    total += sum(counted((offsets * 4).tolist(), 4))
                assert best <= total, f"{swizzle} takes {total}, chosen {choice.swizzle} {best}"


def test_typed_refusals() -> None:
    memory = row_major(8, 16)
    with pytest.raises(LayoutError, match="lies at offset 16, due at 1") as caught:
        access_conflicts(Access((2, 4), (1,)), memory, 16)
    assert caught.value.code == "not-contiguous"
    with pytest.raises(LayoutError, match="256 bits a lane") as caught:
        Access((1,), (8, 16, 32, 64)).width(16)
    assert caught.value.code == "access-width"
    with pytest.raises(LayoutError) as caught:
        conflicts(np.arange(32) * 4 + 2, 4)
    assert "2" in str(caught.value)
