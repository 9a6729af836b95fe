"""Stored axes under names of their own, apart from those that sums go over.

Where a row is divided by its sum, each stored point needs the whole row, but not the other points'
quotients. With another name for the axis where it is stored, a few of its points can be had.
"""

from __future__ import annotations

from dataclasses import replace

from ir.builder import Graph
from ir.ops.base import Op
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Contract, Reduce
from ir.ops.store import Store
from ir.program import Program
from ir.rewrite.cutting import fresh
from ir.tiles import Tile

_KNOWN = (Load, Map, Cast, Constant, Iota, Reduce, Contract, Store)


def unsummed(program: Program) -> Program:
    """The program with a new name for every axis that is both summed and stored, where it is
    stored; the same program if there is none, or an op that takes an axis in its order."""
    if not all(isinstance(node.op, _KNOWN) for node in program.nodes):
        return program
    summed = {a for n in program.nodes if isinstance(n.op, Reduce | Contract) for a in n.op.over}
    stored = dict.fromkeys(axis for _, store in program.stores() for axis in store.axes)
    both = tuple(axis for axis in stored if axis in summed)
    return _Renamed(program, both).run() if both else program


class _Renamed:
    def __init__(self, program: Program, axes: tuple[str, ...]) -> None:
        taken = set(program.axes)
        self.program = program
        self.names = {axis: fresh(f"{axis}_stored", taken) for axis in axes}
        new = {name: program.axes[axis] for axis, name in self.names.items()}
        extents = {**program.axes, **new}
        self.graph = Graph.like(program.name, extents, program.tensors, program.pins)
        self.known: dict[tuple[int, frozenset[str]], Tile] = {}

    def run(self) -> Program:
        for position, store in self.program.stores():
            (value,) = self.program.nodes[position].args
            axes = tuple(self.names.get(axis, axis) for axis in store.axes)
            self.graph.add(replace(store, axes=axes), self.tile(value, frozenset(self.names)))
        return self.graph.program()

    def tile(self, position: int, stored: frozenset[str]) -> Tile:
        """A node's value, those of its axes that are `stored` by their new names: what it sums
        over is none of them."""
        own = stored & {*self.program.nodes[position].axes}
        key = position, own
        if key not in self.known:
            node = self.program.nodes[position]
            args = [self.tile(arg, own) for arg in node.args]
            self.known[key] = self.graph.add(self._op(node.op, own), *args)
        return self.known[key]

    def _op(self, op: Op, own: frozenset[str]) -> Op:
        if isinstance(op, Iota) and op.axis in own:
            return Iota(self.names[op.axis])
        if isinstance(op, Load):
            return replace(op, index=tuple(self._index(one, own) for one in op.index))
        return op

    def _index(self, index: Index, own: frozenset[str]) -> Index:
        terms = ((self.names[a] if a in own else a, factor) for a, factor in index.terms)
        return replace(index, terms=tuple(terms))
