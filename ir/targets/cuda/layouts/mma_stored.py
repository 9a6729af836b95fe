"""What operand tiles of a kernel on mma.sync take: of one schedule, and of columns of schedules.

The plan and the constraints read the same formulas, so neither admits what the other refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ir.program import Program
from ir.targets.cuda.layouts.mma_operands import StageTile, depth_tiles, raw_tiles
from ir.targets.cuda.plans.sides import side

DIGIT = 10  # powers of two that a tile along one axis may be
LARGEST = 1 << 17  # keys that a table is made for
SORTED = 32  # keys for each row from which on rows are sorted instead


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes of an operand's tile; whether it is copied as it is, and how many bytes at once; bytes
    of the raw tiles, by load, that it may be made of. Numbers, or columns of them.
    """

    bytes: Any
    copied: Any
    piece: Any
    raw: Mapping[int, Any]


def stored(tile: StageTile) -> Stored:
    """What one tile takes."""
    if tile.copied:
        return Stored(tile.bytes, True, tile.piece, {})
    return Stored(tile.bytes, False, 1, {raw.position: raw.bytes for raw in raw_tiles(tile)})


def tile_bytes(operands: Sequence[Stored], stages: Any, staged: Any) -> Any:
    """Bytes of all slots: what is computed of raw tiles has two, and these have the stages'.

    A raw tile that several operands are made of is there once.
    """
    total: Any = 0
    raw: dict[int, Any] = {}
    for one in operands:
        ahead = np.logical_and(staged, np.logical_not(one.copied))
        total = total + one.bytes * np.where(ahead, 2, stages)
        for load, size in one.raw.items():
            raw[load] = np.maximum(raw.get(load, 0), np.where(ahead, size, 0))
    return total + stages * sum(raw.values())


@dataclass(frozen=True)
class StoredTable:
    """`stored` of one operand for each of its tiles, worked out once. `axes` are its side's."""

    program: Program
    walked: tuple[str, ...]
    position: int
    axes: tuple[str, ...]
    known: dict[tuple[int, ...], Stored] = field(default_factory=dict)

    def one(self, tiles: tuple[int, ...]) -> Stored:
        """Of a tile of so many points along each axis and, last, along the sum."""
        if tiles not in self.known:
            points = dict(zip(self.axes, tiles, strict=False))
            points |= depth_tiles(self.program.axes, self.walked, tiles[-1])
            free, depth = side(self.axes, points), side(self.walked, points)
            self.known[tiles] = stored(StageTile(self.program, self.position, free, depth))
        return self.known[tiles]

    def columns(self, tiles: Sequence[Any]) -> Stored:
        """The same of columns of tiles, which are powers of two below 1024."""
        keys: Any = 0
        for points in tiles:
            keys = keys * DIGIT + np.log2(points).astype(np.int64)
        several = DIGIT ** len(tiles) <= LARGEST
        rows, where = (np.arange(len(keys)), None) if not several else _firsts(keys, len(tiles))
        found = [self.one(tuple(int(points[row]) for points in tiles)) for row in rows]

        def column(values: Sequence[Any], kind: type[np.generic] = np.int64) -> Any:
            known = np.array(values, dtype=kind)
            return known if where is None else known[where]

        loads = {load for one in found for load in one.raw}
        return Stored(
            column([one.bytes for one in found]),
            column([one.copied for one in found], np.bool_),
            column([one.piece for one in found]),
            {load: column([one.raw.get(load, 0) for one in found]) for load in sorted(loads)},
        )


def _firsts(keys: Any, digits: int) -> tuple[Any, Any]:
    """A row of each key that there is, and which of these every row has; of many rows without
    sorting."""
    if SORTED * len(keys) < DIGIT**digits:
        _, rows, number = np.unique(keys, return_index=True, return_inverse=True)
        return rows, number.reshape(-1)
    first = np.full(DIGIT**digits, -1, dtype=np.int64)
    first[keys] = np.arange(len(keys))
    present = np.flatnonzero(first >= 0)
    number = np.empty(DIGIT**digits, dtype=np.int64)
    number[present] = np.arange(len(present))
    return first[present], number[keys]
