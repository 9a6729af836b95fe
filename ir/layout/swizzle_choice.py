"""Chooses the swizzle of a shared tile from the ranks of its accesses.

Owns the three families of choices: a general XOR matrix, one Swizzle(B, M, S), and the four modes
that TMA and wgmma know. Which accesses there are, and what may touch the tile, the caller says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ir.layout import f2, segments
from ir.layout.banks import (
    LINE,
    WORD,
    Access,
    Conflicts,
    access_conflicts,
    conflicts_by_rank,
    phase_lanes,
    phase_ways,
)
from ir.layout.errors import LayoutError
from ir.layout.linear import Linear
from ir.layout.swizzle import Swizzle

Family = Literal["general", "swizzle", "hardware"]
HARDWARE_MODES = (0, 1, 2, 3)
"""B of Swizzle(B, 4, 3) on byte addresses: none, 32, 64 and 128 bytes (PTX ISA, tensor maps)."""


@dataclass(frozen=True, slots=True)
class SwizzleChoice:
    """A memory layout with its swizzle, and what the accesses then cost.

    `memory`: tile index -> element offset, swizzle included. `swizzle`: over element offsets of
    the plain layout; None where `memory` is a general XOR matrix. `fewest`: no layout of the
    family costs fewer wavefronts, proved by counting dimensions or by having seen all.
    """

    memory: Linear
    swizzle: Swizzle | None
    conflicts: tuple[Conflicts, ...]
    wavefronts: int
    fewest: bool


@dataclass(frozen=True, slots=True, eq=False)
class TableAccess:
    """Accesses that are no linear map: element offsets [instruction, lane], -1 for idle lanes.

    `offsets` are those of the plain layout; each lane moves `elements` from there on.
    """

    offsets: NDArray[Any]
    elements: int
    weight: int = 1
    name: str = ""


@dataclass(frozen=True, slots=True)
class TableChoice:
    """`swizzle` over element offsets, and the wavefronts of all accesses under it."""

    swizzle: Swizzle
    wavefronts: int


def choose_swizzle(
    accesses: Sequence[Access],
    memory: Linear,
    element_bits: int,
    family: Family = "swizzle",
    modes: Sequence[int] = HARDWARE_MODES,
) -> SwizzleChoice:
    """The layout of the family under which all `accesses` take the fewest wavefronts.

    `memory` is the plain layout tile index -> element offset; it is kept where nothing is gained,
    and the smallest change is taken among equals. "general" may replace it altogether (it must be
    invertible), "swizzle" puts one XOR swizzle on it, "hardware" one of `modes`.

    LayoutError "not-contiguous" or "misaligned-access" where the plain layout forbids an access,
    "vector-mismatch" where two accesses want different neighbours, "not-invertible",
    "access-width", "swizzle-mode".
    """
    if family == "general":
        return _general(accesses, memory, element_bits)
    reaches = tuple(_Reach.of(access, memory, element_bits) for access in accesses)
    bound = sum(reach.least for reach in reaches)
    if family == "hardware":
        candidates = _hardware(element_bits, modes)
    else:
        candidates = _windows(reaches, element_bits, memory.out_bits)
    best, total = None, 0
    for candidate in candidates:
        wavefronts = sum(reach.wavefronts(candidate) for reach in reaches)
        if best is None or wavefronts < total:
            best, total = candidate, wavefronts
        if total == bound:
            break
    assert best is not None
    return _chosen(accesses, _swizzled(memory, best), best, element_bits, True)


def choose_table_swizzle(
    accesses: Sequence[TableAccess],
    element_bits: int,
    modes: Sequence[int] = HARDWARE_MODES,
) -> TableChoice:
    """The hardware mode with the fewest wavefronts, by counting; for tiles of odd extents.

    LayoutError "access-width", "misaligned-access" or "swizzle-mode".
    """
    choices = (
        TableChoice(swizzle, sum(_counted(access, swizzle, element_bits) for access in accesses))
        for swizzle in _hardware(element_bits, modes)
    )
    return min(choices, key=lambda choice: choice.wavefronts)


def _counted(access: TableAccess, swizzle: Swizzle, element_bits: int) -> int:
    offsets = np.asarray(access.offsets, np.int64)
    width = max(8, element_bits * access.elements) // 8
    swizzled = np.asarray(swizzle(np.maximum(offsets, 0)), np.int64)
    addresses = np.where(offsets < 0, -1, swizzled * element_bits // 8)
    return access.weight * int(phase_ways(addresses, width).sum())


@dataclass(frozen=True, slots=True)
class _Reach:
    """One phase of an access in element offsets of the plain layout, and its rank bound."""

    lanes: f2.Columns
    chunk: int  # log2 of the elements in a bank's share of the access
    bank_mask: int
    rank: int  # of the chunk addresses
    weight: int  # executions times phases
    vector: int  # log2 of the elements of one lane

    @classmethod
    def of(cls, access: Access, memory: Linear, element_bits: int) -> _Reach:
        width = access.width(element_bits)
        phases = len(conflicts_by_rank(access.addresses(memory, element_bits), width).phases)
        lanes = f2.multiply(memory.columns, access.lanes[: _log2(phase_lanes(width))])
        chunk = max(_log2(max(width, WORD) * 8) - _log2(element_bits), 0)
        return cls(
            lanes,
            chunk,
            LINE // max(width, WORD) - 1,
            f2.rank(lane >> chunk for lane in lanes),
            access.weight * phases,
            len(access.vector),
        )

    @property
    def least(self) -> int:
        """Wavefronts that no swizzle goes below."""
        return self.weight << max(0, self.rank - self.bank_mask.bit_length())

    @property
    def plain(self) -> int:
        return self._wavefronts(self.lanes)

    def wavefronts(self, swizzle: Swizzle) -> int:
        return self._wavefronts(tuple(swizzle(lane) for lane in self.lanes))

    def _wavefronts(self, lanes: f2.Columns) -> int:
        banks = f2.rank(lane >> self.chunk & self.bank_mask for lane in lanes)
        return self.weight << self.rank - banks


def _log2(number: int) -> int:
    return number.bit_length() - 1


def _hardware(element_bits: int, modes: Sequence[int]) -> Iterator[Swizzle]:
    if not modes or not set(modes) <= set(HARDWARE_MODES):
        raise LayoutError("swizzle-mode", f"modes {tuple(modes)}, legal are {HARDWARE_MODES}")
    for mode in sorted(modes):
        yield Swizzle(mode, 7 - _log2(element_bits), 3)


def _windows(reaches: Sequence[_Reach], element_bits: int, bits: int) -> Iterator[Swizzle]:
    """Every Swizzle that can matter, those with just enough bits first.

    The source bits select a line and are used by a phase with conflicts; the target bits are bank
    bits above every access's own run. A window that reaches out of these ranges changes no rank
    by the part outside, so the part inside stands for it.
    """
    line = _log2(LINE * 8) - _log2(element_bits)
    lowest = max([_log2(WORD * 8) - _log2(element_bits), 0, *(reach.vector for reach in reaches)])
    yield Swizzle(0, lowest, 1)
    short = [reach for reach in reaches if reach.plain > reach.least]
    if not short:
        return
    used = 0
    for reach in short:
        for lane in reach.lanes:
            used |= lane
    due = max(_log2(reach.plain // reach.least) for reach in short)
    widths = range(1, min(line - lowest, bits - line) + 1)
    for width in sorted(widths, key=lambda width: (width < due, width)):
        for base in range(lowest, line - width + 1):
            for source in range(line, bits - width + 1):
                if used >> source & (1 << width) - 1:
                    yield Swizzle(width, base, source - base)


def _swizzled(memory: Linear, swizzle: Swizzle) -> Linear:
    columns = [swizzle(column) for column in memory.columns]
    return Linear.from_columns(columns, memory.dimensions, memory.outputs)


def _chosen(
    accesses: Sequence[Access],
    memory: Linear,
    swizzle: Swizzle | None,
    element_bits: int,
    fewest: bool,
) -> SwizzleChoice:
    found = tuple(access_conflicts(access, memory, element_bits) for access in accesses)
    wavefronts = sum(
        access.weight * conflict.wavefronts
        for access, conflict in zip(accesses, found, strict=True)
    )
    return SwizzleChoice(memory, swizzle, found, wavefronts, fewest)


def _general(accesses: Sequence[Access], memory: Linear, element_bits: int) -> SwizzleChoice:
    """Offsets made of the vector, the banks and the segments, in that order (arXiv 2505.23819).

    Everything is expressed in offsets of the plain layout, whose low bits are preferred as banks.
    """
    memory.inverse()
    bits = memory.out_bits
    vector = _common_vector(accesses, memory, element_bits)
    word = max(_log2(WORD * 8) - _log2(element_bits), 0)
    demands, phases = [], []
    for access in accesses:
        width = access.width(element_bits)
        together = _log2(phase_lanes(width))
        phases.append(f2.multiply(memory.columns, access.lanes[:together]))
        repeats = 1 << max(0, len(access.lanes) - together)
        demands.append((max(word, len(access.vector)), access.weight * repeats))
    vector = _filled_word(vector, phases, min(word, bits), bits)
    spans = [
        segments.Demand(f2.independent(vector[:own] + lanes), weight)
        for (own, weight), lanes in zip(demands, phases, strict=True)
    ]
    size = max(0, bits - (_log2(LINE * 8) - _log2(element_bits)))
    found = segments.choose_segments(spans, vector, bits, size)
    banks = f2.complement(vector + found.basis, bits)
    matrix = f2.inverse(vector + banks + found.basis)
    assert matrix is not None
    columns = f2.multiply(matrix, memory.columns)
    changed = Linear.from_columns(columns, memory.dimensions, memory.outputs)
    return _chosen(accesses, changed, None, element_bits, found.fewest)


def _common_vector(accesses: Sequence[Access], memory: Linear, element_bits: int) -> f2.Columns:
    """The widest access's run, in plain offsets; every other access's run must begin it."""
    widest = max((access.vector for access in accesses), key=len, default=())
    for access in accesses:
        if access.vector != widest[: len(access.vector)]:
            raise LayoutError(
                "vector-mismatch",
                f"runs along {access.vector} and {widest} (tile index) start differently",
            )
    vector = f2.multiply(memory.columns, widest)
    if f2.rank(vector) < len(vector):
        raise LayoutError(
            "vector-mismatch", f"a run of {1 << len(vector)} elements repeats tile elements"
        )
    return vector


def _filled_word(
    vector: f2.Columns, phases: Sequence[f2.Columns], word: int, bits: int
) -> f2.Columns:
    """The run lengthened to `word` bits by what most phases reach, so that lanes share words."""
    while len(vector) < word:
        spans = [f2.Span(vector + lanes) for lanes in phases]
        units = tuple(1 << bit for bit in range(bits))
        lanes = tuple(lane for phase in phases for lane in phase)
        legal = [new for new in units + lanes if f2.independent((new,), vector)]
        vector += (max(legal, key=lambda new: sum(new in span for span in spans)),)
    return vector
