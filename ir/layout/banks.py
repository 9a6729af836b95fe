"""What one warp-wide memory instruction costs: shared-memory bank conflicts, global sectors.

Owns counting, by rank for linear accesses and by looking for any other. Chooses no layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.layout import f2
from ir.layout.errors import LayoutError
from ir.layout.linear import Linear

BANKS = 32
WORD = 4
LINE = BANKS * WORD  # bytes that all banks deliver together; also a cache line of global memory
SECTOR = 32
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

    @property
    def wavefronts(self) -> int:
        """Passes through the banks that the whole instruction takes."""
        return sum(self.phases)


@dataclass(frozen=True, slots=True)
class Coalescing:
    """Global memory touched by one warp-wide access; `bytes` are the distinct bytes asked for."""

    sectors: int
    lines: int
    bytes: int

    @property
    def efficiency(self) -> float:
        """Asked-for share of the bytes that move."""
        return self.bytes / (self.sectors * SECTOR) if self.sectors else 1.0


@dataclass(frozen=True, slots=True)
class Access:
    """One warp-wide access to a tile, before the tile has a memory layout.

    `lanes`: the tile-index vector of each lane bit (of each row-address bit for ldmatrix and
    stmatrix); `vector`: those of the bits within one lane's access, in address order, so a lane
    moves 2^len(vector) elements. `weight`: how often it is executed.
    """

    lanes: tuple[int, ...]
    vector: tuple[int, ...] = ()
    weight: int = 1
    name: str = ""

    @classmethod
    def of(
        cls,
        layout: Linear,
        elements: int,
        *,
        lane: str = "lane",
        register: str = "register",
        weight: int = 1,
        name: str = "",
    ) -> Access:
        """The access of `elements` consecutive values of a register layout location -> tile index.

        LayoutError "access-width" unless `elements` is a power of two that the registers hold.
        """
        bits = elements.bit_length() - 1
        registers = layout.bases(register)
        if elements < 1 or elements != 1 << bits or bits > len(registers):
            raise LayoutError(
                "access-width", f"{elements} elements a lane of {1 << len(registers)} values"
            )
        return cls(layout.bases(lane)[:5], registers[:bits], weight, name)

    def width(self, element_bits: int) -> int:
        """Bytes of one lane; LayoutError "access-width" unless 1, 2, 4, 8 or 16 (or half of 1)."""
        bits = element_bits << len(self.vector)
        width = max(bits, 8) // 8
        if element_bits < 1 or element_bits & element_bits - 1 or width not in PHASE_LANES:
            raise LayoutError("access-width", f"{bits} bits a lane, legal are 8, 16, 32, 64, 128")
        return width

    def addresses(self, memory: Linear, element_bits: int) -> f2.Columns:
        """Byte addresses of the lane bits under a layout tile index -> element offset.

        LayoutError "not-contiguous" where the lane's elements do not lie at 0, 1, 2, ... of an
        aligned run.
        """
        offsets = f2.multiply(memory.columns, self.vector)
        for bit, offset in enumerate(offsets):
            if offset != 1 << bit:
                raise LayoutError(
                    "not-contiguous",
                    f"element {1 << bit} of the access lies at offset {offset}, due at {1 << bit}",
                )
        lanes = f2.multiply(memory.columns, self.lanes)
        return tuple(offset * element_bits // 8 for offset in lanes)


def phase_lanes(width: int) -> int:
    """Lanes served together when each moves `width` bytes; LayoutError "access-width"."""
    try:
        return PHASE_LANES[width]
    except KeyError:
        legal = ", ".join(map(str, PHASE_LANES))
        raise LayoutError("access-width", f"{width} bytes a lane, legal are {legal}") from None


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
    ways = 1 << f2.rank(chunks) - f2.rank(chunk & mask for chunk in chunks)
    return Conflicts((ways,) * (1 << max(0, len(lanes) - together)))


def access_conflicts(access: Access, memory: Linear, element_bits: int) -> Conflicts:
    """`conflicts_by_rank` of an access to a tile of the given layout tile index -> element."""
    return conflicts_by_rank(access.addresses(memory, element_bits), access.width(element_bits))


def conflicts(addresses: NDArray[Any], width: int) -> Conflicts:
    """Conflicts of any access, by counting: byte addresses of its lanes, negative for idle ones.

    Lanes that ask for the same word share it. LayoutError as in `conflicts_by_rank`.
    """
    return Conflicts(tuple(int(ways) for ways in phase_ways(addresses[None, :], width)[0]))


def phase_ways(addresses: NDArray[Any], width: int) -> NDArray[np.int64]:
    """`conflicts` of many instructions: addresses [instruction, lane] -> ways [instruction, phase].

    The last phase may have fewer lanes.
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


def coalescing_by_rank(lanes: Sequence[int], width: int) -> Coalescing:
    """Sectors of a linear access from the byte-address bases of its lane bits (base aligned).

    LayoutError "access-width" or "misaligned-access".
    """
    phase_lanes(width)
    _require_alignment(lanes, width)
    return Coalescing(
        1 << f2.rank(address // SECTOR for address in lanes),
        1 << f2.rank(address // LINE for address in lanes),
        width << f2.rank(lanes),
    )


def coalescing(addresses: NDArray[Any], width: int) -> Coalescing:
    """Sectors of any access, by counting: byte addresses of its lanes, negative for idle ones."""
    phase_lanes(width)
    active = np.unique(addresses[addresses >= 0])
    _require_alignment(active, width)
    return Coalescing(
        len(np.unique(active // SECTOR)), len(np.unique(active // LINE)), width * len(active)
    )


def _require_alignment(addresses: Sequence[int] | NDArray[Any], width: int) -> None:
    array = np.asarray(addresses, np.int64)
    astray = array[array % width != 0]
    if astray.size:
        raise LayoutError("misaligned-access", f"byte address {astray[0]}, no multiple of {width}")
