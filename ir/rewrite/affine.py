"""Values that are affine in what is read of a state: a constant, and reads times coefficients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ir.tiles import Tile


@dataclass(frozen=True)
class Affine:
    """A constant and reads times coefficients; None is 0 of the one, and 1 of the others."""

    constant: Tile | None
    reads: Mapping[int, Tile | None]

    def times(self, factor: Tile) -> Affine:
        reads = {read: scaled(factor, one) for read, one in self.reads.items()}
        return Affine(None if self.constant is None else self.constant * factor, reads)

    def plus(self, other: Affine, one: Tile) -> Affine:
        """The sum of two; `one` is the coefficient of what none scales."""
        reads = {**self.reads, **other.reads}
        for read in self.reads.keys() & other.reads.keys():
            reads[read] = scaled(one, self.reads[read]) + scaled(one, other.reads[read])
        return Affine(added(self.constant, other.constant), reads)


def scaled(tile: Tile, coefficient: Tile | None) -> Tile:
    return tile if coefficient is None else tile * coefficient


def added(left: Tile | None, right: Tile | None) -> Tile | None:
    return right if left is None else left if right is None else left + right
