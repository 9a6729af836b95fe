"""An axis in equal parts: `k` as `k_part` and `k_in`, one digit each.

Of an axis that is summed only, `parted` makes results of every part and their merge; `cut` only
names the two digits, and `nested` has reductions along both go along the one first. Where a tensor
is read or written along the whole axis and nothing else, its dimension becomes two, of parts and of
points in a part: the same bytes.
"""

from __future__ import annotations

from dataclasses import replace

from ir.builder import Graph
from ir.errors import ProgramError
from ir.ops.base import TensorSpec
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read, is_itself
from ir.ops.reduce import Contract, Reduce
from ir.ops.store import Store
from ir.program import Program
from ir.rewrite.graft import copy_node, read_as
from ir.rewrite.split import split
from ir.tiles import Tile


def parted(program: Program, axis: str, parts: int, unit: int = 1) -> Program:
    """The program with its reductions over `axis` in parts of whole units; raises UsageError as
    `split`."""
    return _Apart(split(program, axis, parts, unit), f"{axis}_part", f"{axis}_in").run()


def cut(program: Program, axis: str, parts: int) -> Program:
    """The program with two axes in the place of `axis`, whose extent `parts` divides; raises
    ProgramError where ops need the whole axis."""
    outer, inner = f"{axis}_part", f"{axis}_in"
    extents: dict[str, int] = {}
    for name, extent in program.extents:
        extents |= {outer: parts, inner: extent // parts} if name == axis else {name: extent}
    length = extents[inner]
    tensors = tuple(_stored_apart(program, spec, axis, parts) for spec in program.tensors)
    graph = Graph.like(program.name, extents, tensors, program.pins)
    made: list[Tile] = []
    for position, node in enumerate(program.nodes):
        args, op = [made[arg] for arg in node.args], node.op
        if isinstance(op, Iota) and op.axis == axis:
            made.append(graph.add(Iota(outer)) * length + graph.add(Iota(inner)))
        elif isinstance(op, Load):
            index = tuple(_digits(one, axis, outer, inner, length) for one in op.index)
            made.append(graph.add(replace(op, index=index), *args))
        elif isinstance(op, Read):
            read = _read_apart(program, op, node.args[0], axis, outer, inner, length)
            made.append(graph.add(read_as(read[0], read[1], args[0]), *args))
        elif isinstance(op, Store):
            axes = _both(op.axes, axis, outer, inner)
            made.append(graph.add(replace(op, axes=axes), *args))
        elif isinstance(op, Contract | Reduce):
            made.append(graph.add(replace(op, over=_both(op.over, axis, outer, inner)), *args))
        elif isinstance(op, Map | Cast | Constant) or axis not in node.axes:
            made.append(copy_node(graph, program, position, args))
        else:
            raise ProgramError(f"{program.name}: {op.name} takes {axis} whole")
    return _Apart(graph.program(), outer, inner).run()


def _read_apart(
    program: Program, op: Read, tile: int, axis: str, outer: str, inner: str, length: int
) -> tuple[Read, tuple[str, ...]]:
    """A read with an axis cut, and the axes that it has an index for: of the cut one itself the
    tile is read where it is, by both of its parts."""
    axes: list[str] = []
    index: list[Index] = []
    for own, one in zip(program.nodes[tile].axes, op.index, strict=True):
        if own != axis:
            axes.append(own)
            index.append(_digits(one, axis, outer, inner, length))
            continue
        if not is_itself(own, one):
            raise ProgramError(f"{program.name}: {op.name} takes {axis} whole")
        axes += [outer, inner]
        index += [Index(((outer, 1),)), Index(((inner, 1),))]
    return replace(op, index=tuple(index)), tuple(axes)


def nested(program: Program, outer: str) -> Program:
    """The program with what it reduces along `outer` and other axes reduced along those first: its
    value for each point of `outer`, and then of these."""
    graph = Graph.like(program.name, dict(program.extents), program.tensors, program.pins)
    made: list[Tile] = []
    for position, node in enumerate(program.nodes):
        args, op = [made[arg] for arg in node.args], node.op
        if isinstance(op, Contract | Reduce) and outer in op.over and len(op.over) > 1:
            inner = replace(op, over=tuple(axis for axis in op.over if axis != outer))
            kind = op.kind if isinstance(op, Reduce) else "sum"
            made.append(graph.add(Reduce(kind, (outer,)), graph.add(inner, *args)))
        else:
            made.append(copy_node(graph, program, position, args))
    return graph.program()


def _both(axes: tuple[str, ...], axis: str, outer: str, inner: str) -> tuple[str, ...]:
    return tuple(x for name in axes for x in ((outer, inner) if name == axis else (name,)))


def _digits(index: Index, axis: str, outer: str, inner: str, length: int) -> Index:
    terms: list[tuple[str, int]] = []
    for name, factor in index.terms:
        own = name == axis
        terms += [(outer, factor * length), (inner, factor)] if own else [(name, factor)]
    return replace(index, terms=tuple(terms))


def _stored_apart(program: Program, spec: TensorSpec, axis: str, parts: int) -> TensorSpec:
    """An output with two dimensions where it was stored along the axis."""
    shape: tuple[int, ...] = ()
    stores = [store for _, store in program.stores() if store.tensor == spec.name]
    for dim, extent in enumerate(spec.shape):
        own = any(store.axes[dim] == axis for store in stores)
        shape += (parts, extent // parts) if own else (extent,)
    return replace(spec, shape=shape)


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
