"""Axes replaced by affine expressions of others: values of a program at other points.

`t -> 64 c + i` cuts an axis into chunks; `t -> 64 c - 1` is the last point of the chunk before.
What goes along a replaced axis in its order (folds, states, tiles that are read elsewhere) is
computed whole, and read at those points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ir.builder import Graph
from ir.ops.base import TensorSpec
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.reduce import Contract, Reduce
from ir.ops.store import Store
from ir.program import Program
from ir.rewrite.graft import read_as
from ir.tiles import Tile


class Unsplit(Exception):
    """Internal: a value that cannot be had at other points; the message says which node."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an axis is read: `chunk` times the coordinate of `outer`, plus that of `inner`, if
    there is one, plus `constant`. With `fill` it may lie outside, where what is read is 0."""

    outer: str
    chunk: int
    inner: str = ""
    constant: int = 0
    fill: bool = False

    @property
    def terms(self) -> tuple[tuple[str, int], ...]:
        inner = ((self.inner, 1),) if self.inner else ()
        return ((self.outer, self.chunk), *inner)

    @property
    def axes(self) -> tuple[str, ...]:
        return (self.outer, *((self.inner,) if self.inner else ()))

    @property
    def digits(self) -> tuple[Index, Index]:
        """The chunk's number, and the place in it."""
        before, place = divmod(self.constant, self.chunk)
        inner = ((self.inner, 1),) if self.inner else ()
        return Index(((self.outer, 1),), before), Index(inner, place)


def cut_tensors(program: Program, axes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The dimensions, by tensor, along which `axes` are read and stored as they are and nothing
    else is: there a chunk and a place in it may be two dimensions."""
    found: dict[str, tuple[int, ...]] = {}
    for spec in program.tensors:
        uses = [
            node.op.index for node in program.nodes
            if isinstance(node.op, Load) and node.op.tensor == spec.name
        ]  # fmt: skip
        uses += [
            tuple(Index(((axis, 1),)) for axis in store.axes)
            for _, store in program.stores() if store.tensor == spec.name
        ]  # fmt: skip
        found[spec.name] = tuple(
            dim
            for dim, extent in enumerate(spec.shape)
            if uses
            and not spec.packs
            and all(_is_cut(use[dim], axes, program, extent) for use in uses)
        )
    return found


def _is_cut(index: Index, axes: Mapping[str, int], program: Program, extent: int) -> bool:
    plain = len(index.terms) == 1 and index.constant == 0 and index.gather is None
    if not plain:
        return False
    ((axis, coefficient),) = index.terms
    return coefficient == 1 and axis in axes and program.axes[axis] == extent


def reshaped(
    tensors: tuple[TensorSpec, ...], dims: Mapping[str, tuple[int, ...]], chunk: int
) -> tuple[TensorSpec, ...]:
    """Tensors with these dimensions in two, of chunks and of places in a chunk."""
    found = []
    for spec in tensors:
        shape: tuple[int, ...] = ()
        for dim, extent in enumerate(spec.shape):
            cut = dim in dims[spec.name]
            shape += (extent // chunk, chunk) if cut else (extent,)
        found.append(replace(spec, shape=shape))
    return tuple(found)


class Substitution:
    """Values of a program in a new graph, whose tensors are cut along `dims`.

    Sums over an axis in `bound` are over its places instead.
    """

    def __init__(
        self,
        program: Program,
        graph: Graph,
        dims: Mapping[str, tuple[int, ...]],
        bound: Mapping[str, Place],
    ) -> None:
        self.program, self.graph, self.dims, self.bound = program, graph, dims, bound
        self.known: dict[tuple[int, tuple[tuple[str, Place], ...]], Tile] = {}

    def at(self, position: int, places: Mapping[str, Place]) -> Tile:
        """A node's value where its axes are replaced; raises Unsplit."""
        key = self._key(position, places)
        if key not in self.known:
            self.known[key] = self._made(position, dict(key[1]))
        return self.known[key]

    def give(self, position: int, places: Mapping[str, Place], tile: Tile) -> None:
        """What a node's value is to be, where its axes are replaced so."""
        self.known[self._key(position, places)] = tile

    def _key(
        self, position: int, places: Mapping[str, Place]
    ) -> tuple[int, tuple[tuple[str, Place], ...]]:
        axes = self.program.nodes[position].axes
        return position, tuple((axis, places[axis]) for axis in sorted(axes) if axis in places)

    def _made(self, position: int, places: Mapping[str, Place]) -> Tile:
        node = self.program.nodes[position]
        op = node.op
        if isinstance(op, Load):
            return self._load(op, node.args, places)
        if isinstance(op, Iota):
            return self._iota(op, places)
        if isinstance(op, Map | Cast | Constant):
            return self.graph.add(op, *(self.at(arg, places) for arg in node.args))
        if isinstance(op, Reduce | Contract):
            return self._sum(op, node.args, places)
        if isinstance(op, Store):
            return self._store(op, node.args[0], places)
        if isinstance(op, Read):
            first, *tiles = node.args
            tile = self.at(first, {})
            own = read_as(op, self.program.nodes[first].axes, tile)
            index = tuple(self._moved(one, places) for one in own.index)
            rest = [self.at(arg, places) for arg in tiles]
            return self.graph.add(Read(index, self._fill(op.fill, places)), tile, *rest)
        if not places:
            return self.graph.add(op, *(self.at(arg, {}) for arg in node.args))
        return self._read(position, places)

    def _read(self, position: int, places: Mapping[str, Place]) -> Tile:
        """A value that is computed whole, at the places."""
        whole = self.at(position, {})
        index = tuple(self._moved(Index(((axis, 1),)), places) for axis in whole.axes)
        return self.graph.add(Read(index, self._fill(None, places)), whole)

    def _fill(self, given: float | None, places: Mapping[str, Place]) -> float | None:
        return 0.0 if given is None and any(place.fill for place in places.values()) else given

    def _moved(self, index: Index, places: Mapping[str, Place]) -> Index:
        terms: dict[str, int] = {}
        constant = index.constant
        for axis, coefficient in index.terms:
            place = places.get(axis)
            for name, factor in place.terms if place else ((axis, 1),):
                terms[name] = terms.get(name, 0) + factor * coefficient
            constant += coefficient * place.constant if place else 0
        return Index(tuple(terms.items()), constant, index.gather)

    def _load(self, op: Load, args: tuple[int, ...], places: Mapping[str, Place]) -> Tile:
        index: list[Index] = []
        for dim, one in enumerate(op.index):
            if dim not in self.dims[op.tensor]:
                index.append(self._moved(one, places))
                continue
            place = places.get(one.terms[0][0])
            if place is None:
                raise Unsplit(f"load {op.tensor}: whole and in chunks")
            index.extend(place.digits)
        fill = self._fill(op.fill, places)
        return self.graph.add(
            Load(op.tensor, tuple(index), fill), *(self.at(a, places) for a in args)
        )

    def _iota(self, op: Iota, places: Mapping[str, Place]) -> Tile:
        place = places.get(op.axis)
        if place is None:
            return self.graph.add(op)
        found = self.graph.add(Iota(place.outer)) * place.chunk + place.constant
        return found + self.graph.add(Iota(place.inner)) if place.inner else found

    def _sum(
        self, op: Reduce | Contract, args: tuple[int, ...], places: Mapping[str, Place]
    ) -> Tile:
        inside = {**places, **{axis: self.bound[axis] for axis in op.over if axis in self.bound}}
        over = tuple(
            name for axis in op.over for name in (inside[axis].axes if axis in inside else (axis,))
        )
        return self.graph.add(replace(op, over=over), *(self.at(arg, inside) for arg in args))

    def _store(self, op: Store, arg: int, places: Mapping[str, Place]) -> Tile:
        axes = tuple(
            name for axis in op.axes for name in (places[axis].axes if axis in places else (axis,))
        )
        return self.graph.add(Store(op.tensor, axes), self.at(arg, places))
