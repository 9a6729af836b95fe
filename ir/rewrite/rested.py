"""An axis that is reduced as a head of whole units and the rest: each reduction along it is that of
the head together with that of the rest.

    s = reduce(x[k], kind=sum, over=[k])                            k = 1000
    becomes
    a = reduce(x[k], kind=sum, over=[k])                            k = 960
    b = reduce(x[k_rest + 960], kind=sum, over=[k_rest])            k_rest = 40
    s = map(a, b, function=add)

So the head has equal parts without a mask.
"""

from __future__ import annotations

from dataclasses import replace

from ir.builder import Graph
from ir.dtypes import compute_dtype
from ir.errors import UsageError
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Contract, Reduce
from ir.program import Program
from ir.rewrite.analysis import combined_axes
from ir.rewrite.graft import copy_node
from ir.scalar import COMBINES
from ir.tiles import Tile, apply


def rested(program: Program, axis: str, unit: int) -> Program:
    """The program with `axis` as whole units and the rest; raises UsageError where ops need the
    whole axis, or keep it."""
    return _Rested(program, axis, unit).run()


class _Rested:
    def __init__(self, program: Program, axis: str, unit: int) -> None:
        self.program, self.axis, self.rest = program, axis, f"{axis}_rest"
        extent = program.axes[axis]
        self.head = extent // unit * unit
        if not 0 < self.head < extent or self.rest in program.axes:
            raise UsageError(f"{program.name}: {axis} of {extent} is no units of {unit} and a rest")
        extents: dict[str, int] = {}
        for name, own in program.extents:
            both = {axis: self.head, self.rest: extent - self.head}
            extents |= both if name == axis else {name: own}
        self.graph = Graph.like(program.name, extents, program.tensors, program.pins)
        self.made: list[Tile] = []
        self.rests: dict[int, Tile] = {}  # what else there is of nodes along the axis

    def run(self) -> Program:
        for position, node in enumerate(self.program.nodes):
            args = [self.made[arg] for arg in node.args]
            others = [self.rests.get(arg, self.made[arg]) for arg in node.args]
            own = copy_node(self.graph, self.program, position, args)
            if self.axis in combined_axes(node):
                own = self._both(position, own, others)
            elif self.axis in node.axes:
                self.rests[position] = self._rest(position, others)
            elif any(arg in self.rests for arg in node.args):
                raise UsageError(f"{self.program.name}: {node.op.name} takes {self.axis} whole")
            self.made.append(own)
        return self.graph.program()

    def _both(self, position: int, own: Tile, others: list[Tile]) -> Tile:
        """A reduction of the head with that of the rest."""
        op = self.program.nodes[position].op
        if not isinstance(op, Contract | Reduce) or own.dtype != compute_dtype(own.dtype):
            raise UsageError(f"{self.program.name}: {op.name} takes {self.axis} whole")
        over = tuple(self.rest if name == self.axis else name for name in op.over)
        kind = op.kind if isinstance(op, Reduce) else "sum"
        other = self.graph.add(replace(op, over=over), *others)
        return apply(COMBINES[kind].function, own, other)

    def _rest(self, position: int, others: list[Tile]) -> Tile:
        op = self.program.nodes[position].op
        if isinstance(op, Iota):
            return self.graph.add(Iota(self.rest)) + self.head
        if isinstance(op, Load):
            index = tuple(map(self._index, op.index))
            return self.graph.add(replace(op, index=index), *others)
        if isinstance(op, Contract | Reduce | Map | Cast | Constant):
            return self.graph.add(op, *others)
        raise UsageError(f"{self.program.name}: {op.name} takes {self.axis} whole")

    def _index(self, index: Index) -> Index:
        terms = tuple((self.rest if n == self.axis else n, by) for n, by in index.terms)
        more = sum(by for name, by in index.terms if name == self.axis)
        return replace(index, terms=terms, constant=index.constant + more * self.head)
