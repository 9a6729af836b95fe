"""Operands of a step's products that are the same at every step, in shared memory from the start.

The blocks of a team share the tiles of a step's products. Each has the same rows of them at every
step, and what these rows read of an input (the weights of a cell) is copied once, ahead of the
first step, to where its warps load it in words: the weights of a recurrent network stay on the chip
(Diamos et al., "Persistent RNNs", 2016).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ir.plain.accesses import every
from ir.plain.code import Loop, PlainKernel, Spread
from ir.plain.products import Product, Products, products_of
from ir.plain.sums import names_of
from ir.targets.cuda.layouts.woven import DEPTH, ROWS
from ir.targets.cuda.plain.plain_products import Key, Side, Tile, held_bytes, key_of

if TYPE_CHECKING:
    from ir.targets.cuda.plain.plain_text import PlainText

_APART = 16  # elements between rows, that lanes' words meet no bank twice


@dataclass(frozen=True)
class Weights:
    """The row operands of one shared loop's products that no step changes, of one in each product;
    `start` is where they begin in shared memory."""

    kernel: PlainKernel
    products: Products
    tile: Tile
    team: int
    start: int
    operands: Mapping[Key, Product]

    @property
    def height(self) -> int:
        """Rows of a tile."""
        return ROWS * self.tile.rows

    @cached_property
    def lines(self) -> int:
        """Tiles along the rows of all products side by side, of which each block has every so
        many-th."""
        batch, down, _ = self.tile.units(self.products)
        return batch * down

    @property
    def own(self) -> int:
        """How many of them a block has."""
        return -(-self.lines // self.team)

    def pitch(self, product: Product) -> int:
        """Elements from row to row."""
        return -(-product.extent // DEPTH) * DEPTH + _APART

    def offset(self, key: Key) -> int:
        """Where an operand begins."""
        before = list(self.operands).index(key)
        return self.start + sum(self._bytes(p) for p in list(self.operands.values())[:before])

    @property
    def bytes(self) -> int:
        return sum(map(self._bytes, self.operands.values()))

    def _bytes(self, product: Product) -> int:
        return self.own * self.height * self.pitch(product) * held_bytes(product)

    def copy(self, text: PlainText) -> None:
        """Write the copies of this block's rows; what lies beyond the ends is 0."""
        assert text.group is not None
        w, (_, down, _) = text.w, self.tile.units(self.products)
        for key, product in self.operands.items():
            side = Side(self.kernel, frozenset(), self.products, product, True)
            raw, depth = side.raw, -(-product.extent // DEPTH) * DEPTH
            assert raw is not None
            total, at = self.own * self.height * depth, text.names.fresh("at")
            row, deep, line = (text.names.fresh(stem) for stem in ("row", "deep", "line"))
            into = text.names.fresh("into")
            kind = "f32" if product.parts[0] > 1 else "u16"
            w.line(f"{kind}* {into} = ({kind}*)(tw_shared_base() + {self.offset(key)});")
            block = text.group.block
            with w.block(f"for (i32 {at} = tw_thread(); {at} < {total}; {at} += {block})"):
                whole = f"{at} / {self.height * depth}"
                if side.runs_along_depth:
                    w.line(f"const i32 {row} = {at} / {depth} % {self.height};")
                    w.line(f"const i32 {deep} = {at} % {depth};")
                else:
                    w.line(f"const i32 {row} = {at} % {self.height};")
                    w.line(f"const i32 {deep} = {at} / {self.height} % {depth};")
                w.line(f"const i32 {line} = {whole} * {self.team} + {text.block_of_team};")
                here = text.names.fresh("at")
                w.line(f"const i32 {here} = {line} % {down} * {self.height} + {row};")
                text.coordinates(self.products.batch, f"({line} / {down})")
                text.coordinates(self.products.rows, here)
                w.line(f"const i64 {text.names[product.depth.name]} = {deep};")
                ends = [f"{line} < {self.lines}", f"{here} < {side.extent}"]
                ends += [f"{deep} < {product.extent}"] if side.ends else []
                value = f"{text.names[raw.array]}[{text.scalars.text(raw.index)}]"
                place = f"({whole} * {self.height} + {row}) * {self.pitch(product)} + {deep}"
                w.line(f"{into}[{place}] = {' && '.join(ends)} ? {value} : ({kind})0;")
        w.line("tw_sync();")


def all_weights(
    kernel: PlainKernel, tile: Tile | None, team: int, start: int, room: int
) -> dict[int, Weights]:
    """Of a team's shared loops in steps, by their identity, as far as there is room."""
    found: dict[int, Weights] = {}
    for spread, variable in _stepped(kernel) if tile and team > 1 else ():
        products = products_of(kernel, spread)
        if products is None or tile is None:
            continue
        own = {
            key_of(product, True): product
            for product in products.products
            if _stays(kernel, products, product, variable)
        }
        one = Weights(kernel, products, tile.within(products), team, start, own)
        if own and one.bytes <= room:
            found[id(spread)] = one
            start, room = start + one.bytes, room - one.bytes
    return found


def _stepped(kernel: PlainKernel) -> Iterator[tuple[Spread, Loop]]:
    """Shared loops in a loop of steps."""
    for loop in (s for s in kernel.body if isinstance(s, Loop)):
        yield from ((s, loop) for s in every(loop.body) if isinstance(s, Spread))


def _stays(kernel: PlainKernel, products: Products, product: Product, loop: Loop) -> bool:
    """Whether the row operand is of an input, at places that no step changes."""
    raw = Side(kernel, frozenset(), products, product, True).raw
    inputs = {spec.name for spec in kernel.tensors if spec.role == "input"}
    if raw is None or raw.array not in inputs:
        return False
    own = (*products.batch, *products.rows, *kernel.points)
    known = {name.name for name, _ in own} | {product.depth.name}
    return {*names_of(raw.index)} <= known - {loop.variable.name}
