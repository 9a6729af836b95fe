"""Shared-memory banks and global sectors counted access by access, by brute force.

32 banks of 4 bytes; a 16-byte access runs in 4 phases of 8 lanes, an 8-byte one in 2 of 16,
narrower ones in 1 of 32; lanes that ask for one and the same word share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from tests.layout.checker.tables import Table, swizzled

BANKS, WORD, SECTOR = 32, 4, 32


def lanes_per_phase(width: int) -> int:
    """Lanes served together when each asks for `width` bytes."""
    return 32 if width <= WORD else 128 // width


def rounds(addresses: Table, width: int) -> int:
    """Rounds one warp's access takes: `addresses` [active lanes] in bytes, `width` bytes a lane."""
    lanes = lanes_per_phase(width)
    return sum(
        phase_rounds(addresses[at : at + lanes], width) for at in range(0, len(addresses), lanes)
    )


def phase_rounds(addresses: Table, width: int) -> int:
    """Rounds of one phase: the largest number of different words asked of one bank."""
    words = np.arange(max(1, width // WORD))
    asked = np.unique((addresses.reshape(-1, 1) // WORD + words).reshape(-1))
    return int(np.bincount(asked % BANKS, minlength=BANKS).max())


def phases(accesses: list[tuple[Table, int]]) -> list[tuple[Table, int]]:
    """All phases of accesses of one width stacked: [phase, lane] byte addresses, and the width.

    A phase that lacks lanes repeats its last address, which asks for nothing more.
    """
    stacked: dict[int, list[Table]] = {}
    for addresses, width in accesses:
        lanes = lanes_per_phase(width)
        missing = -len(addresses) % lanes
        full = np.concatenate([addresses, np.repeat(addresses[-1:], missing)])
        stacked.setdefault(width, []).append(full.reshape(-1, lanes))
    return [(np.concatenate(tables), width) for width, tables in stacked.items()]


def total_rounds(accesses: list[tuple[Table, int]]) -> int:
    """Rounds over all phases: the measure that a swizzle is to make smallest."""
    return int(sum(_phase_table(table, width).sum() for table, width in phases(accesses)))


def _phase_table(table: Table, width: int) -> Table:
    """Rounds of every phase at once: addresses [phase, lane] -> [phase]."""
    words = np.arange(max(1, width // WORD))
    asked = np.sort((table[:, :, None] // WORD + words).reshape(len(table), -1), axis=1)
    first = np.ones(asked.shape, bool)
    first[:, 1:] = asked[:, 1:] != asked[:, :-1]
    cell = np.nonzero(first)[0] * BANKS + asked[first] % BANKS
    counts = np.bincount(cell, minlength=len(table) * BANKS).reshape(-1, BANKS)
    most: Table = counts.max(axis=1)
    return most


def every_swizzle(lowest: int, span: int) -> list[tuple[int, int, int]]:
    """Byte swizzles (bits <= 4, base >= lowest, shift >= bits) of address bits below `span`."""
    found = [(0, lowest, 0)]
    for bits, base in product(range(1, 5), range(lowest, span)):
        found += [(bits, base, shift) for shift in range(bits, span - base - bits + 1)]
    return found


MODES = ((0, 4, 3), (1, 4, 3), (2, 4, 3), (3, 4, 3))


def fewest_rounds(
    accesses: list[tuple[Table, int]], candidates: Sequence[tuple[int, int, int]]
) -> tuple[int, tuple[int, int, int]]:
    """The best of `candidates` for unswizzled byte addresses, by trying each one."""
    stacked = phases(accesses)
    floor = sum(len(table) for table, _ in stacked)
    best, chosen = None, candidates[0]
    for swizzle in candidates:
        moved = [(swizzled(table, *swizzle), width) for table, width in stacked]
        taken = int(sum(_phase_table(table, width).sum() for table, width in moved))
        if best is None or taken < best:
            best, chosen = taken, swizzle
        if best <= floor:
            break
    assert best is not None
    return best, chosen


def sectors(addresses: Table, width: int) -> int:
    """32-byte sectors of global memory touched by one warp's access."""
    first, last = addresses // SECTOR, (addresses + width - 1) // SECTOR
    return len(np.unique(np.concatenate([first.reshape(-1), last.reshape(-1)])))
