"""Tiled TMA copies: the limits of a tensor map and the elements a box moves.

Limits of cuTensorMapEncodeTiled; a box lies compact in shared memory, its first dimension fastest,
and the swizzle XORs bits 7..9 of the byte address into bits 4..6. Rows narrower than the swizzle
are refused (as MLIR's verifier does): that they lie compact is documented nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from tests.layout.checker.tables import Table, swizzled
from tests.layout.checker.values import Values

REPEAT = {0: 128, 1: 256, 2: 512, 3: 1024}


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor map, dimension 0 fastest: extents, strides in bytes (first implied), a box."""

    base: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    bits: int
    swizzle: int

    def violations(self) -> list[str]:
        """Every limit this map breaks, in words with numbers; empty when legal."""
        inner = self.box[0] * self.bits // 8
        rules = [
            (1 <= len(self.box) <= 5, f"rank {len(self.box)}, at most 5"),
            (self.base % 16 == 0, f"global address is {self.base} mod 16 bytes"),
            (self.strides[0] * 8 == self.bits, f"innermost stride {self.strides[0]} bytes"),
            (all(s % 16 == 0 for s in self.strides[1:]), f"strides {self.strides} not 16-byte"),
            (all(0 <= s < 2**40 for s in self.strides), f"strides {self.strides} beyond 2^40"),
            (all(1 <= b <= 256 for b in self.box), f"box {self.box} outside 1..256"),
            (inner % 16 == 0, f"inner box of {inner} bytes is no multiple of 16"),
            (
                self.swizzle == 0 or inner == 16 << self.swizzle,
                f"inner box of {inner} bytes, swizzled rows have {16 << self.swizzle}",
            ),
        ]
        return [text for good, text in rules if not good]

    @property
    def bytes(self) -> int:
        return prod(self.box) * self.bits // 8

    def coordinates(self) -> NDArray[np.int64]:
        """[element of the box in memory order, dimension]."""
        grid = np.indices(tuple(reversed(self.box)), dtype=np.int64).reshape(len(self.box), -1)
        return np.ascontiguousarray(grid[::-1].T)

    def addresses(self, start: int) -> Table:
        """Bit address in shared memory of each element of the box, as coordinates() orders them."""
        linear = np.arange(prod(self.box), dtype=np.int64) * self.bits
        return swizzled(start * 8 + linear, self.swizzle, 7, 3)

    def offsets(self, at: tuple[int, ...]) -> tuple[Table, NDArray[np.bool_]]:
        """Global bit offsets from the base, and which elements lie inside the tensor."""
        where = self.coordinates() + np.asarray(at, np.int64)
        inside = np.logical_and(where >= 0, where < np.asarray(self.extents))
        offsets: Table = where @ (np.asarray(self.strides, np.int64) * 8)
        return offsets, np.asarray(inside.all(axis=1), np.bool_)


def load(memory: Values, tensor: TensorMap, at: tuple[int, ...]) -> Values:
    """Elements of the box, zeroes where it leaves the tensor: [box size]; `memory` by element."""
    offsets, inside = tensor.offsets(at)
    return np.where(inside, memory[np.where(inside, offsets // tensor.bits, 0)], 0.0)
