"""What a stage reads and writes, as the cost features see it: extents, strides, footprints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.ops.map import Map
from ir.scalar import scalar_function
from ir.stages import Result, Stage, StagedProgram
from ir.targets.cpu.plan import operand_name
from ir.targets.cpu.regions import Array

LINE = 64  # bytes of a cache line
Terms = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor or buffer of one stage. `dims` holds (axis, coefficient) terms by dimension, the
    contiguous one last; `producer` names the stage whose buffer it is, `tensor` the tensor: of
    both, one is ""."""

    name: str
    axes: tuple[str, ...]
    dims: tuple[Terms, ...]
    element: int
    written: bool
    producer: str
    tensor: str

    def contiguous(self, axis: str) -> bool:
        """Whether neighbours along an axis lie side by side in a tensor."""
        return bool(self.dims) and dict(self.dims[-1]).get(axis) == 1

    @property
    def shares(self) -> bool:
        """Whether points may share elements: windows that overlap, and places that are computed."""
        told = [axis for terms in self.dims for axis, _ in terms]
        return any(len(terms) > 1 for terms in self.dims) or not {*self.axes} <= {*told}

    def reads(self, sizes: Mapping[str, Array]) -> Array:
        """Elements that the points of a region read, each as often as a point does."""
        rows = len(next(iter(sizes.values()), "1"))
        total: Array = np.ones(rows)
        for axis in self.axes:
            total = total * sizes[axis]
        return total

    def bytes(self, sizes: Mapping[str, Array]) -> Array:
        """Bytes of the cache lines that a region of these sizes touches."""
        rows = len(next(iter(sizes.values()), "1"))  # one for all where there is no axis
        total: Array = np.full(rows, float(self.element))
        for number, terms in enumerate(self.dims):
            length = 1.0 + sum(abs(c) * (sizes[axis] - 1.0) for axis, c in terms)
            last = number == len(self.dims) - 1 and not self.producer
            total = total * (np.maximum(length, LINE / self.element) if last else length)
        return total


def operands_of(staged: StagedProgram, stage: Stage) -> tuple[Operand, ...]:
    """Every tensor and buffer that a stage reads or writes, each once."""
    found: dict[tuple[int, bool], Operand] = {}
    own = {accumulator.node for accumulator in stage.accumulators}
    for leaf in staged.leaves(stage, [*staged.body_roots(stage), *staged.late_roots(stage)]):
        node = staged.program.nodes[leaf]
        if isinstance(node.op, Load):
            dims = tuple(index.terms for index in node.op.index)
            element = dtype_of(node.dtype).bytes
            found[leaf, False] = Operand(
                operand_name(staged, leaf), node.axes, dims, element, False, "", node.op.tensor
            )
        elif leaf in staged.materialised and leaf not in own:
            producer = staged.stages[staged.producer[leaf]].name
            found[leaf, False] = _buffer(staged, leaf, False, producer)
    for result in stage.written:
        found[result.node, True] = _result(staged, stage, result)
    return tuple(found.values())


def _buffer(staged: StagedProgram, node: int, written: bool, producer: str) -> Operand:
    axes = staged.program.nodes[node].axes
    dims = tuple(((axis, 1),) for axis in axes)
    element = dtype_of(staged.program.nodes[node].dtype).bytes
    return Operand(operand_name(staged, node), axes, dims, element, written, producer, "")


def _result(staged: StagedProgram, stage: Stage, result: Result) -> Operand:
    if result.tensor is None:
        return _buffer(staged, result.node, True, stage.name)
    dims = tuple(((axis, 1),) for axis in result.axes)
    element = dtype_of(staged.program.scope.tensors[result.tensor].dtype).bytes
    return Operand(result.tensor, result.axes, dims, element, True, "", result.tensor)


def map_work(staged: StagedProgram, stage: Stage) -> float:
    """Operations of the elementwise expressions that a stage evaluates, over its whole domain."""
    program = staged.program
    stops = set(staged.leaves(stage, staged.body_roots(stage)))
    stops |= set(staged.leaves(stage, staged.late_roots(stage)))
    pending = [*staged.body_roots(stage), *staged.late_roots(stage)]
    seen: set[int] = set()
    total = 0.0
    while pending:
        position = pending.pop()
        if position in seen or position in stops:
            continue
        seen.add(position)
        node = program.nodes[position]
        if isinstance(node.op, Map):
            points = prod(program.axes[axis] for axis in node.axes)
            total += scalar_function(node.op.function).flops * points
        pending.extend(node.args)
    return total
