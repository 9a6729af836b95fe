"""Axes and threads split into digits, so that every layout of a problem is an assignment of digits.

An axis of extent 2^a q has a binary digits and, outside them, one digit for each prime of q;
threads likewise. Nothing ever splits an odd factor, so composition, inversion and equality are
those of permutations. Owns digits, spreads (thread-value layouts) and their text. Knows no op.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ir.layout.algebra import coalesce, from_modes
from ir.layout.errors import LayoutError
from ir.layout.layout import Layout, concat
from ir.layout.synthesis.problem import Tile, TileProgram

LANE_DIGITS = 5
NOBODY = -1
"""In a thread slot: all threads along it hold the same elements."""

Modes = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Spread:
    """Which digit of the tile each thread digit selects (NOBODY: none), and the digits that number
    the values of one thread, fastest first. The two together hold each digit of the tile once."""

    threads: tuple[int, ...]
    values: tuple[int, ...]

    def same_owners(self, other: Spread) -> bool:
        """Whether every thread holds the same elements, in whatever order."""
        return self.threads == other.threads and set(self.values) == set(other.values)


class Space:
    """The digits of one problem. Digit d belongs to `axis[d]`, steps `step[d]` along it and has
    `radix[d]` values; `of[axis]` lists an axis's digits upwards; `threads` are (stride, radix);
    `bounds` are the points that are there of axes that are wider."""

    __slots__ = ("_tiles", "axis", "bounds", "of", "radix", "step", "threads")

    def __init__(self, program: TileProgram) -> None:
        self.threads = thread_digits(program.threads)
        self.bounds = dict(program.bounds)
        shared = tuple(radix for _, radix in self.threads if radix != 2)
        self.axis: list[str] = []
        self.step: list[int] = []
        self.radix: list[int] = []
        self.of: dict[str, tuple[int, ...]] = {}
        self._tiles: dict[str, dict[int, int]] = {}
        for tile in program.tiles:
            for name, extent in tile.axes:
                if name not in self.of:
                    self.of[name] = self._add(name, extent, shared)

    def _add(self, name: str, extent: int, shared: tuple[int, ...]) -> tuple[int, ...]:
        first, step = len(self.axis), 1
        for radix in radices(extent, shared):
            self.axis.append(name)
            self.step.append(step)
            self.radix.append(radix)
            step *= radix
        return tuple(range(first, len(self.axis)))

    def size(self, digits: Iterable[int]) -> int:
        return prod(self.radix[digit] for digit in digits)

    def index(self, tile: Tile) -> dict[int, int]:
        """Digit -> stride in the tile's own index."""
        found = self._tiles.get(tile.name)
        if found is None:
            found, stride = {}, 1
            for name, extent in tile.axes:
                for digit in self.of[name]:
                    found[digit] = stride * self.step[digit]
                stride *= extent
            self._tiles[tile.name] = found
        return found

    def digits(self, tile: Tile) -> tuple[int, ...]:
        return tuple(self.index(tile))

    def project(self, spread: Spread, tile: Tile) -> Spread:
        """The spread of `tile`, whose axes are some of the spread's, that lets every thread find
        its elements' partners in its own registers."""
        kept = self.index(tile)
        return Spread(
            tuple(digit if digit in kept else NOBODY for digit in spread.threads),
            tuple(digit for digit in spread.values if digit in kept),
        )

    def value_strides(self, values: Sequence[int]) -> dict[int, int]:
        """Digit -> stride in the value index."""
        found, stride = {}, 1
        for digit in values:
            found[digit] = stride
            stride *= self.radix[digit]
        return found

    def modes(self, digits: Iterable[int], strides: Mapping[int, int]) -> list[tuple[int, int]]:
        """(extent, stride) of each digit; NOBODY and digits without a stride get stride 0 and must
        be binary."""
        return [(self.radix[digit] if digit >= 0 else 2, strides.get(digit, 0)) for digit in digits]

    def thread_modes(
        self, threads: Sequence[int], strides: Mapping[int, int]
    ) -> list[tuple[int, int]]:
        """(extent, stride) of every thread digit."""
        return [
            (radix, strides.get(digit, 0))
            for (_, radix), digit in zip(self.threads, threads, strict=True)
        ]

    def spread_text(self, spread: Spread, tile: Tile) -> str:
        """The thread-value layout of a tile as text."""
        strides = self.index(tile)
        return text(self.thread_modes(spread.threads, strides), self.modes(spread.values, strides))

    def replicated(self, threads: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """(stride, extent) of the thread digits along which elements repeat."""
        return tuple(
            place for place, digit in zip(self.threads, threads, strict=True) if digit == NOBODY
        )

    def read_spread(self, tile: Tile) -> Spread:
        """The spread that a pinned text gives; LayoutError "pinned-layout" where it is none."""
        layout = Layout.parse(tile.layout)
        if layout.rank != 2:
            raise _unfit(tile, f"has {layout.rank} modes, needs 2")
        due = prod(radix for _, radix in self.threads)
        if layout.mode(0).size != due:
            raise _unfit(tile, f"is over {layout.mode(0).size} threads, there are {due}")
        radices_of_threads = [radix for _, radix in self.threads]
        threads = self._split(tile, layout.mode(0).flat(), radices_of_threads)
        values = self._split(tile, layout.mode(1).flat(), None)
        held = [digit for digit in (*threads, *values) if digit != NOBODY]
        if sorted(held) != sorted(self.index(tile)) or NOBODY in values:
            raise _unfit(tile, f"does not hold each of {tile.size} elements once")
        return Spread(threads, values)

    def _split(self, tile: Tile, modes: Modes, due: list[int] | None) -> tuple[int, ...]:
        """Digits that (extent, stride) modes run over, in their order."""
        at = {stride: digit for digit, stride in self.index(tile).items()}
        found: list[int] = []
        for extent, stride in modes:
            while extent > 1:
                digit = at.get(stride, NOBODY) if stride else NOBODY
                radix = self.radix[digit] if digit >= 0 else _next_radix(due, len(found), extent)
                known = digit >= 0 or stride == 0
                if not known or extent % radix or not _fits(due, len(found), radix):
                    raise _unfit(tile, f"has a mode {extent}:{stride} that cuts {tile.axes}")
                found.append(digit)
                extent //= radix
                stride *= radix
        return tuple(found)


def _unfit(tile: Tile, why: str) -> LayoutError:
    """What is wrong with a pinned layout."""
    return LayoutError("pinned-layout", f"{tile.name}: {tile.layout} {why}")


def _next_radix(due: list[int] | None, position: int, extent: int) -> int:
    return due[position] if due and position < len(due) else extent


def _fits(due: list[int] | None, position: int, radix: int) -> bool:
    return due is None or (position < len(due) and due[position] == radix)


@lru_cache(maxsize=4096)
def radices(extent: int, outer: tuple[int, ...] = ()) -> tuple[int, ...]:
    """The digits of an extent, lowest first: its twos, its odd primes, those of `outer` last."""
    twos, rest = 0, extent
    while rest % 2 == 0:
        twos, rest = twos + 1, rest // 2
    odd, last = [], []
    for prime in outer:
        if rest % prime == 0:
            last.append(prime)
            rest //= prime
    prime = 3
    while rest > 1:
        while rest % prime == 0:
            odd.append(prime)
            rest //= prime
        prime += 2
    return (2,) * twos + tuple(odd) + tuple(last)


def thread_digits(threads: int) -> tuple[tuple[int, int], ...]:
    """(stride, radix) of the digits of a thread number: 5 lane bits, bits and odd primes of
    warps."""
    found, stride = [], 1
    for radix in (2,) * LANE_DIGITS + radices(threads // 32):
        found.append((stride, radix))
        stride *= radix
    return tuple(found)


def text(*top: Modes) -> str:
    """Layout text with one top mode for each argument; neighbours that continue each other
    merge."""
    modes = [coalesce(from_modes(each)) for each in top]
    return str(modes[0] if len(modes) == 1 else concat(*modes))


def deal(space: Space, digits: Iterable[int]) -> Spread:
    """Digits, in order, go to thread digits of the same radix, what is left to values."""
    left, threads = list(digits), []
    for _, radix in space.threads:
        digit = next((digit for digit in left if space.radix[digit] == radix), NOBODY)
        if digit != NOBODY:
            left.remove(digit)
        threads.append(digit)
    return Spread(tuple(threads), tuple(left))
