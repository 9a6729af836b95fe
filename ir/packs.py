"""Tensors whose elements share bytes: how these lie there, and how a program reads them.

Along the last dimension, the first element in the low bits of its byte. To every target such a
tensor is one of bytes: a read of it loads a byte, and shifts and casts it. Knows no target.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ir.axes import IndexExpression
from ir.dtypes import compute_dtype, dtype_of, to_float
from ir.errors import ProgramError, UsageError
from ir.ops.base import Array, TensorSpec
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Iota, Map

if TYPE_CHECKING:
    from ir.builder import Graph
    from ir.tiles import Tile


def packed_shape(what: str, shape: tuple[int, ...], dtype: str) -> tuple[int, ...]:
    """The shape in bytes of a tensor of elements that share them."""
    each = dtype_of(dtype).per_byte
    if not shape or shape[-1] % each:
        have = f"its last extent is {shape[-1]}" if shape else "it is a scalar"
        raise UsageError(
            f"{what}: {each} elements of {dtype} share a byte along the last dimension, and "
            f"{have}; make it a multiple of {each}"
        )
    return (*shape[:-1], shape[-1] // each)


def check_packs(spec: TensorSpec) -> None:
    """Raises ProgramError where bytes cannot hold what a tensor is said to hold."""
    if not spec.packs:
        return
    if dtype_of(spec.packs).per_byte == 1:
        raise ProgramError(f"tensor {spec.name}: elements of {spec.packs} share no bytes")
    if spec.dtype != "u8" or not spec.shape:
        raise ProgramError(
            f"tensor {spec.name}: {spec.packs} lie in bytes, u8, with a dimension; it is an "
            f"{spec.role} of {spec.dtype}{list(spec.shape)}"
        )


def pack(elements: Array, dtype: str) -> Array:
    """Bytes of elements in their storage, one a byte; the last extent fills whole bytes."""
    row = dtype_of(dtype)
    parts = elements.view(np.uint8) & np.uint8((1 << row.bits) - 1)
    found: Array = parts[..., :: row.per_byte]
    for place in range(1, row.per_byte):
        found = found | parts[..., place :: row.per_byte] << np.uint8(row.bits * place)
    return found


def unpack(octets: Array, dtype: str) -> Array:
    """The elements of bytes in their storage, one a byte: what `pack` was given."""
    row, octets = dtype_of(dtype), octets.astype(np.uint8)
    parts = [octets >> np.uint8(row.bits * place) for place in range(row.per_byte)]
    fields = np.stack(parts, axis=-1).reshape(*octets.shape[:-1], -1) & (1 << row.bits) - 1
    if row.kind == "float":
        return fields.astype(np.uint8)
    half = 1 << (row.bits - 1)
    signed = (fields.astype(np.int64) ^ half) - half if row.kind == "int" else fields
    return signed.astype(row.storage)


def read_packed(
    graph: Graph, spec: TensorSpec, parts: Sequence[Tile | IndexExpression], fill: float | None
) -> Tile:
    """The elements of a packed tensor at subscripts."""
    return _Read(graph, spec, fill).elements(parts)


class _Read:
    """One read of a tensor of bytes, made of plain ops."""

    def __init__(self, graph: Graph, spec: TensorSpec, fill: float | None) -> None:
        self.graph, self.spec, self.fill = graph, spec, fill
        self.row = dtype_of(spec.packs)
        self.shape = (*spec.shape[:-1], spec.shape[-1] * self.row.per_byte)
        self.inside: Tile | None = None

    def elements(self, parts: Sequence[Tile | IndexExpression]) -> Tile:
        if len(parts) != len(self.shape):
            raise ProgramError(
                f"{self.graph.name}: load {self.spec.name}: {len(parts)} indices for "
                f"{len(self.shape)} dimensions"
            )
        kept = [self._within(dim, part) for dim, part in enumerate(parts)]
        octet, shift = self._split(kept[-1])
        index: list[Index] = []
        tiles: list[Tile] = []
        for part in (*kept[:-1], octet):
            if isinstance(part, IndexExpression):
                index.append(Index(part.terms, part.constant))
            else:
                index.append(Index(gather=len(tiles)))
                tiles.append(part)
        byte = self.graph.add(Load(self.spec.name, tuple(index)), *tiles)
        found = self._decoded(self._apply("shr", byte, shift))
        if self.inside is None:
            return found
        outside = self.graph.constant(self.fill or 0, compute_dtype(self.row.name))
        return self.graph.add(Map("where"), self._ordered(self.inside, byte), found, outside)

    def _ordered(self, inside: Tile, byte: Tile) -> Tile:
        """The condition over the axes of the load in their order, which are then the result's."""
        if inside.axes == byte.axes[: len(inside.axes)]:
            return inside
        known: Tile | None = None
        for axis in byte.axes:
            here = self._apply("le", self.graph.constant(0, "i32"), self.graph.add(Iota(axis)))
            known = here if known is None else self._apply("and", known, here)
        assert known is not None
        return self._apply("and", known, inside)

    def _apply(self, function: str, left: Tile, right: Tile | int) -> Tile:
        if isinstance(right, int):
            right = self.graph.constant(right, "i32")
        return self.graph.add(Map(function), left, right)

    # -- where an element lies

    def _within(self, dim: int, part: Tile | IndexExpression) -> Tile | IndexExpression:
        """A subscript that is inside; `inside` says where it was before."""
        extent = self.shape[dim]
        if isinstance(part, IndexExpression):
            low, high = self._bounds(part)
            if low >= 0 and high < extent:
                return part
            if self.fill is None:
                raise ProgramError(
                    f"{self.graph.name}: load {self.spec.name}: index "
                    f"{Index(part.terms, part.constant)} of dimension {dim} spans {low}..{high}, "
                    f"the extent is {extent}; give fill= to read outside"
                )
            part = self.graph.coordinate(part)
        elif dtype_of(part.dtype).kind not in ("int", "uint"):
            raise ProgramError(
                f"{self.graph.name}: load {self.spec.name}: index tile of dimension {dim} is not "
                "int"
            )
        if self.fill is None:
            return part
        least, most = (self.graph.constant(end, "i32") for end in (0, extent - 1))
        here = self._apply("min", self._apply("max", part, least), most)
        same = self._apply("eq", here, part)
        self.inside = same if self.inside is None else self._apply("and", self.inside, same)
        return here

    def _bounds(self, part: IndexExpression) -> tuple[int, int]:
        low = high = part.constant
        for axis, coefficient in part.terms:
            reach = coefficient * (self.graph.extents[axis] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    def _split(self, part: Tile | IndexExpression) -> tuple[Tile | IndexExpression, Tile]:
        """The byte of an element of the last dimension, and by how much it is shifted there.

        An index whose terms count whole bytes, or elements of one byte, stays an affine one.
        """
        each = self.row.per_byte
        if isinstance(part, IndexExpression):
            whole = tuple((axis, c // each) for axis, c in part.terms if c % each == 0)
            octets, place = divmod(part.constant, each)
            rest = IndexExpression(tuple(t for t in part.terms if t[1] % each), place)
            low, high = self._bounds(rest)
            if low >= 0 and high < each:
                shift = self.graph.coordinate(rest * self.row.bits)
                return IndexExpression(whole, octets), shift
            part = self.graph.coordinate(part)
        octet = self._apply("shr", part, each.bit_length() - 1)
        place_of = self._apply("bitand", part, each - 1)
        return octet, self._apply("mul", place_of, self.row.bits)

    # -- what it is

    def _decoded(self, bits: Tile) -> Tile:
        """The number in the low bits."""
        if self.row.kind != "float":
            return self.graph.add(Cast(self.row.name), bits)
        code = self._apply("bitand", bits, (1 << self.row.bits) - 1)
        return self.graph.add(Map("lookup", "f32", _numbers(self.row.name)), code)


@cache
def _numbers(dtype: str) -> tuple[float, ...]:
    """What the patterns of a float that shares bytes stand for; both zeros are one."""
    patterns = np.arange(1 << dtype_of(dtype).bits, dtype=np.uint8)
    return tuple(float(number) + 0.0 for number in to_float(patterns, dtype))
