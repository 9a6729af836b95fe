"""One of the kernels that compute a phase plainly: where its arrays are, how many blocks it has.

A group's arrays are in shared memory as far as they fit, and in the workspace beyond; those of a
team of several blocks are all in the workspace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import dtype_of
from ir.plain.accesses import every, read
from ir.plain.code import (
    GROUP,
    TENSOR,
    Accumulate,
    Array,
    Claim,
    Combine,
    Let,
    Loop,
    PlainKernel,
    Spread,
    Statement,
    Write,
)
from ir.plain.panels import PanelAxis, panel_axis, panelled, with_blocks
from ir.plain.products import Products, narrowed, products_of
from ir.plain.strides import Walk, extent_of
from ir.target import Hardware
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.plain.plain_ahead import ahead_of, asks
from ir.targets.cuda.plain.plain_fold import scratch_bytes
from ir.targets.cuda.plain.plain_held import counts_of
from ir.targets.cuda.plain.plain_products import Tile
from ir.targets.cuda.plain.plain_ring import Ring
from ir.targets.cuda.plain.plain_shape import folds_of
from ir.targets.cuda.plain.plain_staged import pitch_of
from ir.targets.cuda.plain.plain_stream import Streams, streams_of
from ir.targets.cuda.plain.plain_words import shares

Numbers = NDArray[Any]
UNIT = 16  # bytes that arrays of a group begin at multiples of
_GROUPS = 32  # blocks for each processor, over which a group's points are spread
_FEW_GROUPS = 4  # the same where each has memory of its own in the workspace
_FEW_POINTS = 64  # for each processor, below which a long fold is a block's
_WAVES, _RESIDENT = 8, 2048  # of blocks of threads that have points; threads on a processor
_MOST_ALONE = 8 << 10  # bytes of a thread that has a point alone, of which a card has 270,000
_TEAM_SHARE = 4  # loops of a step that are worth a team have so many iterations for each thread
_PANELS = (8, 16, 32, 64, 128)  # points beside each other
_APART = 8  # elements between rows of them, that ldmatrix meets no bank twice
_REGISTERS, _LEAST_HELD = 65536, 28  # of a processor; of a thread beside results
_SHARED_UNIT = 128  # bytes by which shared memory is given
_RESERVED = 1024  # bytes of shared memory that a block has no say over
RESIDENT = 1024  # threads of teams on a processor: blocks that wait for each other all run


@dataclass(frozen=True, slots=True)
class Settings:
    """What a schedule says of a step: threads of a block, whether they share points, how many
    neighbours along a fold each takes, how many blocks share a point, how many tiles of a fold a
    warp asks for ahead, how many lanes share the sums of an iteration, the tile that a warp has of
    products on tensor cores, whether a step's lines are asked for in the one before, for how many
    steps of a loop a thread loads at a time, and whether those pass through shared memory."""

    threads: int
    grouped: bool
    run: int
    early: bool = False
    team: int = 1
    ahead: int = 0
    share: int = 1
    tile: Tile | None = None
    fetch: bool = False
    steps: int = 1
    staged: bool = False


@dataclass(frozen=True)
class PlainStep:
    """A plain kernel on a card."""

    plain: PlainKernel
    hardware: Hardware

    @cached_property
    def folds(self) -> tuple[Accumulate, ...]:
        """The folds that a group would share."""
        return folds_of(self.plain)

    @cached_property
    def points(self) -> int:
        return prod(extent for _, extent in self.plain.points)

    @cached_property
    def better_grouped(self) -> bool:
        """Whether a point is better a block's, where nothing is said of it."""
        few = self.points < _FEW_POINTS * int(self.hardware["sms"])
        return self.plain.cooperative or (bool(self.folds) and few and not self.beside)

    @cached_property
    def step_counts(self) -> tuple[int, ...]:
        """For how many steps of a loop a thread may load at a time."""
        return counts_of(self.plain)

    @cached_property
    def pitches(self) -> dict[int, int]:
        """Bytes from row to row in shared memory by the steps of a turn, where rows can pass
        through it; a thread has one."""
        counts = self.step_counts[1:]
        return {n: pitch for n in counts if (pitch := pitch_of(self.plain, n))}

    @cached_property
    def teams(self) -> tuple[int, ...]:
        """Of how many blocks a point may be, where points are too few for the processors and loops
        long: those blocks all run at once, and meet in memory."""
        sms = int(self.hardware["sms"])
        kept = any(fold.keep for fold in self.folds)
        if not self.plain.cooperative or kept or 2 * self.points > sms:
            return (1,)
        loops = (s for s in every(self.plain.body) if isinstance(s, Spread))
        longest = max((extent_of(loop) for loop in loops), default=0)
        longest *= WARP if self.has_sums else 1
        each = sms // self.points
        counts = {1, *(2**n for n in range(2, 12)), each, 2 * each, 4 * each}
        most = min(4 * each, longest // (_TEAM_SHARE * 32))
        return tuple(sorted(count for count in counts if count <= most)) or (1,)

    @cached_property
    def panel_axis(self) -> PanelAxis | None:
        """The axis along which points may be beside each other."""
        return panel_axis(self.plain)

    @cached_property
    def teams_beside(self) -> dict[int, tuple[int, ...]]:
        """The same by how many points a group has beside each other: teams have several where these
        lie apart in memory."""
        apart = self.panel_axis is not None and self.panel_axis.apart
        more = {n: self.panel(n).teams if apart else (1,) for n in self.panels[1:]}
        return {1: self.teams, **more}

    @cached_property
    def may_be_alone(self) -> bool:
        """Whether a thread may have a point that else a group has: there are many, each holds
        little, and nothing of the group's is counted or combined in by all at once."""
        own = {array.name for array in self.plain.arrays if array.place != TENSOR}
        met = (s for s in every(self.plain.body) if isinstance(s, Claim | Combine))
        free = not any(isinstance(s, Claim) or s.array in own for s in met)
        little = sum(map(array_bytes, self._group)) <= _MOST_ALONE
        many = self.points >= 2 * WARP
        return self.plain.cooperative and not self.folds and free and little and many

    @cached_property
    def has_sums(self) -> bool:
        """Whether loops that threads share have sums that lanes can share."""
        loops = (s for s in every(self.plain.body) if isinstance(s, Spread))
        return self.plain.cooperative and any(shares(self.plain, loop) for loop in loops)

    @cached_property
    def panels(self) -> tuple[int, ...]:
        """How many neighbouring points a group may have beside each other, one first: as many as
        have room in shared memory, or in the workspace where these lie apart, as those of teams."""
        axis = self.panel_axis
        if axis is None:
            return (1,)
        counts = (n for n in _PANELS if axis.extent % n == 0)
        return (1, *(n for n in counts if axis.apart or not self.panel(n).spilled))

    @cached_property
    def asks(self) -> bool:
        """Whether lines that a step reads can be asked for in the one before."""
        return asks(self.plain)

    @cached_property
    def waits(self) -> int:
        """How often steps of loops wait for memory: once for every shared loop that reads what
        could be asked for ahead."""
        found = 0
        for loop in (s for s in every(self.plain.body) if isinstance(s, Loop)):
            arrays = {one.element.array for one in ahead_of(self.plain, loop)}
            reading = [s for s in loop.body if isinstance(s, Spread) and arrays & read(s.body)]
            found += loop.extent * len(reading)
        return found

    @cached_property
    def has_products(self) -> bool:
        """Whether loops that threads share have products that tensor cores take, for some number of
        points beside each other."""
        counts = {1, self.panels[-1]}
        return self.plain.cooperative and any(self.panel(n, True).products for n in counts)

    @cached_property
    def products(self) -> tuple[Products, ...]:
        """The products of loops that threads share."""
        loops = (s for s in every(self.plain.body) if isinstance(s, Spread))
        found = (products_of(self.plain, loop) for loop in loops)
        return tuple(one for one in found if one is not None)

    @cached_property
    def rest(self) -> PlainStep:
        """The step without its products: what is done behind them alone."""

        def without(statements: Sequence[Statement]) -> tuple[Statement, ...]:
            return tuple(map(one, statements))

        def one(s: Statement) -> Statement:
            if isinstance(s, Spread):
                found = products_of(self.plain, s)
                return s if found is None else Spread(s.variables, found.behind)
            return with_blocks(s, without)

        return replace(self, plain=replace(self.plain, body=without(self.plain.body)))

    def panel(self, count: int, tensor: bool = False) -> PlainStep:
        """The step with so many points beside each other. For tensor cores (`tensor`), arrays are
        as narrow as what they hold, and rows of points lie apart by what spares conflicts."""
        if (count, tensor) not in self._panels:
            kernel = narrowed(self.plain) if tensor else self.plain
            if count > 1:
                axis = self.panel_axis  # narrower arrays have no other
                assert axis is not None
                pitch = count + _APART if tensor and count % (2 * _APART) == 0 else count
                wide = replace(self, plain=panelled(kernel, axis, count, pitch))
                if wide.spilled:
                    wide = replace(self, plain=panelled(kernel, axis, count))
                self._panels[count, tensor] = wide
            else:
                self._panels[count, tensor] = replace(self, plain=kernel)
        return self._panels[count, tensor]

    @cached_property
    def _panels(self) -> dict[tuple[int, bool], PlainStep]:
        return {(1, False): self}

    def columns(self, threads: int) -> tuple[Array, ...]:
        """A group's arrays of which each thread of a block has one in shared memory, where a point
        is a thread's: the small ones first."""
        left, found = int(self.hardware["shared_bytes"]), []
        for array in sorted(self._group, key=array_bytes):
            left -= column_bytes(array, threads)
            if left >= 0:
                found.append(array)
        return tuple(found)

    @cached_property
    def most_scratch(self) -> int:
        """Shared memory that folds take with the most threads."""
        return scratch_bytes(self.folds, 512)

    @cached_property
    def streams(self) -> tuple[Streams, ...]:
        """What those folds read and write in a row."""
        return tuple(streams_of(self.plain, fold) for fold in self.folds)

    def ring_bytes(self, threads: int, run: int, ahead: int) -> int:
        """Shared memory in which tiles of folds wait."""
        rings = (Ring(streams, run, ahead).bytes for streams in self.streams)
        return threads // WARP * max(rings, default=0)

    def rings(self, threads: Numbers, run: Numbers, ahead: Numbers) -> NDArray[np.int64]:
        """The same of many schedules."""
        table = np.stack([threads, run, ahead], axis=1).astype(np.int64)
        known, place = np.unique(table, axis=0, return_inverse=True)
        taken = [self.ring_bytes(int(t), int(r), int(a)) for t, r, a in known]
        return np.array(taken, dtype=np.int64)[place.reshape(-1)]

    def ahead(self, threads: int, run: int, wanted: int) -> int:
        """Up to `wanted` tiles ahead, as there is room for."""
        room = int(self.hardware["shared_bytes"]) - self.ring_start(threads)
        fits = (n for n in range(wanted, 0, -1) if self.ring_bytes(threads, run, n) <= room)
        return next(fits, 0)

    def ring_start(self, threads: int) -> int:
        """Where the tiles begin in shared memory: behind all else."""
        return scratch_bytes(self.folds, threads) + sum(map(array_bytes, self.shared))

    @cached_property
    def beside(self) -> bool:
        """Whether neighbouring points read and write elements that lie side by side."""
        if not self.plain.points or not self.folds:
            return False
        name, extent = self.plain.points[-1]
        lets = {s.name.name: s.value for s in every(self.plain.body) if isinstance(s, Let)}
        walk = Walk(name.name, lets)
        found = {walk.stride(stream.place) for one in self.streams for stream in one.reads}
        return extent >= WARP and bool(found) and found <= {0, 1}

    @cached_property
    def shared(self) -> tuple[Array, ...]:
        """A group's arrays that lie in shared memory: the small ones first."""
        left = int(self.hardware["shared_bytes"]) - self.most_scratch
        found = []
        for array in sorted(self._group, key=array_bytes):
            left -= array_bytes(array)
            if left >= 0:
                found.append(array)
        return tuple(found)

    @cached_property
    def spilled(self) -> tuple[Array, ...]:
        """A group's arrays in the workspace."""
        return tuple(array for array in self._group if array not in self.shared)

    @property
    def _group(self) -> tuple[Array, ...]:
        return tuple(array for array in self.plain.arrays if array.place == GROUP)

    @property
    def local(self) -> tuple[Array, ...]:
        """Arrays of a thread."""
        return tuple(a for a in self.plain.arrays if a.place not in (GROUP, TENSOR))

    @property
    def rounds(self) -> int:
        """How often all points are run, each time behind all of them."""
        return self.plain.rounds[1] if self.plain.rounds else 1

    def at_a_time(self, threads: int) -> int:
        """Blocks that a processor surely has at a time, where those wait for each other."""
        room, held = sum(map(array_bytes, self.shared)), registers_held(self.plain)
        return blocks_at_a_time(self.hardware, room, threads, held)

    def grid(self, threads: int, grouped: bool, team: int = 1) -> int:
        """Blocks, which stride over the points if they are fewer."""
        if team > 1:
            return self.points * team
        if self.rounds > 1:
            return min(self.points, self.at_a_time(threads) * self._sms)
        if not grouped:
            return min(-(-self.points // threads), _WAVES * self._sms * (_RESIDENT // threads))
        each = _FEW_GROUPS if self.spilled else _GROUPS
        return min(self.points, each * self._sms)

    @property
    def _sms(self) -> int:
        return int(self.hardware["sms"])


def blocks_at_a_time(hardware: Hardware, room: int, threads: int, held: int) -> int:
    """Blocks of so many threads that a processor has at a time, with bytes of shared memory, where
    a thread has so many registers at most."""
    taken = -(-room // _SHARED_UNIT) * _SHARED_UNIT + _RESERVED
    most = (int(hardware["shared_bytes"]) + _RESERVED) // taken
    return max(1, min(most, RESIDENT // threads, _REGISTERS // (threads * held)))


@lru_cache(maxsize=512)
def registers_held(kernel: PlainKernel) -> int:
    """Registers of a thread, where an iteration computes several results before it writes."""
    loops = (s for s in every(kernel.body) if isinstance(s, Spread))
    most = max((sum(isinstance(s, Write) for s in loop.body) for loop in loops), default=0)
    return _LEAST_HELD + 3 * most // 2


def column_bytes(array: Array, threads: int) -> int:
    """Memory of an array of which every thread of a block has one."""
    return -(-threads * array.size * dtype_of(array.dtype).bytes // UNIT) * UNIT


def array_bytes(array: Array) -> int:
    """Memory of an array, up to where the next one may begin."""
    return -(-array.size * dtype_of(array.dtype).bytes // UNIT) * UNIT
