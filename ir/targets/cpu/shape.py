"""What the decisions need to know about a staged program: candidate lane and row axes, roles.

Derived from accesses and extents alone; nothing here knows an operator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ir.ops.load import Load
from ir.stages import Stage, StagedProgram
from ir.targets.cpu.instructions import FMA, DotRow, dot_rows
from ir.targets.cpu.nest import NEAR
from ir.targets.cpu.plan import main_reduction, operand_name

SMALL = 64  # axes up to this long need no blocking unless threads share them
REDUCED = 192  # reduced axes up to this long are never blocked


@dataclass(frozen=True, slots=True)
class OperandShape:
    """A factor of a product: its axes, and whether it may be used where it lies."""

    node: int
    name: str
    axes: tuple[str, ...]
    in_memory: bool
    main_contiguous: bool
    packable: bool
    buffered: bool
    dtype: str


@dataclass(frozen=True, slots=True)
class StageShape:
    """Choices of one stage."""

    stage: Stage
    lanes: tuple[str, ...]
    rows: tuple[str, ...]  # candidates; "" is always allowed
    instructions: tuple[DotRow, ...]
    operands: tuple[OperandShape, ...]
    main: str
    leaf_axes: tuple[frozenset[str], ...]

    @property
    def product(self) -> bool:
        return any(len(a.terms) == 2 for a in self.stage.accumulators)


def contiguous_axes(
    staged: StagedProgram, stage: Stage, buffers: Mapping[int, str]
) -> tuple[str, ...]:
    """Axes along which neighbours lie side by side in an operand or a result, the largest first.

    `buffers`: the likely vector axis of each value that an earlier stage leaves in a buffer.
    """
    nodes, extents = staged.program.nodes, staged.program.axes
    weights: dict[str, int] = {}

    def note(axis: str, axes: tuple[str, ...]) -> None:
        volume = math.prod(extents[a] for a in axes)
        weights[axis] = max(weights.get(axis, 0), volume)

    for result in stage.written:
        if result.tensor and result.axes:
            note(result.axes[-1], result.axes)
    for leaf in staged.leaves(stage, [*staged.body_roots(stage), *staged.late_roots(stage)]):
        op = nodes[leaf].op
        if isinstance(op, Load) and op.index and len(op.index[-1].terms):
            for axis, step in op.index[-1].terms:
                if step == 1:
                    note(axis, nodes[leaf].axes)
        elif leaf in buffers:
            note(buffers[leaf], nodes[leaf].axes)
    order = sorted(weights, key=lambda axis: -weights[axis])
    return tuple(a for a in order if a in stage.domain and extents[a] > 1)


def near_axes(staged: StagedProgram, stage: Stage) -> tuple[str, ...]:
    """Axes along which neighbours lie a few elements apart in the largest operand that has them, or
    in a result where none has, the longest first: vectors are read there, and the lanes picked out
    of them."""
    nodes, extents = staged.program.nodes, staged.program.axes
    near: set[str] = set()
    for result in stage.written:
        if result.tensor and len(result.axes) > 1 and extents[result.axes[-1]] <= NEAR:
            near.add(result.axes[-2])
    volumes: dict[str, int] = {}
    for leaf in staged.leaves(stage, [*staged.body_roots(stage), *staged.late_roots(stage)]):
        op, volume = nodes[leaf].op, math.prod(extents[a] for a in nodes[leaf].axes)
        steps = _steps(staged, op) if isinstance(op, Load) else {}
        for axis in nodes[leaf].axes:
            if volume >= volumes.get(axis, 0):
                volumes[axis] = volume
                near = near | {axis} if 1 < steps.get(axis, 0) <= NEAR else near - {axis}
    order = sorted(near, key=lambda axis: (-extents[axis], axis))
    return tuple(a for a in order if a in stage.domain and extents[a] > 1)


def _steps(staged: StagedProgram, op: Load) -> dict[str, int]:
    """Elements of a tensor from one point of an axis to the next."""
    found: dict[str, int] = {}
    size = 1
    shape = staged.program.scope.tensors[op.tensor].shape
    for index, extent in zip(reversed(op.index), reversed(shape), strict=True):
        for axis, step in index.terms:
            found[axis] = found.get(axis, 0) + step * size
        size *= extent
    return found


def _leaf_axes(staged: StagedProgram, stage: Stage) -> tuple[frozenset[str], ...]:
    nodes = staged.program.nodes
    leaves = staged.leaves(stage, staged.body_roots(stage))
    return tuple(frozenset(nodes[leaf].axes) for leaf in sorted(leaves) if nodes[leaf].axes)


def stage_shapes(staged: StagedProgram, isa: tuple[str, ...]) -> tuple[StageShape, ...]:
    """Candidates for every stage, in order."""
    found: list[StageShape] = []
    buffers: dict[int, str] = {}
    for stage in staged.stages:
        shape = stage_shape(staged, stage, isa, buffers)
        for result in stage.written:
            if result.tensor is None and shape.lanes[0] in result.axes:
                buffers[result.node] = shape.lanes[0]
        found.append(shape)
    return tuple(found)


def stage_shape(
    staged: StagedProgram, stage: Stage, isa: tuple[str, ...], buffers: Mapping[int, str]
) -> StageShape:
    """Candidates for one stage."""
    extents = staged.program.axes
    leaves = _leaf_axes(staged, stage)
    contiguous = contiguous_axes(staged, stage, buffers)
    kept = [a for a in stage.parallel if extents[a] > 1]
    partial = [a for a in kept if any(a not in leaf for leaf in leaves)]
    lanes = [a for a in contiguous if a in kept or a in stage.reduce]
    product = any(len(a.terms) == 2 for a in stage.accumulators)
    if product:
        stored = [r.axes[-1] for r in stage.written if r.tensor and r.axes]
        tiled = [a for a in kept if a in partial and (a in stored or a == partial[-1])]
        longest = sorted(partial, key=lambda a: -extents[a])[:3]
        # with one such axis (matrix times vector) memory order decides, else the register tile
        first = [*tiled, *longest] if len(partial) > 1 else lanes
        lanes = list(dict.fromkeys([*first, *longest, *lanes]))
    near = [a for a in near_axes(staged, stage) if a in kept]
    narrow = not lanes or extents[lanes[0]] <= NEAR
    lanes = list(dict.fromkeys([*near, *lanes] if narrow else [*lanes, *near]))
    if not lanes:
        longest = sorted(stage.domain, key=lambda a: -extents[a])
        lanes = list(longest[:1]) or [""]  # a stage without axes has one point
    longest = sorted(partial, key=lambda a: -extents[a])
    # the longest of each operand too: lanes over the longest of all leave rows to the others' axes
    own = [next((a for a in longest if a in leaf), "") for leaf in leaves]
    rows = list(dict.fromkeys(a for a in (*longest[:3], *own) if a))
    if not product and any(a in stage.reduce for a in lanes):
        rows += [a for a in kept if a not in rows][-1:]
    return StageShape(
        stage,
        tuple(lanes),
        tuple(rows) if stage.accumulators else (),
        _instructions(staged, stage, isa, lanes[0]),
        _operands(staged, stage),
        main_reduction(staged, stage),
        leaves,
    )


def _instructions(
    staged: StagedProgram, stage: Stage, isa: tuple[str, ...], lane: str
) -> tuple[DotRow, ...]:
    """Instruction rows that every product of the stage can use; what suits lanes along `lane` comes
    last."""
    nodes = staged.program.nodes
    products = [a for a in stage.accumulators if len(a.terms) == 2]
    found = (FMA,)
    if not products or len(products) != len(stage.accumulators) or stage.body_results:
        return found
    if any(left == right for left, right in (a.terms for a in products)):
        return found  # a square has no operand for the lanes and another for the rows
    choices = []
    for accumulator in products:
        left, right = (nodes[term].dtype for term in accumulator.terms)
        rows = dot_rows(isa, (left, right), accumulator.dtype)
        apart = accumulator.kind == "sum" and len({*accumulator.terms}) == 2
        choices.append(rows if apart else found)  # squares have no side of rows or of lanes
    common = [row for row in choices[0] if all(row in other for other in choices)]
    terms = [sorted(a.terms, key=lambda term: lane in nodes[term].axes) for a in products]
    sides = [(nodes[row].dtype, nodes[column].dtype) for row, column in terms]
    return tuple(sorted(common, key=lambda dot: all(dot.multiplies(*side) for side in sides)))


def _operands(staged: StagedProgram, stage: Stage) -> tuple[OperandShape, ...]:
    nodes = staged.program.nodes
    main = main_reduction(staged, stage)
    found: dict[int, OperandShape] = {}
    for accumulator in stage.accumulators:
        if len(accumulator.terms) != 2 or accumulator.terms[0] == accumulator.terms[1]:
            continue
        for term in accumulator.terms:
            op = nodes[term].op
            memory = isinstance(op, Load) or term in staged.materialised
            affine = not (isinstance(op, Load) and nodes[term].args)
            found[term] = OperandShape(
                term,
                operand_name(staged, term),
                nodes[term].axes,
                memory and affine,
                _main_contiguous(staged, term, main),
                set(nodes[term].axes) != set(stage.domain),
                term in staged.materialised,
                nodes[term].dtype,
            )
    return tuple(found.values())


def _main_contiguous(staged: StagedProgram, term: int, main: str) -> bool:
    """Whether neighbours on the reduced axis lie side by side (buffers: decided by their stage)."""
    op = staged.program.nodes[term].op
    if isinstance(op, Load):
        return bool(op.index) and dict(op.index[-1].terms).get(main) == 1
    return term in staged.materialised


LEFT_SERIAL = 0.05  # share of the work that one thread may do while others wait


def common_axes(staged: StagedProgram) -> tuple[str, ...]:
    """Axes that every stage has and none reduces."""
    return tuple(a for a in shared_axes(staged) if all(a in s.domain for s in staged.stages))


def shared_axes(staged: StagedProgram) -> tuple[str, ...]:
    """Axes that threads may share: no stage reduces them, and stages without them are small."""
    extents = staged.program.axes
    work = {s.name: prod(extents[axis] for axis in s.domain) for s in staged.stages}
    found = []
    for axis, extent in extents.items():
        without = sum(work[s.name] for s in staged.stages if axis not in s.domain)
        small = without <= LEFT_SERIAL * sum(work.values())
        if extent > 1 and small and not any(axis in s.reduce for s in staged.stages):
            found.append(axis)
    return tuple(found)


def outer_axes(staged: StagedProgram, shapes: tuple[StageShape, ...]) -> tuple[str, ...]:
    """Common axes that no stage would vectorise or tile: batch, heads."""
    inner = {a for shape in shapes for a in (*shape.lanes, *shape.rows)}
    return tuple(a for a in common_axes(staged) if a not in inner)
