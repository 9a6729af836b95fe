"""A program whose axes are cut into chunks, and a state that goes from chunk to chunk."""

from __future__ import annotations

from collections.abc import Mapping

from ir.axes import Axis
from ir.builder import Graph
from ir.folding import cumulative, recurrence
from ir.ops.store import Store
from ir.program import Program
from ir.rewrite.graft import copy_node
from ir.rewrite.substitution import Place, Substitution, cut_tensors, reshaped
from ir.tiles import Tile


class Cut:
    """A graph in which axes of one length are cut into chunks."""

    def __init__(self, program: Program, axes: tuple[str, ...], chunk: int, whole: bool) -> None:
        """With `whole`, inputs keep their dimensions; the first axis is that of outputs."""
        extent = program.axes[axes[0]]
        self.count, self.length = extent // chunk, chunk
        dims = cut_tensors(program, dict.fromkeys(axes, chunk))
        if whole:
            dims |= {spec.name: () for spec in program.inputs}
        taken = set(program.axes)
        self.outer = fresh("chunk", taken)
        self.inner = tuple(fresh(f"{axis}_in", taken) for axis in axes)
        extents = {**program.axes, self.outer: self.count, **dict.fromkeys(self.inner, chunk)}
        tensors = reshaped(program.tensors, dims, chunk)
        self.graph = Graph.like(program.name, extents, tensors, program.pins)
        bound = {axes[0]: self.place(self.inner[0])}
        self.values = Substitution(program, self.graph, dims, bound)

    def apart(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        """Axes as long as these that nothing else has."""
        taken = set(self.graph.extents)
        names = tuple(fresh(f"{axis}_state", taken) for axis in axes)
        for axis, name in zip(axes, names, strict=True):
            self.graph.axis(name, self.graph.extents[axis])
        return names

    def axis(self, name: str) -> Axis:
        return Axis(name, self.graph.extents[name])

    def place(self, inner: str) -> Place:
        """Every point of a chunk."""
        return Place(self.outer, self.length, inner)

    @property
    def last(self) -> Place:
        """The end of a chunk."""
        return Place(self.outer, self.length, constant=self.length - 1)

    @property
    def before(self) -> Place:
        """The end of the chunk before; of none, in front of the first."""
        return Place(self.outer, self.length, constant=-1, fill=True)

    def state(self, factor: Tile | None, added: Tile) -> Tile:
        """What there is behind each chunk."""
        along = self.axis(self.outer)
        if factor is None:
            return cumulative("sum", added, along)
        return recurrence(factor, added, along)

    def handed(self, state: Tile) -> Tile:
        """What there is in front of each chunk."""
        along = self.axis(self.outer)
        return state.at({along: along - 1}, fill=0)

    def finished(self, places: Mapping[str, Place]) -> Program:
        """The program with all outputs stored where the axes are cut."""
        for position, node in enumerate(self.values.program.nodes):
            if isinstance(node.op, Store):
                self.values.at(position, places)
        return pruned(self.graph.program())


def pruned(program: Program) -> Program:
    """The program without axes that nothing has."""
    used = {axis for node in program.nodes for axis in node.axes}
    extents = {axis: extent for axis, extent in program.extents if axis in used}
    graph = Graph.like(program.name, extents, program.tensors, program.pins)
    made: list[Tile] = []
    for position, node in enumerate(program.nodes):
        made.append(copy_node(graph, program, position, [made[arg] for arg in node.args]))
    return graph.program()


def fresh(stem: str, taken: set[str]) -> str:
    """A name that is not taken yet, which it is then."""
    name, number = stem, 1
    while name in taken:
        name, number = f"{stem}{number}", number + 1
    taken.add(name)
    return name
