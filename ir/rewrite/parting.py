"""A summed axis in parts, as programs see it whose tensors have a dimension for the parts.

`split` computes where a point of a part lies; where a tensor is read along the whole axis and
nothing else, its dimension can be two, of parts and of points in a part: the same bytes.
"""

from __future__ import annotations

from dataclasses import replace

from ir.builder import Graph
from ir.ops.base import TensorSpec
from ir.ops.load import Index, Load
from ir.program import Program
from ir.rewrite.graft import copy_node
from ir.rewrite.split import split
from ir.tiles import Tile


def parted(program: Program, axis: str, parts: int) -> Program:
    """The program with its reductions over `axis` in equal parts; raises UsageError as `split`."""
    return _Apart(split(program, axis, parts), f"{axis}_part", f"{axis}_in").run()


class _Apart:
    def __init__(self, program: Program, outer: str, inner: str) -> None:
        self.program = program
        self.parts, self.length = program.axes[outer], program.axes[inner]
        self.whole = Index(((outer, self.length), (inner, 1)))
        self.digits = (Index(((outer, 1),)), Index(((inner, 1),)))
        self.dims = {spec.name: self._dims(spec) for spec in program.tensors}

    def _dims(self, spec: TensorSpec) -> frozenset[int]:
        """The dimensions of a tensor that all who read it read along the whole axis."""
        loads = [
            node.op for node in self.program.nodes
            if isinstance(node.op, Load) and node.op.tensor == spec.name
        ]  # fmt: skip
        return frozenset(
            dim
            for dim, extent in enumerate(spec.shape)
            if loads
            and not spec.packs
            and extent == self.parts * self.length
            and all(load.index[dim] == self.whole for load in loads)
        )

    def run(self) -> Program:
        program = self.program
        tensors = tuple(map(self._spec, program.tensors))
        graph = Graph.like(program.name, dict(program.extents), tensors, program.pins)
        made: list[Tile] = []
        for position, node in enumerate(program.nodes):
            args = [made[arg] for arg in node.args]
            op = node.op
            if isinstance(op, Load) and self.dims[op.tensor]:
                made.append(graph.add(self._load(op), *args))
            else:
                made.append(copy_node(graph, program, position, args))
        return graph.program()

    def _spec(self, spec: TensorSpec) -> TensorSpec:
        shape: tuple[int, ...] = ()
        for dim, extent in enumerate(spec.shape):
            cut = dim in self.dims[spec.name]
            shape += (self.parts, self.length) if cut else (extent,)
        return replace(spec, shape=shape)

    def _load(self, op: Load) -> Load:
        index: tuple[Index, ...] = ()
        for dim, one in enumerate(op.index):
            index += self.digits if dim in self.dims[op.tensor] else (one,)
        return replace(op, index=index)
