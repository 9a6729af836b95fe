"""Tiles read at other points of their own rows: a group of threads has a row, with all that is
computed of it in arrays of its own, one stage after the other.

A value that is read elsewhere is kept in an array until the last stage that reads it; what else
there is, is computed where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ir.dtypes import dtype_of
from ir.loops import entangled
from ir.ops.load import Load
from ir.ops.map import Constant, Iota
from ir.ops.read import Read
from ir.ops.store import Store
from ir.plain.block import Block
from ir.plain.code import GROUP, Array, Element, PlainKernel, Scalar, Spread, Write
from ir.plain.scalars import flat, index
from ir.plain.values import Given, Point, Values
from ir.program import Program

_ANYWHERE = (Load, Constant, Iota)  # what is read elsewhere without an array


@dataclass(frozen=True, slots=True)
class Chain:
    """The plan: `points` are axes along which nothing is read elsewhere, a group for each of their
    points; `stages` are what arrays are written in, and outputs, at a time; `arrays` has for each
    kept node the number of its array, `sizes` dtype and elements of these."""

    points: tuple[str, ...]
    stages: tuple[tuple[int, ...], ...]
    arrays: tuple[tuple[int, int], ...]
    sizes: tuple[tuple[str, int], ...]

    @property
    def bytes(self) -> int:
        return sum(dtype_of(dtype).bytes * count for dtype, count in self.sizes)

    def own(self, axes: Sequence[str]) -> tuple[str, ...]:
        """Of axes those that an array has."""
        return tuple(axis for axis in axes if axis not in self.points)


def chain_of(program: Program) -> Chain:
    """Plan the stages of a program of reads and what is elementwise."""
    return _Planner(program).chain()


class _Planner:
    def __init__(self, program: Program) -> None:
        self.program, self.nodes = program, program.nodes
        reads = [node for node in self.nodes if isinstance(node.op, Read)]
        found = {node.args[0] for node in reads}
        self.kept = sorted(p for p in found if not isinstance(self.nodes[p].op, _ANYWHERE))
        self.roots = [*self.kept, *(position for position, _ in program.stores())]
        moved = (entangled(program, node) for node in reads if node.args[0] in self.kept)
        gone = frozenset[str]().union(*moved)
        shared = [set(self.nodes[root].axes) for root in self.roots]
        first = self.nodes[self.roots[-1]].axes
        self.points = tuple(axis for axis in first if axis in set.intersection(*shared) - gone)

    def chain(self) -> Chain:
        stage = self._stages()
        last = self._last(stage)
        arrays, sizes = dict[int, int](), list[tuple[str, int]]()
        free: dict[int, int] = {}  # from when on an array may be written again
        for place in sorted(self.kept, key=lambda place: stage[place]):
            like = self._size(place)
            mine = (n for n, size in enumerate(sizes) if size == like and free[n] < stage[place])
            number = next(mine, len(sizes))
            if number == len(sizes):
                sizes.append(like)
            arrays[place], free[number] = number, last[place]
        count = 1 + max(stage[root] for root in self.roots)
        stages = tuple(tuple(r for r in self.roots if stage[r] == n) for n in range(count))
        return Chain(self.points, stages, tuple(arrays.items()), tuple(sizes))

    def _size(self, position: int) -> tuple[str, int]:
        node = self.nodes[position]
        own = [axis for axis in node.axes if axis not in self.points]
        return node.dtype, math.prod(self.program.axes[axis] for axis in own)

    def _stages(self) -> list[int]:
        """How many stages each value has to wait for."""
        found: list[int] = []
        for node in self.nodes:
            found.append(max((found[a] + (a in self.kept) for a in node.args), default=0))
        return found

    def _last(self, stage: Sequence[int]) -> dict[int, int]:
        """The last stage that reads each array, or writes it."""
        found = {place: stage[place] for place in self.kept}
        for root in self.roots:
            pending, seen = list(self.nodes[root].args), set[int]()
            while pending:
                here = pending.pop()
                if here in seen:
                    continue
                seen.add(here)
                if here in found:
                    found[here] = max(found[here], stage[root])
                else:
                    pending.extend(self.nodes[here].args)
        return found


def chain_kernel(values: Values) -> PlainKernel:
    """The stages of a program's reads, by groups of threads."""
    return _Stages(values, chain_of(values.program)).kernel()


class _Stages:
    def __init__(self, values: Values, chain: Chain) -> None:
        self.values, self.chain, self.program = values, chain, values.program
        self.points = values.points(chain.points)
        arrays = [values.array("row", dtype, count, GROUP) for dtype, count in chain.sizes]
        self.arrays = {place: arrays[number] for place, number in chain.arrays}
        self.block = Block(values.names)

    def kernel(self) -> PlainKernel:
        for stage in self.chain.stages:
            for together in self._alike(stage):
                self._spread(together)
            for place in stage:
                if place in self.arrays:
                    self.values.given[place] = self._element(place)
        return self.values.kernel(self.points, self.block, True)

    def _alike(self, stage: Sequence[int]) -> Iterator[list[int]]:
        """Arrays, and outputs, over the same points."""
        known: dict[tuple[bool, tuple[str, ...]], list[int]] = {}
        for place in stage:
            known.setdefault((place in self.arrays, self._own(place)), []).append(place)
        yield from known.values()

    def _own(self, place: int) -> tuple[str, ...]:
        """The axes of an array, or of an output in the order of its dimensions."""
        node = self.program.nodes[place]
        return self.chain.own(node.op.axes if isinstance(node.op, Store) else node.axes)

    def _spread(self, together: Sequence[int]) -> None:
        inner, own = self.block.inner(), self._own(together[0])
        extents = self.program.axes
        wide = {axis: self.block.variable(axis) for axis in own if extents[axis] > 1}
        at: Point = {**self.points, **dict.fromkeys(own, index(0)), **wide}
        self._write(inner, together, at)
        variables = tuple((name, extents[axis]) for axis, name in wide.items())
        self.block.add(Spread(variables, inner.body))

    def _write(self, inner: Block, together: Sequence[int], at: Point) -> None:
        """All elements at a point are known before one of them is written."""
        arrays = [place for place in together if place in self.arrays]
        found = [inner.let(self.values.value(inner, place, at)) for place in arrays]
        for place, value in zip(arrays, found, strict=True):
            inner.add(Write(self.arrays[place].name, self._index(place, at), value))
        for place in together:
            if place not in self.arrays:
                self.values.write(inner, place, at)

    def _index(self, position: int, at: Point) -> Scalar:
        own = self.chain.own(self.program.nodes[position].axes)
        return flat([at[axis] for axis in own], self.program.scope.shape(own))

    def _element(self, position: int) -> Given:
        array: Array = self.arrays[position]
        dtype = self.values.dtype(position)
        return lambda _, at: Element(array.name, self._index(position, at), dtype)
