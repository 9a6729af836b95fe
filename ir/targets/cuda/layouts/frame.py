"""Frames: how the points of a tile lie in registers and threads.

A frame places every axis of a kernel once, by mixed-radix digits (size, stride) over register
number and thread number, as thread-value layouts do (CuTe; Hexcute, section 4). Each value of the
kernel takes the digits of its own axes, so values over different axes meet without conversions:
what a value lacks is replicated. Knows no instruction and no text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from ir.layout.synthesis.digits import radices

WARP = 32
GROUP = 128  # threads of a warp group


@dataclass(frozen=True, slots=True)
class Digit:
    """One digit of the register number: `size` steps of `stride` points along `axis`."""

    axis: str
    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class ThreadDigit:
    """One digit of the thread number. Axes that never meet in one value may share it."""

    size: int
    strides: tuple[tuple[str, int], ...] = ()

    def stride(self, axis: str) -> int:
        """Points along `axis` from one step to the next; 0 if it does not move there."""
        return dict(self.strides).get(axis, 0)


@dataclass(frozen=True)
class Frame:
    """Digits of registers and threads, the fastest first."""

    registers: tuple[Digit, ...]
    threads: tuple[ThreadDigit, ...]

    @property
    def team(self) -> int:
        """Threads that hold one tile together."""
        return prod(digit.size for digit in self.threads)

    def own(self, axes: Iterable[str]) -> tuple[Digit, ...]:
        """The register digits of a value over `axes`."""
        wanted = frozenset(axes)
        return tuple(digit for digit in self.registers if digit.axis in wanted and digit.size > 1)

    def count(self, axes: Iterable[str]) -> int:
        """Registers of a value over `axes`."""
        return prod(digit.size for digit in self.own(axes))

    def tile(self, axis: str) -> int:
        """Points of `axis` that the whole frame covers."""
        own = prod(digit.size for digit in self.own((axis,)))
        return own * prod(digit.size for digit in self.threads if digit.stride(axis))

    def weights(self) -> tuple[tuple[int, ThreadDigit], ...]:
        """Each thread digit with its weight in the thread number."""
        found, weight = [], 1
        for digit in self.threads:
            found.append((weight, digit))
            weight *= digit.size
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Share:
    """How a blocked frame treats one axis: tile points, of which `own` lie in one thread.

    `vector` neighbours of them come first; the rest of a thread's points are a team apart.
    """

    axis: str
    tile: int
    own: int
    vector: int = 1


def blocked(shares: Iterable[Share]) -> Frame:
    """A frame of shares, the axis whose neighbours lie in neighbouring threads first.

    Vectors are powers of two. What the threads beyond a warp have of an odd number of places is
    behind all that they have of two, smaller primes first: so the layout synthesis counts them.
    """
    first: list[Digit] = []
    rest: list[Digit] = []
    threads: list[ThreadDigit] = []
    odd: list[tuple[int, ThreadDigit]] = []
    total = 1
    for share in shares:
        across = share.tile // share.own
        if share.vector > 1:
            first.append(Digit(share.axis, share.vector, 1))
        outer = share.own // share.vector
        if outer > 1:
            rest.append(Digit(share.axis, outer, share.vector * across))
        for size, stride in _cut_at_warp(total, across):
            twos = size & -size
            if twos > 1:
                threads.append(ThreadDigit(twos, ((share.axis, share.vector * stride),)))
            step = stride * twos
            for prime in radices(size // twos):
                odd.append((prime, ThreadDigit(prime, ((share.axis, share.vector * step),))))
                step *= prime
        total *= across
    odd.sort(key=lambda one: one[0])
    return Frame((*first, *rest), (*threads, *(digit for _, digit in odd)))


def _cut_at_warp(before: int, size: int) -> list[tuple[int, int]]:
    """`size` as digits (size, stride) of which none reaches over the edge of a warp."""
    if size == 1:
        return []
    inside = min(size, max(1, WARP // before))
    parts = [(inside, 1)] if inside > 1 else []
    if size > inside:
        parts.append((size // inside, inside))
    return parts
