"""Analytic costs of the products that plain kernels have on mma.sync."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import dtype_of
from ir.plain.accesses import nested, scalars_of
from ir.plain.code import (
    TENSOR,
    Accumulate,
    Between,
    Call,
    Convert,
    Element,
    Loop,
    Scalar,
    Spread,
    Statement,
)
from ir.plain.products import Product, Products, products_of
from ir.plain.strides import elements, extent_of
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.layouts.woven import COLUMNS, DEPTH, ROWS
from ir.targets.cuda.plain.plain_products import Side, Tile
from ir.targets.cuda.plain.plain_step import PlainStep

_MMA_CLOCKS = 16.0  # of one instruction in a scheduler, of which a processor has four
_SCHEDULERS = 4.0
_WAIT_CLOCKS = {
    True: 250.0,
    False: 40.0,
}  # for operands in memory, and in a block's arrays
_AHEAD = 2.0  # steps whose operands are asked for together
_AROUND = 3.0  # instructions around the load of a word: its place, and what becomes of it
_LINE = 128.0
_REACHED = 1.6  # times what is counted here, as measured on an H100
_ALONE = 3.0  # clocks from one instruction of a warp to the next where few warps are busy


@dataclass(frozen=True)
class ProductCosts:
    """Of a step's products with some tile, in blocks of so many threads, at one point."""

    step: PlainStep
    tile: Tile

    def clocks(self, threads: NDArray[np.float64]) -> NDArray[np.float64]:
        """One after the other in a block."""
        warps, found = threads / WARP, np.zeros(len(threads))
        for often, products in self._all:
            tile = self.tile.within(products)
            batch, down, along = tile.units(products)
            turns = np.ceil(batch * down * along / warps)
            busy_warps = np.minimum(warps, batch * down * along)
            crowd = np.maximum(busy_warps / _SCHEDULERS, 1.0)
            each = np.zeros(len(threads))
            for product in products.products:
                steps = -(-product.extent // DEPTH)
                busy = _issued(self.step, products, product, tile)
                busy = busy + tile.rows * tile.columns * _MMA_CLOCKS * len(product.pairs)
                waits = _WAIT_CLOCKS[self._is_far(product)] / _AHEAD
                each = each + steps * np.maximum(waits, busy * crowd)
            behind = _behind(products) * ROWS * COLUMNS / WARP * tile.rows * tile.columns
            each = each + behind * np.maximum(_ALONE, crowd)
            found = found + often * turns * each
        return _REACHED * found

    @cached_property
    def issued(self) -> float:
        """Instructions of all lanes."""
        found = 0.0
        for often, products in self._all:
            tile = self.tile.within(products)
            batch, down, along = tile.units(products)
            for product in products.products:
                steps = batch * down * along * -(-product.extent // DEPTH)
                mma = tile.rows * tile.columns * _MMA_CLOCKS * len(product.pairs)
                found += often * steps * WARP * (_issued(self.step, products, product, tile) + mma)
            found += often * prod(products.sides) * _behind(products)
        return found

    @cached_property
    def lines(self) -> tuple[float, float]:
        """Lines of memory that warps ask for, and bytes of what is read, an element once a loop."""
        asked = brought = 0.0
        for often, products in self._all:
            tile = self.tile.within(products)
            _, down, along = tile.units(products)
            batch, rows, columns = products.sides
            for product in products.products:
                for value, side, again in (
                    (product.left, rows, along), (product.right, columns, down)
                ):  # fmt: skip
                    size = sum(self._bytes(e) for e in elements((value,)))
                    moved = often * batch * side * product.extent * size
                    asked += 2.0 * moved * again / _LINE
                    brought += moved
        return asked, brought

    @cached_property
    def _all(self) -> list[tuple[float, Products]]:
        return list(_found(self.step, self.step.plain.body, 1.0))

    def _bytes(self, element: Element) -> int:
        arrays = {a.name: a for a in self.step.plain.arrays}
        array = arrays[element.array]
        return dtype_of(array.dtype).bytes if array.place == TENSOR else 0

    def _is_far(self, product: Product) -> bool:
        return any(self._bytes(e) > 0 for e in elements((product.left, product.right)))


def _found(
    step: PlainStep, statements: Iterable[Statement], often: float
) -> Iterator[tuple[float, Products]]:
    """The products in statements that run so often."""
    for s in statements:
        if isinstance(s, Spread):
            products = products_of(step.plain, s)
            if products is not None:
                yield often, products
            continue
        times = extent_of(s) if isinstance(s, Loop | Between | Accumulate) else 1
        for block in nested(s):
            yield from _found(step, block, often * times)


def _behind(products: Products) -> float:
    """Instructions for an element of what a loop does behind its products."""
    return sum(map(_operations, scalars_of_all(products.behind)))


def scalars_of_all(statements: Iterable[Statement]) -> Iterator[Scalar]:
    for s in statements:
        yield from scalars_of(s)


def _operations(scalar: Scalar) -> float:
    """What a scalar is made of; places in tensors are as good as known."""
    match scalar:
        case Call():
            return 1.0 + sum(map(_operations, scalar.args))
        case Convert():
            return 1.0 + _operations(scalar.arg)
        case Element():
            return 2.0
    return 0.0


def _issued(step: PlainStep, products: Products, product: Product, tile: Tile) -> float:
    """Instructions of a lane for the operands of one step along the depth."""
    shared = frozenset(array.name for array in step.shared)
    found = 0.0
    for is_rows in (True, False):
        side = Side(step.plain, shared, products, product, is_rows)
        halves = tile.rows * (ROWS // COLUMNS) if is_rows else tile.columns
        found += halves * side.loads * _AROUND
    return found
