"""Where a tile's digits lie in memory: orders of digits, swizzles, and what an access costs there.

Owns placements of shared and global tiles and the counting of banks and sectors over digits. Knows
no instruction and no op.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from ir.layout.banks import conflicts_by_rank, phase_lanes, phase_ways
from ir.layout.swizzle import Swizzle
from ir.layout.synthesis.digits import Space, text
from ir.layout.synthesis.problem import Tile

LINE, SECTOR = 128, 32
SHARED_ALIGNMENT = 128
NO_SWIZZLE = Swizzle(0, 4, 3)


@dataclass(frozen=True, slots=True)
class Placement:
    """A shared or global tile's layout. `order`: digits by rising offset; `offsets`: their strides
    in elements, aligned with it; `run`: how many of the first digits are binary and lie side by
    side; `swizzle` acts on BYTE addresses; `line`: bytes of a row of the swizzle atom the order was
    made for, 0 for none."""

    order: tuple[int, ...]
    offsets: tuple[int, ...]
    run: int
    swizzle: Swizzle = NO_SWIZZLE
    line: int = 0

    @property
    def strides(self) -> dict[int, int]:
        return dict(zip(self.order, self.offsets, strict=True))

    def leads(self, digits: Sequence[int]) -> bool:
        """Whether these digits are the lowest, in this order, of a contiguous run."""
        count = len(digits)
        return count <= self.run and self.order[:count] == tuple(digits)

    @property
    def alignment(self) -> int:
        """Bytes to which the tile must be aligned: TMA's least, and whole patterns of the
        swizzle."""
        return max(SHARED_ALIGNMENT, self.swizzle.pattern)

    def aligned(self, count: int, bits: int) -> bool:
        """Whether a run of 2^count elements of `bits` bits always starts at a multiple of its own
        length, and the swizzle leaves it whole."""
        whole = self.swizzle.plain or bits << count <= 8 << self.swizzle.base
        return whole and not any(offset % (1 << count) for offset in self.offsets[count:])


def compact(space: Space, order: Sequence[int], line: int = 0) -> Placement:
    """Digits one after the other without gaps."""
    offsets, stride = [], 1
    for digit in order:
        offsets.append(stride)
        stride *= space.radix[digit]
    return placed(space, order, offsets, line=line)


def placed(
    space: Space,
    order: Sequence[int],
    offsets: Sequence[int],
    swizzle: Swizzle = NO_SWIZZLE,
    line: int = 0,
) -> Placement:
    """A placement of digits with given offsets, the contiguous run counted."""
    run = 0
    for digit, offset in zip(order, offsets, strict=True):
        if offset != 1 << run or space.radix[digit] != 2:
            break
        run += 1
    return Placement(tuple(order), tuple(offsets), run, swizzle, line)


def placed_text(space: Space, placement: Placement, tile: Tile) -> str:
    """The layout tile index -> offset in elements, as text."""
    strides = placement.strides
    modes = [space.modes(space.of[name], strides) or [(1, 0)] for name in tile.names]
    plain, swizzle = text(*modes), placement.swizzle
    return plain if swizzle.plain else f"{swizzle.recast(8, tile.bits)} o 0 o {plain}"


def global_placement(space: Space, tile: Tile) -> Placement:
    """The given layout of a global tile by digits; repeated digits have offset 0 and come last."""
    strides: dict[int, int] = {}
    for (name, _), stride in zip(tile.axes, tile.strides, strict=True):
        strides.update((digit, stride * space.step[digit]) for digit in space.of[name])
    order = sorted(strides, key=lambda digit: (strides[digit] == 0, strides[digit], digit))
    return placed(space, order, [strides[digit] for digit in order])


def orders(
    space: Space, tile: Tile, contiguous: str, along: Mapping[str, tuple[int, ...]], line: int
) -> Placement | None:
    """[digits of axis `contiguous` up to `line` bytes][other axes][the rest of `contiguous`]; line
    0 takes the whole axis. None where `line` does not cut the axis at a digit."""
    inner, rest, width = list[int](), list[int](), tile.bits
    for digit in along[contiguous]:
        binary = space.radix[digit] == 2
        if (not line or width < line * 8) and not rest and (binary or not line):
            inner.append(digit)
            width *= space.radix[digit]
        else:
            rest.append(digit)
    if line and width != line * 8:
        return None
    others = [digit for name in tile.names if name != contiguous for digit in along[name]]
    return compact(space, (*inner, *others, *rest), line)


def stage_bytes(space: Space, tile: Tile, place: Placement) -> int:
    """Bytes of one stage: all that the swizzle can reach, whole patterns if another stage
    follows."""
    swizzle = place.swizzle
    pairs = zip(place.order, place.offsets, strict=True)
    last = sum((space.radix[digit] - 1) * offset for digit, offset in pairs)
    touched = 1 if swizzle.plain else 1 << swizzle.base + swizzle.bits
    unit = place.alignment if tile.stages > 1 else touched
    return -(-(last + 1) * tile.bits // (8 * unit)) * unit


def shared_bytes(space: Space, tile: Tile, place: Placement) -> int:
    """Bytes of all stages."""
    return stage_bytes(space, tile, place) * tile.stages


@lru_cache(maxsize=65536)
def rank_ways(lanes: tuple[int, ...], width: int, swizzle: Swizzle) -> int:
    """Conflict ways of a phase from the byte offsets of its lane bits, after the swizzle."""
    return conflicts_by_rank([swizzle(lane) for lane in lanes], width).ways


def phase_digits(width: int) -> int:
    """Lane digits whose threads are served together when each moves `width` bytes."""
    return phase_lanes(width).bit_length() - 1


@dataclass(frozen=True, slots=True)
class Phase:
    """An access of a warp to shared memory: byte offsets of its lane digits (those of one phase),
    the other digits as (radix, byte offset), bytes of one lane, and how often it is done. `linear`:
    sums of the offsets never carry, so every other phase is a translate of the first."""

    lanes: tuple[int, ...]
    others: tuple[tuple[int, int], ...]
    width: int
    times: int
    linear: bool

    def ways(self, swizzle: Swizzle) -> int:
        """The worst phase."""
        if self.linear:
            return rank_ways(self.lanes, self.width, swizzle)
        return max(ways for ways, _ in self._each(swizzle))

    def rounds(self, swizzle: Swizzle) -> float:
        """Mean over the phases: what the whole access costs over the least."""
        if self.linear:
            return rank_ways(self.lanes, self.width, swizzle)
        each = self._each(swizzle)
        return sum(ways * count for ways, count in each) / sum(count for _, count in each)

    def _each(self, swizzle: Swizzle) -> tuple[tuple[int, int], ...]:
        return _all_ways(self.lanes, self.others, self.width, swizzle)


@lru_cache(maxsize=16384)
def _all_ways(
    lanes: tuple[int, ...],
    others: tuple[tuple[int, int], ...],
    width: int,
    swizzle: Swizzle,
) -> tuple[tuple[int, int], ...]:
    """(ways, how many phases have so many). Where a phase starts matters only up to the highest bit
    that the swizzle reads."""
    repeat = max(LINE, swizzle.pattern)
    inside = np.array([sum(picks) for picks in product(*((0, lane) for lane in lanes))])
    starts = _starts(others, repeat)
    addresses = np.array(list(starts), np.int64)[:, None] + inside
    found: Counter[int] = Counter()
    for ways, count in zip(
        phase_ways(swizzle(addresses), width)[:, 0], starts.values(), strict=True
    ):
        found[int(ways)] += count
    return tuple(sorted(found.items()))


@lru_cache(maxsize=4096)
def _starts(others: tuple[tuple[int, int], ...], repeat: int) -> Counter[int]:
    """How many phases start at each address, up to multiples of `repeat`."""
    starts = Counter({0: 1})
    for radix, step in others:
        grown: Counter[int] = Counter()
        for start, count in starts.items():
            for at in range(radix):
                grown[(start + at * step) % repeat] += count
        starts = grown
    return starts


def total(phases: Sequence[Phase], swizzle: Swizzle) -> float:
    """Rounds of all accesses together, each as often as it is done."""
    return sum(phase.rounds(swizzle) * phase.times for phase in phases)


def best_swizzle(
    phases: Sequence[Phase], allowed: Sequence[Swizzle] | None
) -> tuple[Swizzle, float]:
    """The swizzle with the fewest rounds, none if no other has fewer. `allowed`: those that the
    machine has, None for any XOR that keeps the widest access whole.

    Any other than none is only worth while if a phase reaches more lines than banks hold: then the
    bits that tell its lines apart (its lane offsets from 128 up) are those that must be XORed into
    the bank bits, so base and shift are read off the lanes instead of tried.
    """
    floor = sum(phase.times for phase in phases)
    best, least = NO_SWIZZLE, total(phases, NO_SWIZZLE)
    for swizzle in allowed if allowed is not None else _constructed(phases):
        if least <= floor:
            break
        rounds = total(phases, swizzle)
        if rounds < least:
            best, least = swizzle, rounds
    return best, least


def _constructed(phases: Sequence[Phase]) -> Iterator[Swizzle]:
    """Swizzles that move a run of line bits of some phase onto its free bank bits."""
    seen: set[Swizzle] = set()
    widest = max((phase.width for phase in phases), default=4)
    lowest = max(2, widest.bit_length() - 1)
    reached = {lane.bit_length() - 1 for phase in phases for lane in phase.lanes if lane >= LINE}
    for phase in phases:
        if not phase.linear:
            reach = sum(phase.lanes) + sum((radix - 1) * step for radix, step in phase.others)
            reached.update(range(LINE.bit_length() - 1, reach.bit_length()))
    sources = sorted(reached)
    if not sources:
        return
    for bits in (1, 2, 3, 4):
        for base in range(lowest, 7):
            for source in (*sources, *(s - bits + 1 for s in sources)):
                shift = source - base
                if shift < bits or base + bits > 7:
                    continue
                swizzle = Swizzle(bits, base, shift)
                if swizzle not in seen:
                    seen.add(swizzle)
                    yield swizzle
