"""Outputs whose elements share bytes: the tile of bytes that is stored, made of plain ops.

Each byte is made of its elements by whoever stores it, so that no two threads write one byte. What
is elementwise is computed at each element's place; of what is not, the bits are read there, a byte
for each element. Knows no target.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ir.axes import Axis, IndexExpression
from ir.dtypes import dtype_of
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Iota, Map
from ir.ops.read import Read

if TYPE_CHECKING:
    from ir.builder import Graph
    from ir.tiles import Tile


def packed_bytes(graph: Graph, value: Tile, dtype: str, along: str) -> tuple[Tile, str]:
    """The bytes of a tile of `dtype` along an axis, and their axis."""
    each, bits = dtype_of(dtype).per_byte, dtype_of(dtype).bits
    octet = _octets(graph, along, graph.extents[along] // each)
    code = _code(value, dtype)
    whole = code if _is_elementwise(code, along) else graph.add(Cast("u8"), code)
    total: Tile | None = None
    for place in range(each):
        moved = _Moved(graph, along, octet * each + place)
        part = (moved.tile(code) if whole is code else moved.read(whole)) * (1 << bits * place)
        total = part if total is None else total + part
    assert total is not None
    return graph.add(Cast("u8"), total), octet.name


def _octets(graph: Graph, along: str, extent: int) -> Axis:
    """The axis that counts the bytes of elements along an axis."""
    name = f"{along}_bytes"
    while graph.extents.get(name, extent) != extent:
        name += "_"
    return Axis(name, extent) if name in graph.extents else graph.axis(name, extent)


def _code(value: Tile, dtype: str) -> Tile:
    """The bits of each element, as a whole number."""
    if dtype_of(dtype).kind != "float":
        return value & ((1 << dtype_of(dtype).bits) - 1)
    # twice the size is c, 2 c - 4 or 4 c - 16, whichever is largest; so c is the least of three
    graph = value.graph
    double = graph.add(Cast("i32"), abs(value) * 2.0)
    half, quarter = (double + 4) >> 1, (double + 16) >> 2
    least = graph.add(Map("min"), double, graph.add(Map("min"), half, quarter))
    negative = graph.add(
        Map("where"), value < 0, graph.constant(8, "i32"), graph.constant(0, "i32")
    )
    return least + negative


def _is_elementwise(tile: Tile, along: str) -> bool:
    """Whether a tile can be computed at any place of an axis by itself."""
    from ir.tiles import Tile

    pending, seen = [tile], set[int]()
    while pending:
        one = pending.pop()
        if along not in one.axes or one.position in seen:
            continue
        seen.add(one.position)
        op, positions = tile.graph.node(one)
        if not isinstance(op, Map | Cast | Iota | Load | Read):
            return False
        kept = positions[1:] if isinstance(op, Read) else positions
        pending.extend(Tile(tile.graph, position) for position in kept)
    return True


class _Moved:
    """Tiles of a graph where an axis stands at another place."""

    def __init__(self, graph: Graph, along: str, place: IndexExpression) -> None:
        self.graph, self.along, self.place = graph, along, place
        self.known: dict[int, Tile] = {}

    def tile(self, tile: Tile) -> Tile:
        """What an elementwise tile is at the place."""
        if self.along not in tile.axes:
            return tile
        if tile.position not in self.known:
            self.known[tile.position] = self._found(tile)
        return self.known[tile.position]

    def _found(self, tile: Tile) -> Tile:
        from ir.tiles import Tile

        op, positions = self.graph.node(tile)
        args = [Tile(self.graph, position) for position in positions]
        if isinstance(op, Iota):
            return self.graph.coordinate(self.place)
        if isinstance(op, Map | Cast):
            return self.graph.add(op, *map(self.tile, args))
        if isinstance(op, Load):
            index = tuple(map(self._index, op.index))
            return self.graph.add(replace(op, index=index), *map(self.tile, args))
        assert isinstance(op, Read)
        index = tuple(map(self._index, op.index))
        return self.graph.add(replace(op, index=index), args[0], *map(self.tile, args[1:]))

    def read(self, tile: Tile) -> Tile:
        """A tile in memory at the place."""
        if self.along not in tile.axes:
            return tile
        return tile.at({Axis(self.along, self.graph.extents[self.along]): self.place})

    def _index(self, index: Index) -> Index:
        """An index in which the place stands for the axis."""
        terms = dict(index.terms)
        found = self.place * terms.pop(self.along, 0)
        found = IndexExpression(tuple(terms.items()), index.constant) + found
        return Index(found.terms, found.constant, index.gather)
