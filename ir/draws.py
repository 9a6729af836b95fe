"""Random numbers by counter: the same bits for the same key on every array library.

Bits are SplitMix64's (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA
2014). What is made of them uses integer arithmetic, looked-up tables and correctly rounded sums and
products of float64 alone, so that the host and a device draw the very same arrays.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np

from ir.dtypes import dtype_of, from_float, numpy_dtype
from ir.ops.base import Array

_GOLDEN = 0x9E3779B97F4A7C15
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MASK = (1 << 64) - 1
_PIECE = 1 << 18  # elements that a thread of the host makes at a time: they stay in its cache
_DEVICE_PIECE = 1 << 26


class Recipe(Protocol):
    """Makes the elements `start ..` of an array, in storage dtype."""

    def __call__(self, draws: Draws, start: int, count: int) -> Array:
        """`count` elements from `start` on, which is a multiple of 8."""
        ...


@dataclass(frozen=True, slots=True)
class Draws:
    """A stream of random bits: word i depends on `key` and i alone. `xp` is the array module."""

    key: int
    xp: Any = np

    @classmethod
    def named(cls, seed: int, *names: object, xp: Any = np) -> Draws:
        """The stream of a seed and of what is drawn with it."""
        text = "|".join(map(str, (seed, *names)))
        return cls(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"), xp)

    def words(self, start: int, count: int) -> Array:
        """`count` 64-bit words from word `start` on."""
        first = (self.key + (start + 1) * _GOLDEN) & _MASK
        z: Array = self.xp.arange(count, dtype=np.uint64)
        z *= np.uint64(_GOLDEN)
        z += np.uint64(first)
        for shift, factor in ((30, _MIX[0]), (27, _MIX[1]), (31, None)):
            z ^= z >> np.uint64(shift)
            if factor is not None:
                z *= np.uint64(factor)
        return z

    def bits(self, width: int, start: int, count: int) -> Array:
        """`count` unsigned integers of `width` bits (16, 32 or 64); `start` is a multiple of 4."""
        each = 64 // width
        words = self.words(start // each, -(-count // each))
        return words.view(f"u{width // 8}")[:count]

    def uniform(self, start: int, count: int) -> Array:
        """Multiples of 2**-32 in [0, 1)."""
        return self.bits(32, start, count) * 2.0**-32

    def normal(self, start: int, count: int, wide: bool = False) -> Array:
        """Standard normal numbers up to 4.3, by their inverse distribution; f64 if `wide`."""
        kind = np.float64 if wide else np.float32
        halves = self.bits(16, 2 * start, 2 * count)
        found: Array = self.xp.asarray(normal_table().astype(kind))[halves[::2]]
        found += halves[1::2] * kind(_BETWEEN)
        return found

    def whole(
        self, low: int, high: int, start: int, count: int, dtype: Any = np.int64
    ) -> Array:  # fmt: skip
        """Integers from `low` to `high`, both included, of an integer type that has them."""
        kind = np.dtype(dtype)
        found: Array = self._below(high - low + 1, start, count).astype(kind)
        found += kind.type(low)  # what wraps around on the way comes back
        return found

    def _below(self, span: int, start: int, count: int) -> Array:
        """Unsigned integers below `span`: the upper half of 32 bits times that."""
        if span > 1 << 32:
            return self.bits(64, start, count) % np.uint64(span)
        bits = self.bits(32, start, count)
        if span == 1 << 32:
            return bits
        if span & (span - 1) == 0 and span > 1:
            bits >>= np.uint32(33 - span.bit_length())
            return bits
        if span > 1 << 16:
            return bits.astype(np.uint64) * np.uint64(span) >> np.uint64(32)
        upper = bits >> np.uint32(16)  # in halves: no product has more than 32 bits
        upper *= np.uint32(span)
        bits &= np.uint32(0xFFFF)
        bits *= np.uint32(span)
        bits >>= np.uint32(16)
        upper += bits
        upper >>= np.uint32(16)
        return upper

    def array(self, shape: tuple[int, ...], dtype: str, recipe: Recipe) -> Array:
        """An array in storage of `dtype`, made piece by piece; by threads on the host."""
        found: Array = self.xp.empty(int(np.prod(shape, dtype=np.int64)), numpy_dtype(dtype))
        size = _PIECE if self.xp is np else _DEVICE_PIECE
        starts = range(0, found.size, size)

        def fill(start: int) -> None:
            count = min(size, found.size - start)
            found[start : start + count] = recipe(self, start, count)

        if self.xp is np and len(starts) > 1:
            with ThreadPoolExecutor() as threads:
                list(threads.map(fill, starts))
        else:
            for start in starts:
                fill(start)
        return found.reshape(shape)


_BETWEEN = 2.0**-31  # a step of 2**-15 between neighbours near 0, shared by 2**16 numbers


@cache
def normal_table() -> Array:
    """The inverse normal distribution at the middles of 2**16 equal parts, rounded to 2**-24.

    So rounded, it is the same wherever Python's own (Wichura's AS 241) is right to nine digits.
    """
    normal = NormalDist()
    half = [normal.inv_cdf((i + 0.5) / 65536) for i in range(32768)]
    low = np.rint(np.array(half) * 2.0**24) / 2.0**24
    return np.concatenate([low, -low[::-1]])


@cache
def normal_storage(dtype: str) -> Array:
    """`normal_table` in the storage of a float type of at most 16 bits."""
    return from_float(normal_table(), dtype)


def normal_recipe(dtype: str) -> Recipe:
    """Standard normal numbers of a float type."""
    if dtype_of(dtype).bits > 16:
        return lambda draws, start, count: draws.normal(start, count, dtype == "f64")

    def narrow(draws: Draws, start: int, count: int) -> Array:
        table = draws.xp.asarray(normal_storage(dtype))
        found: Array = table[draws.bits(16, start, count)]
        return found

    return narrow
