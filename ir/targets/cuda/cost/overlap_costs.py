"""Analytic costs of tiles that overlap: what a block does with a tile, loop by loop of its threads.

Shared memory gives a warp one word of each lane in a clock, however wide the words are that lanes
ask for: neighbours of several words meet in banks. So what counts is how many different elements an
iteration reads and writes, which is found by evaluating its indices at some point.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import dtype_of
from ir.plain.accesses import every, nested, scalars_of
from ir.plain.build import plain_kernels
from ir.plain.code import (
    TENSOR,
    Between,
    Call,
    Convert,
    Element,
    If,
    Let,
    Loop,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Spread,
    Statement,
    Write,
)
from ir.plain.pieces import Overlap, Ways
from ir.plain.strides import elements, extent_of
from ir.plain.windows import WORD, Windows
from ir.program import Program
from ir.target import Hardware
from ir.targets.cuda.plain.plain_step import blocks_at_a_time, registers_held

Numbers = NDArray[np.float64]
LANES, BANKS = 128.0, 32.0  # instructions, and words of shared memory, that a processor has a clock
MEMORY = 20.0  # bytes a clock, of a processor's share
SECTOR = 32  # bytes that memory gives at least
MEET = 60.0  # clocks of a block's meeting
GRID_MEETS = 2000.0  # of all blocks
WAITS, NEAR = 800.0, 60.0  # clocks from asking memory, and shared memory, to having
AT_ONCE = 4.0  # iterations of a thread whose reads of memory are under way together
OWN = 10.0  # instructions of an iteration beside what it computes
INDEX = 10.0  # of an element that lies in memory
FILL = 1500.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A loop of a block's threads: its iterations, how often it is run, and of an iteration words
    of shared memory, elements and bytes of tensors, instructions, results."""

    iterations: int
    often: float
    words: int
    elements: int
    bytes: float
    instructions: float
    results: int


@lru_cache(maxsize=512)
def stages_of(kernel: PlainKernel) -> tuple[Stage, ...]:
    """The loops of a kernel that a block's threads share; of two ways, the first one."""
    return tuple(_stages(kernel, kernel.body, 1.0))


def _stages(kernel: PlainKernel, body: Iterable[Statement], often: float) -> Iterator[Stage]:
    for s in body:
        if isinstance(s, Spread):
            yield _stage(kernel, s, often)
        elif isinstance(s, If):
            yield from _stages(kernel, s.body, often)
        elif isinstance(s, Loop | Between):
            yield from _stages(kernel, s.body, often * extent_of(s))


def _stage(kernel: PlainKernel, spread: Spread, often: float) -> Stage:
    tensors = {a.name: dtype_of(a.dtype).bytes for a in kernel.arrays if a.place == TENSOR}
    inner = list(_first_ways(spread.body))
    last = spread.variables[-1][0].name if spread.variables else ""
    place, beside = _Places(kernel), _Places(kernel, last)
    found = set[tuple[str, int, int]]()  # with how far the next lane's is
    written, computed = set[tuple[str, int, int]](), 0

    def at(array: str, index: Scalar) -> tuple[str, int, int]:
        here = place.of(index)
        return array, here, abs(beside.of(index) - here)

    for s in inner:
        found |= {at(e.array, e.index) for e in elements(scalars_of(s))}
        computed += sum(map(_operations, scalars_of(s)))
        if isinstance(s, Let):
            place.define(s)
            beside.define(s)
        if isinstance(s, Write):
            written.add(at(s.array, s.index))
    both = [*found, *written]
    outside = [(array, apart) for array, _, apart in both if array in tensors]
    words = len(both) - len(outside)
    instructions = OWN + computed + 0.5 * words + INDEX * len(outside)
    iterations = prod(extent for _, extent in spread.variables)
    own = sum(min(tensors[array] * max(apart, 1), SECTOR) for array, apart in outside)
    return Stage(iterations, often, words, len(outside), own, instructions, len(written))


def _first_ways(body: Iterable[Statement]) -> Iterator[Statement]:
    """Statements, of two ways those of the first."""
    for s in body:
        yield s
        for block in nested(s)[:1]:
            yield from _first_ways(block)


def _operations(scalar: Scalar) -> int:
    """Functions of what is no index."""
    if isinstance(scalar, Call):
        own = scalar.dtype != "i64" and any(arg.dtype != "i64" for arg in scalar.args)
        return own + sum(map(_operations, scalar.args))
    return _operations(scalar.arg) if isinstance(scalar, Convert) else 0


class _Places:
    """Indices as numbers, with some number for each variable; of one (`next`) one more."""

    def __init__(self, kernel: PlainKernel, next: str = "") -> None:
        names = (s.name.name for s in every(kernel.body) if isinstance(s, Let))
        self.numbers = {name: 7919 * (n + 3) for n, name in enumerate(names)}
        self.known: dict[str, int] = {}
        self.next = next

    def define(self, let: Let) -> None:
        """What a variable is from here on."""
        self.known[let.name.name] = self.of(let.value)

    def of(self, scalar: Scalar) -> int:
        if isinstance(scalar, Number):
            return int(scalar.value)
        if isinstance(scalar, Name):
            if scalar.name in self.known:
                return self.known[scalar.name]
            number = 104729 * (zlib.crc32(scalar.name.encode()) % 997 + 3)
            return self.numbers.setdefault(scalar.name, number) + (scalar.name == self.next)
        if isinstance(scalar, Convert):
            return self.of(scalar.arg)
        if isinstance(scalar, Element):
            return hash((scalar.array, self.of(scalar.index)))
        left, *rest = map(self.of, scalar.args)
        if scalar.function == "mul":
            return left * rest[0]
        if scalar.function == "sub":
            return left - rest[0]
        return left + rest[0] if scalar.function == "add" else hash((scalar.function, left, *rest))


class OverlapCosts:
    """Of one phase, for any tile: what an iteration does is that of a small one with as many rows
    and columns, and how many there are is known without a kernel."""

    def __init__(self, program: Program, windows: Windows, hardware: Hardware) -> None:
        self.program, self.windows, self.hardware = program, windows, hardware
        self._known: dict[tuple[Overlap, int], Estimate] = {}
        self._patterns: dict[tuple[int, int], _Pattern] = {}

    def clocks(self, overlap: Overlap, threads: int) -> Estimate:
        """Of a block for each tile, with so many threads."""
        if (overlap, threads) not in self._known:
            self._known[overlap, threads] = self._estimate(overlap, threads)
        return self._known[overlap, threads]

    def _estimate(self, overlap: Overlap, threads: int) -> Estimate:
        pattern, stages = self._pattern(overlap.rows, overlap.columns), self.stages(overlap)
        sides = self.windows.sides(overlap.tile, overlap.steps).values()
        points = pattern.points * prod(side.count for side in sides)
        sms, room = int(self.hardware["sms"]), self.windows.room(overlap.tile)
        most = blocks_at_a_time(self.hardware, room, threads, pattern.held)
        blocks = min(float(most), ceil(points / sms))
        rounds = -(-self.windows.steps // overlap.steps)
        waves = ceil(points / (blocks * sms))
        whole_tile = sum(_clocks(stage, threads, blocks) for stage in stages)
        moved = sum(s.often * s.iterations * s.bytes for s in stages) * points / MEMORY / sms
        found = rounds * (waves * whole_tile + GRID_MEETS) + FILL
        return Estimate(max(found, rounds * moved), rounds * moved, points, blocks)

    def stages(self, overlap: Overlap) -> list[Stage]:
        """What a block does with a tile."""
        pattern = self._pattern(overlap.rows, overlap.columns)
        sides = self.windows.sides(overlap.tile, overlap.steps).values()
        wide = prod(side.wide for side in sides)
        tile = prod(side.tile for side in sides) // (overlap.rows * overlap.columns)
        return [
            replace(stage, iterations=max(1, round(each * (wide if whole else tile))),
                    often=float(overlap.steps - 1) if stage.often > 1 else 1.0)
            for stage, whole, each in pattern.stages
        ]  # fmt: skip

    def table(self, overlap: Overlap, threads: Numbers, run: Numbers) -> dict[str, Numbers]:
        """Features of schedules that have such tiles: columns of their threads and runs."""
        found = [self.clocks(overlap, int(count)) for count in threads]
        clocks, traffic, points, blocks = np.array(
            [(one.clocks, one.traffic, one.points, one.blocks) for one in found]
        ).reshape(-1, 4).T  # fmt: skip
        none, sms = np.zeros(len(threads)), float(self.hardware["sms"])
        return {
            "threads": np.log2(threads), "blocks": np.log2(points), "trips": none,
            "resident": blocks, "waves": np.log2(points / blocks / sms),
            "busy": np.minimum(points / sms, 1.0), "reduced.own": run, "team": none,
            "ahead": none, "issued": clocks / (traffic + 1.0), "beside": none, "share": none,
            "multiplies": none, "clocks": clocks, "traffic": traffic,
            "parts": none + np.log2(overlap.steps),
        }  # fmt: skip

    def _pattern(self, rows: int, columns: int) -> _Pattern:
        if (rows, columns) not in self._patterns:
            self._patterns[rows, columns] = self._made(rows, columns)
        return self._patterns[rows, columns]

    def _made(self, rows: int, columns: int) -> _Pattern:
        """That of a tile that is several times as large as its rows and columns."""
        steps, count = 3, len(self.windows.axes)
        least = (steps + 1) * max(map(sum, self.windows.lost(steps))) + 1
        each = [1] * (count - 1) + [columns]
        each[0] *= rows if count > 1 else 1
        tile = tuple(WORD * one * -(-least // (WORD * one)) for one in each)
        overlap = Overlap(min(steps, self.windows.steps), tile, rows, columns)
        (kernel,) = plain_kernels(self.program, Ways(overlap=overlap))
        sides = self.windows.sides(tile, overlap.steps).values()
        wide, own = prod(side.wide for side in sides), prod(tile) // (rows * columns)
        stages = []
        for number, stage in enumerate(stages_of(kernel)):
            whole = number < self.windows.arrays  # what is brought comes first
            stages.append((stage, whole, stage.iterations / (wide if whole else own)))
        tiles = prod(side.count for side in sides)
        points = prod(extent for _, extent in kernel.points) // tiles
        return _Pattern(points, registers_held(kernel), tuple(stages))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Clocks, those of what is moved, points, and blocks of a processor at a time."""

    clocks: float
    traffic: float
    points: int
    blocks: float


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Points beside tiles, registers of a thread, and stages: of each whether it goes over a tile
    with its margin, and how many iterations it has for each point of those."""

    points: int
    held: int
    stages: tuple[tuple[Stage, bool, float], ...]


def _clocks(stage: Stage, threads: int, blocks: float) -> float:
    """Of all blocks that a processor has at a time."""
    turns = ceil(stage.iterations / threads)
    wait = WAITS / AT_ONCE if stage.elements else NEAR
    serial = turns * (wait + 0.25 * stage.instructions)
    banks = blocks * stage.iterations * stage.words / BANKS
    issued = blocks * stage.iterations * stage.instructions / LANES
    moved = blocks * stage.iterations * stage.bytes / MEMORY
    return stage.often * (max(serial, banks, issued, moved) + MEET)
