"""What one warp-wide access to shared memory costs: its bank conflicts.

Owns counting, by rank for linear accesses and by looking for any other. Chooses no layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.layout.errors import LayoutError

BANKS = 32
WORD = 4
LINE = BANKS * WORD  # bytes that all banks deliver together; also a cache line of global memory
PHASE_LANES = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}
"""Bytes of one lane -> lanes that are served together (CUDA programming guide, shared memory).

An `ldmatrix` or `stmatrix` reads or writes rows of 16 bytes, so 8 row addresses are one phase.
"""


@dataclass(frozen=True, slots=True)
class Conflicts:
    """`phases`: for each phase the most distinct words that one bank has to deliver."""

    phases: tuple[int, ...]

    @property
    def ways(self) -> int:
        """The worst phase; 1 is free of conflicts."""
        return max(self.phases, default=0)


def phase_lanes(width: int) -> int:
    """Lanes served together when each moves `width` bytes; LayoutError "access-width"."""
    if width not in PHASE_LANES:
        legal = ", ".join(map(str, PHASE_LANES))
        raise LayoutError("access-width", f"{width} bytes a lane, legal are {legal}")
    return PHASE_LANES[width]


def conflicts_by_rank(lanes: Sequence[int], width: int) -> Conflicts:
    """Conflicts of a linear access from the byte-address bases of its lane bits.

    A phase is the span of the low lane bits. It reaches 2^rank(chunk address) different chunks in
    2^rank(bank bits) different banks, and linear maps spread evenly; another phase is a translate.
    LayoutError "access-width", or "misaligned-access" for an address that is no multiple of it.
    """
    together = phase_lanes(width).bit_length() - 1
    _require_alignment(lanes, width)
    chunk = max(width, WORD)
    chunks = [address // chunk for address in lanes[:together]]
    mask = LINE // chunk - 1
    ways = 1 << rank(chunks) - rank(chunk & mask for chunk in chunks)
    return Conflicts((ways,) * (1 << max(0, len(lanes) - together)))


def phase_ways(addresses: NDArray[Any], width: int) -> NDArray[np.int64]:
    """Conflicts of any accesses, by counting: addresses [instruction, lane] -> ways [.., phase].

    Addresses are in bytes, negative for idle lanes; lanes that ask for the same word share it, and
    the last phase may have fewer lanes. LayoutError as in `conflicts_by_rank`.
    """
    together = phase_lanes(width)
    count, lanes = addresses.shape
    idle = addresses < 0
    _require_alignment(addresses[~idle], width)
    chunk = max(width, WORD)
    phases = -(-lanes // together)
    padded = np.full((count, phases * together), -1, np.int64)
    padded[:, :lanes] = np.where(idle, -1, addresses // chunk)
    ordered = np.sort(padded.reshape(count * phases, together), axis=1)
    first = ordered >= 0
    first[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    groups = LINE // chunk
    row, _ = np.nonzero(first)
    bank = row * groups + ordered[first] % groups
    load = np.bincount(bank, minlength=count * phases * groups)
    ways: NDArray[np.int64] = load.reshape(count, phases, groups).max(axis=2)
    return ways


def rank(vectors: Iterable[int]) -> int:
    """Dimension over F2 of the span of `vectors`, each a mask of bits."""
    pivots: dict[int, int] = {}
    for vector in vectors:
        while vector:
            top = vector.bit_length()
            pivot = pivots.get(top)
            if pivot is None:
                pivots[top] = vector
                break
            vector ^= pivot
    return len(pivots)


def _require_alignment(addresses: Sequence[int] | NDArray[Any], width: int) -> None:
    array = np.asarray(addresses, np.int64)
    astray = array[array % width != 0]
    if astray.size:
        raise LayoutError("misaligned-access", f"byte address {astray[0]}, no multiple of {width}")
