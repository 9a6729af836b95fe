"""Bank conflicts by rank are what counting finds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ir.layout.banks import PHASE_LANES, conflicts_by_rank, phase_ways
from ir.layout.errors import LayoutError


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


def addresses_of(bases: Iterable[int]) -> NDArray[np.int64]:
    """Addresses of all lanes from those of the bits of a lane's number."""
    found = np.zeros(1, np.int64)
    for base in bases:
        found = np.concatenate([found, found ^ base])
    return found


@settings(max_examples=330)
@given(warp_accesses())
def test_rank_formula_equals_counting(access: tuple[tuple[int, ...], int]) -> None:
    bases, width = access
    addresses = addresses_of(bases)
    assert conflicts_by_rank(bases, width).phases == counted(addresses.tolist(), width)
    assert tuple(phase_ways(addresses[None, :], width)[0]) == counted(addresses.tolist(), width)


def test_typed_refusals() -> None:
    with pytest.raises(LayoutError, match="3 bytes a lane") as caught:
        conflicts_by_rank((0,), 3)
    assert caught.value.code == "access-width"
    with pytest.raises(LayoutError, match="byte address 2") as caught:
        phase_ways(np.arange(32)[None, :] * 4 + 2, 4)
    assert caught.value.code == "misaligned-access"
