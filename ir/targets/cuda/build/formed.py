"""Operands that are formed in shared memory, on the way from memory to tensor cores.

A value that is made point by point of one tensor, and that products read, need not go through
memory: its tensor's tiles come as they are stored, and threads beside those that multiply make the
operand's tiles of them. Knows no schedule and no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from ir.dtypes import dtype_of
from ir.ops.base import TensorSpec
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Map
from ir.ops.reduce import Contract
from ir.ops.store import Store
from ir.program import Node, Program
from ir.targets.cuda.build.computed import SMALL, WORD
from ir.targets.cuda.build.products import STRIDE_UNIT, copy_problem, volume


@dataclass(frozen=True, slots=True)
class Former:
    """What makes the tiles of `tensor`: `program` stores it, `load` is what is copied for it."""

    tensor: str
    program: Program
    load: int

    @property
    def root(self) -> int:
        """What is stored."""
        ((position, _),) = self.program.stores()
        return self.program.nodes[position].args[0]

    @property
    def dtype(self) -> str:
        """Of what is stored."""
        return self.program.scope.tensors[self.tensor].dtype

    @property
    def moved(self) -> int:
        """Bytes that are read for it, of which none are written."""
        own = self.program.scope.tensors[self.tensor]
        return self.program.bytes - prod(own.shape) * dtype_of(own.dtype).bytes


MOVABLE = 2  # bytes of elements that products take along any axis

Formed = tuple[Program, tuple[Former, ...]]


def absorbed(parts: Sequence[Program], outputs: frozenset[str]) -> tuple[Formed, ...]:
    """Kernels of a program in order, each with what is formed in it; `outputs` are stored anyway.

    A part goes where it is read, if only products of one later part read what it makes, whose axes
    are then in the order in which its source lies.
    """
    parts = list(parts)
    formers: dict[int, list[Former]] = {}
    gone: set[int] = set()
    for number, part in enumerate(parts):
        former = _former_of(part)
        if former is None or former.tensor in outputs:
            continue
        readers = [n for n, other in enumerate(parts) if _reads(other, former.tensor)]
        if len(readers) == 1 and _products_read(parts[readers[0]], former):
            former = _as_it_lies(former)
            parts[readers[0]] = _reading(parts[readers[0]], former)
            formers.setdefault(readers[0], []).append(former)
            gone.add(number)
    return tuple(
        (part, tuple(formers.get(number, ())))
        for number, part in enumerate(parts)
        if number not in gone
    )


def _former_of(part: Program) -> Former | None:
    """How a part makes its one output of one tensor, point by point, if it does."""
    stores = [*part.stores()]
    plain = all(isinstance(n.op, Load | Cast | Map | Constant | Store) for n in part.nodes)
    if len(stores) != 1 or not plain or any(_looks_up(part, n) for n in range(len(part.nodes))):
        return None
    ((_, store),) = stores
    loads = [n for n, node in enumerate(part.nodes) if isinstance(node.op, Load)]
    whole = [n for n in loads if {*part.nodes[n].axes} == {*store.axes}]
    points = volume(part, store.axes)
    small = all(SMALL * volume(part, part.nodes[n].axes) <= points for n in loads if n not in whole)
    if len(whole) != 1 or not small or not store.axes:
        return None
    op = part.nodes[whole[0]].op
    assert isinstance(op, Load)
    spec = part.scope.tensors[op.tensor]
    single = all(len(one.terms) <= 1 for one in op.index) and op.index[-1].terms
    if not single or dtype_of(spec.dtype).bytes > WORD or copy_problem(part, whole[0]):
        return None
    made = dtype_of(part.scope.tensors[store.tensor].dtype).bytes
    run = op.index[-1] == Index(((store.axes[-1], 1),))
    return Former(store.tensor, part, whole[0]) if run or made == MOVABLE else None


def _looks_up(part: Program, position: int) -> bool:
    """Whether a load's index is a value, or its points may lie outside."""
    op, args = part.nodes[position].op, part.nodes[position].args
    return isinstance(op, Load) and (bool(args) or op.fill is not None)


def _reads(part: Program, tensor: str) -> bool:
    return any(isinstance(n.op, Load) and n.op.tensor == tensor for n in part.nodes)


def _products_read(part: Program, former: Former) -> bool:
    """Whether products, and nothing else, read a tensor, along its axes as they are."""
    ((_, store),) = former.program.stores()
    index = tuple(Index(((axis, 1),)) for axis in store.axes)
    for position, node in enumerate(part.nodes):
        if not isinstance(node.op, Load) or node.op.tensor != former.tensor:
            continue
        users = [part.nodes[user] for user in part.users(position)]
        if node.op.index != index or not all(isinstance(user.op, Contract) for user in users):
            return False
    return all(part.axes[axis] == former.program.axes[axis] for axis in store.axes)


def _as_it_lies(former: Former) -> Former:
    """The same with its operand's axes in the order of its source's."""
    program = former.program
    ((position, store),) = program.stores()
    op = program.nodes[former.load].op
    assert isinstance(op, Load)
    axes = tuple(axis for index in op.index for axis, _ in index.terms)
    if axes == store.axes:
        return former
    spec = _spec_over(program.scope.tensors[store.tensor], axes, program)
    node = program.nodes[position]
    nodes = list(program.nodes)
    nodes[position] = replace(
        node, op=replace(store, axes=axes), type=replace(node.type, axes=axes)
    )
    return replace(former, program=_with(program, spec, nodes))


def _reading(part: Program, former: Former) -> Program:
    """A part that reads an operand whose axes are in the order of its former's."""
    ((_, store),) = former.program.stores()
    index = tuple(Index(((axis, 1),)) for axis in store.axes)
    nodes = [
        replace(node, op=replace(node.op, index=index), type=replace(node.type, axes=store.axes))
        if isinstance(node.op, Load) and node.op.tensor == former.tensor
        else node
        for node in part.nodes
    ]
    spec = replace(former.program.scope.tensors[former.tensor], role="input")
    return _with(part, spec, nodes)


def _spec_over(spec: TensorSpec, axes: tuple[str, ...], program: Program) -> TensorSpec:
    """A tensor over axes in some order; its rows are whole units of 16 bytes, as a map's are."""
    unit = STRIDE_UNIT // dtype_of(spec.dtype).bytes or 1
    *outer, last = (program.axes[axis] for axis in axes)
    return replace(spec, shape=(*outer, -(-last // unit) * unit))


def _with(program: Program, spec: TensorSpec, nodes: Sequence[Node]) -> Program:
    tensors = tuple(spec if one.name == spec.name else one for one in program.tensors)
    return replace(program, tensors=tensors, nodes=tuple(nodes))
