"""Decisions on steps of a loop that are computed several at a time, over tiles with a margin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.columns import Columns
from ir.plain.pieces import Overlap
from ir.plain.windows import Windows
from ir.schedule import Value
from ir.space import Constraint

OVERLAP, TILE, ROWS, COLUMNS = "overlap", "tile", "rows", "columns"
_STEPS = (2, 4, 8, 16)
_WRITTEN = 640  # operations of an iteration, all of which are written out
_WORTH = 2  # times as many points as are right at last, at most


@dataclass(frozen=True, slots=True)
class Offer:
    """What a target offers: points of a tile where it has one axis (`alone`), of the last axis of
    several, of others by how many axes there are (0: any number); rows and columns of an iteration;
    bytes that a tile may take, and by which of these numbers of tiles those are shared in seeds."""

    alone: tuple[int, ...]
    last: tuple[int, ...]
    others: Mapping[int, tuple[int, ...]]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    room: int
    shares: tuple[int, ...]


class OverlapCuts:
    """Steps at a time, points of a tile along each axis, and rows of an iteration."""

    def __init__(self, windows: Windows, offer: Offer, name: Callable[[str], str]) -> None:
        self.windows, self.offer, self.name = windows, offer, name
        self.domains: dict[str, tuple[Value, ...]] = {}
        tiles = [self._sizes(n) for n in range(len(windows.axes))]
        steps = tuple(
            count for count in _STEPS
            if count <= windows.steps and any(self.fits(tile, count) for tile in product(*tiles))
        )  # fmt: skip
        if not steps:
            return
        self.domains[OVERLAP] = (1, *steps)
        for axis, sizes in zip(windows.axes, tiles, strict=True):
            self.domains[self._tile(axis)] = sizes
        for stem, counts in ((ROWS, offer.rows), (COLUMNS, offer.columns)):
            fits = tuple(n for n in counts if n == 1 or n * windows.work <= _WRITTEN)
            if len(fits) > 1 and (stem == COLUMNS or len(windows.axes) > 1):
                self.domains[stem] = fits

    @staticmethod
    def _tile(axis: str) -> str:
        return f"{TILE}.{axis}"

    def _sizes(self, number: int) -> tuple[int, ...]:
        """Points of a tile along an axis: no more than twice as many as there are."""
        count, extent = len(self.windows.axes), self.windows.extents[number]
        last = number == count - 1
        others = self.offer.others.get(count, self.offer.others[0])
        sizes = self.offer.alone if count == 1 else self.offer.last if last else others
        low, high = self.windows.margins[number]
        fits = tuple(size for size in sizes if size < 2 * (extent + low + high))
        return fits or sizes[:1]

    def fits(self, tile: tuple[int, ...], steps: int) -> bool:
        """Whether enough of a tile is right at last, and there is room for it."""
        own = self.windows.own(tile, steps)
        worth = min(own) > 0 and prod(tile) <= _WORTH * prod(own)
        return worth and self.windows.room(tile) <= self.offer.room

    def _is_short(self, rows: int, columns: int) -> bool:
        """Whether what is written out of an iteration is no longer than compilers take well."""
        return rows * columns == 1 or rows * columns * self.windows.work <= _WRITTEN

    def whys(self) -> dict[str, str]:
        """What each decision is about."""
        found = {
            OVERLAP: "steps of the loop at a time, by tiles with a margin; 1: each by itself",
            ROWS: "rows of a tile that are computed before one is written",
            COLUMNS: "neighbours of a row that are computed before one is written",
        }
        tiles = {self._tile(axis): f"points of a tile along {axis} that each step computes"
                 for axis in self.windows.axes}  # fmt: skip
        return found | tiles

    def overlap(self, values: Mapping[str, Value]) -> Overlap | None:
        """What a schedule says."""
        steps = int(values.get(self.name(OVERLAP), 1))
        if steps == 1 or not self.domains:
            return None
        tile = tuple(int(values[self.name(self._tile(axis))]) for axis in self.windows.axes)
        rows, columns = (int(values.get(self.name(stem), 1)) for stem in (ROWS, COLUMNS))
        return Overlap(steps, tile, rows, columns)

    def all(self) -> Iterator[dict[str, Value]]:
        """Ways that are worth being looked at: of as many steps at a time the tiles of which most
        is right at last, for as many blocks of a processor."""
        if not self.domains:
            yield {}
            return
        first = {self.name(stem): domain[0] for stem, domain in self.domains.items()}
        yield first
        names = [self._tile(axis) for axis in self.windows.axes]
        for steps in self.domains[OVERLAP][1:]:
            chosen = dict.fromkeys(
                tile for blocks in self.offer.shares if (tile := self._best(int(steps), blocks))
            )
            rows, columns = self.domains.get(ROWS, (1,))[-1:], self.domains.get(COLUMNS, (1,))[:2]
            for tile, *several in product(chosen, rows, columns):
                if not self._is_short(*map(int, several)):
                    continue
                said = dict(zip(names, tile, strict=True)) | {OVERLAP: steps}
                said |= dict(zip((ROWS, COLUMNS), several, strict=True))
                yield {self.name(s): value for s, value in said.items() if s in self.domains}

    def _best(self, steps: int, blocks: int) -> tuple[int, ...] | None:
        """The tile of which most is right, where so many have room; of those the longest."""
        domains = (self.domains[self._tile(axis)] for axis in self.windows.axes)
        tiles = [tuple(map(int, tile)) for tile in product(*domains)]
        fits = [
            tile for tile in tiles
            if self.fits(tile, steps) and blocks * self.windows.room(tile) <= self.offer.room
        ]  # fmt: skip
        share = {tile: prod(self.windows.own(tile, steps)) / prod(tile) for tile in fits}
        return max(fits, key=lambda tile: (share[tile], tile[-1]), default=None)

    def constraints(self, others: Mapping[str, Value]) -> list[Constraint]:
        """`others`: decisions that are about loops step by step, with what they say elsewhere."""
        if not self.domains:
            return []
        found = [self._has_room(), self._alone(others)]
        both = {ROWS, COLUMNS} <= self.domains.keys()
        return [*found, self._short()] if both else found

    def _short(self) -> Constraint:
        rows, columns = self.name(ROWS), self.name(COLUMNS)

        def check(columns_: Columns) -> Any:
            points = columns_[rows] * columns_[columns]
            return (points == 1) | (points * self.windows.work <= _WRITTEN)

        def explain(values: Mapping[str, Value]) -> str:
            points = int(values[rows]) * int(values[columns])
            return f"{points * self.windows.work} operations are written out, {_WRITTEN} at most"

        needs = "what is written out of an iteration is short"
        return Constraint(rows, needs, check, explain, reads=(rows, columns))

    def _has_room(self) -> Constraint:
        overlap = self.name(OVERLAP)
        tiles = [self.name(self._tile(axis)) for axis in self.windows.axes]
        known: dict[tuple[int, ...], bool] = {}

        def legal(steps: int, *tile: int) -> bool:
            if (steps, *tile) not in known:
                known[steps, *tile] = steps == 1 or self.fits(tile, steps)
            return known[steps, *tile]

        def check(columns: Columns) -> Any:
            table = np.stack([columns[name] for name in (overlap, *tiles)], axis=1).astype(np.int64)
            rows, place = np.unique(table, axis=0, return_inverse=True)
            return np.array([legal(*map(int, row)) for row in rows])[place.reshape(-1)]

        def explain(values: Mapping[str, Value]) -> str:
            tile = tuple(int(values[name]) for name in tiles)
            own, room = self.windows.own(tile, int(values[overlap])), self.windows.room(tile)
            said = " x ".join(map(str, own))
            return f"{said} points are right at last; {room:,} bytes, {self.offer.room:,} there"

        needs = "half of a tile is right at last, and there is room for it"
        return Constraint(overlap, needs, check, explain, reads=(overlap, *tiles))

    def _alone(self, others: Mapping[str, Value]) -> Constraint:
        """A tile is a block's and nothing else; where there are none, they have no size."""
        overlap = self.name(OVERLAP)
        own = {self.name(stem): domain[0] for stem, domain in self.domains.items()}
        own.pop(overlap)

        def check(columns: Columns) -> Any:
            single = columns.is_(overlap, 1)
            return np.where(single, _all_are(columns, own), _all_are(columns, others))

        def explain(values: Mapping[str, Value]) -> str:
            names = own if values[overlap] == 1 else others
            said = ", ".join(f"{name}={values[name]}" for name in names)
            return f"{overlap}={values[overlap]} with {said}"

        needs = "tiles are of steps at a time, for which there is no other choice"
        reads = (overlap, *own, *others)
        return Constraint(f"{overlap}.tiles", needs, check, explain, reads=reads)


def _all_are(columns: Columns, said: Mapping[str, Value]) -> NDArray[np.bool_]:
    """Where decisions have these values."""
    found = np.ones(columns.rows, dtype=bool)
    for name, value in said.items():
        found &= columns.is_(name, value)
    return found
