"""A program without the axes that have no point: what kernels are generated of.

Where `%2 = contract(%0, %1, over=[k]) -> f32(m, n)` was with `axis k = 0`, there is 0 at each point
of m and n. Inputs, and outputs without an element, stay tensors of the program that nothing reads
or stores.
"""

from __future__ import annotations

from functools import lru_cache

from ir.builder import Graph
from ir.errors import ProgramError
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.recur import Recur
from ir.ops.reduce import Carry, Contract, Reduce
from ir.ops.scatter import Scatter, nothing_sent
from ir.ops.store import Store
from ir.program import Node, Program
from ir.scalar import COMBINES
from ir.tiles import Tile


@lru_cache(maxsize=256)
def inhabited(program: Program) -> Program:
    """The same outputs' elements, from axes of at least one point; UsageError without any."""
    program.refuse_void()
    if all(extent for _, extent in program.extents):
        return program
    return _Inhabited(program).run()


class _Inhabited:
    def __init__(self, program: Program) -> None:
        self.program, self.nodes = program, program.nodes
        self.empty = {axis for axis, extent in program.extents if not extent}
        extents = {axis: extent for axis, extent in program.extents if extent}
        self.graph = Graph.like(program.name, extents, program.tensors, program.pins)

    def run(self) -> Program:
        made: dict[int, Tile] = {}
        for position in sorted(self._needed()):
            node = self.nodes[position]
            if self._ends(node):
                made[position] = self._without(node, made)
            else:
                made[position] = self.graph.add(node.op, *(made[arg] for arg in node.args))
        return self.graph.program()

    def _needed(self) -> set[int]:
        """The nodes that elements are made of; behind what combines nothing there are none."""
        steps: dict[int, list[int]] = {}
        pending = []
        for position, node in enumerate(self.nodes):
            if isinstance(node.op, Recur):
                steps.setdefault(node.args[0], []).append(position)
            elif isinstance(node.op, Store) and not self._void(node):
                pending.append(position)
        found: set[int] = set()
        while pending:
            position = pending.pop()
            if position not in found:
                found.add(position)
                node = self.nodes[position]
                pending += self._first(node) if self._ends(node) else node.args
                pending += steps.get(position, ())
        return found

    def _void(self, node: Node) -> bool:
        return bool(self.empty & set(node.axes))

    def _ends(self, node: Node) -> bool:
        """Whether a node with elements is made of a tile without any."""
        if isinstance(node.op, Scatter):
            types = [self.nodes[arg].type for arg in node.args]
            return bool(self.empty & set(node.op.sources(types)))
        return any(self._void(self.nodes[arg]) for arg in node.args)

    def _first(self, node: Node) -> tuple[int, ...]:
        """What a state is before the first step, where there is none."""
        return self.nodes[node.args[0]].args if isinstance(node.op, Recur) else ()

    def _without(self, node: Node, made: dict[int, Tile]) -> Tile:
        """What combining nothing gives."""
        op, dtype = node.op, node.dtype
        if isinstance(op, Recur):
            (first,) = self._first(node)
            same = made[first].dtype == dtype
            return made[first] if same else self.graph.add(Cast(dtype), made[first])
        if isinstance(op, Contract):
            return self._number(0, node)
        if isinstance(op, Reduce | Carry):
            return self._number(COMBINES[op.kind].identity, node)
        if isinstance(op, Scatter):
            return self._number(nothing_sent(op.kind, dtype), node)
        if isinstance(op, Read) and op.fill is not None:
            return self._number(op.fill, node)
        raise ProgramError(f"{self.program.name}: {op.name}: there is nothing it could give")

    def _number(self, value: float, node: Node) -> Tile:
        """A number at each point of a node's axes, in their order."""
        found = self.graph.add(Constant(value, node.dtype))
        known: Tile | None = None
        for axis in node.axes:
            here = self.graph.add(Iota(axis)) >= 0
            known = here if known is None else known & here
        return found if known is None else self.graph.add(Map("where"), known, found, found)
