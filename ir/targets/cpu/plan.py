"""The static picture of one candidate: bindings, block sizes, loops, buffers. Values only.

`planner.py` builds the loop tree, `placement.py` decides where values and packed operands live.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ir.ops.load import Load
from ir.schedule import Schedule
from ir.stages import Stage, StagedProgram
from ir.targets.cpu.instructions import DotRow, VectorRow, dot_row, packed_bytes


@dataclass(frozen=True, slots=True)
class Binding:
    """How one stage is vectorised: lane and row axis, register tile, instruction."""

    lane: str
    row: str  # "" when the stage has no row axis
    rows: int
    vectors: int
    unroll: int
    lanes_inner: bool
    dot: DotRow
    prefetch: int
    vector: VectorRow

    @property
    def tiled(self) -> bool:
        return self.dot.kind == "tile"

    @property
    def lane_step(self) -> int:
        return self.vectors * self.vector.lanes

    @property
    def row_step(self) -> int:
        return self.rows * (self.dot.tile if self.tiled else 1)

    @property
    def depth(self) -> int:
        """Elements of the reduction axis per instruction (tiles: 64 bytes of them)."""
        if self.tiled:
            return 64 // self.dot.element
        return self.dot.depth


class Loop:
    """One loop of the tree: `axis` advances by `block`; `items` run in order inside."""

    __slots__ = ("axis", "block", "items", "level", "parallel", "parent")

    def __init__(self, axis: str, level: int, block: int, parent: Loop | None) -> None:
        self.axis, self.level, self.block, self.parent = axis, level, block, parent
        self.items: list[Item] = []
        self.parallel = False

    def path(self) -> tuple[Loop, ...]:
        """Loops from the outermost to this one."""
        return (*(self.parent.path() if self.parent else ()), self)

    @property
    def in_parallel(self) -> bool:
        return any(loop.parallel for loop in self.path())

    def repeats_parallel(self) -> bool:
        """Whether an outer loop over the same axis is parallel already."""
        return any(loop.parallel and loop.axis == self.axis for loop in self.path())


@dataclass(slots=True)
class Leaf:
    """A stage run on the region of the enclosing loops."""

    stage: Stage
    parent: Loop | None

    def path(self) -> tuple[Loop, ...]:
        return self.parent.path() if self.parent else ()


@dataclass(slots=True)
class Pack:
    """Operand `node` of a stage copied to a packed buffer where it stands."""

    stage: Stage
    node: int
    parent: Loop | None
    buffer: Buffer

    def path(self) -> tuple[Loop, ...]:
        return self.parent.path() if self.parent else ()


Item = Loop | Leaf | Pack


@dataclass(slots=True)
class Buffer:
    """Memory for one value: `digits` are (axis, size, unit) outermost first; unit = elements of the
    axis that one step of the digit spans. `path`: the loops whose region it covers."""

    name: str
    dtype: str
    digits: tuple[tuple[str, int, int], ...]
    path: tuple[Loop, ...]
    private: bool
    offset: int = 0

    @property
    def elements(self) -> int:
        return math.prod(size for _, size, _ in self.digits)


@dataclass(slots=True)
class Plan:
    """The whole static picture of one candidate."""

    staged: StagedProgram
    bindings: dict[str, Binding]
    blocks: dict[str, tuple[int, int]]
    items: list[Item]
    buffers: dict[int, Buffer] = field(default_factory=dict)
    packs: dict[tuple[str, int], Pack] = field(default_factory=dict)
    leaves: dict[str, Leaf] = field(default_factory=dict)
    chunk: str = "block"
    stream: bool = False
    threads: int = 1

    def size(self, axis: str, path: Iterable[Loop]) -> int:
        """Static size of the region of `axis` inside the loops `path`."""
        size = self.staged.program.axes[axis]
        for loop in path:
            if loop.axis == axis:
                size = min(size, loop.block)
        return size


def round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def bind_stage(
    stage: Stage, schedule: Mapping[str, object] | Schedule, vector: VectorRow
) -> Binding:
    """Read a stage's decisions."""

    def value(name: str, default: int | str) -> int | str:
        found = schedule.get(f"{name}.{stage.name}", default)
        return found if isinstance(found, (int, str)) else default

    return Binding(
        str(value("lane", stage.domain[-1] if stage.domain else "")),
        str(value("row", "")),
        int(value("rows", 1)),
        int(value("vectors", 1)),
        int(value("unroll", 1)),
        value("micro", "rows") == "lanes",
        dot_row(str(value("instruction", "fma"))),
        int(value("prefetch", 0)),
        vector,
    )


def axis_units(staged: StagedProgram, bindings: Mapping[str, Binding]) -> dict[str, int]:
    """Smallest step of each axis: a common multiple of what every stage asks for."""
    units = dict.fromkeys(staged.program.axes, 1)
    for stage in staged.stages:
        binding = bindings[stage.name]
        steps = {binding.lane: binding.lane_step, binding.row: binding.row_step}
        for axis in stage.domain:
            step = steps.get(axis, binding.depth if axis == main_reduction(staged, stage) else 1)
            units[axis] = math.lcm(units[axis], step)
    return units


def main_reduction(staged: StagedProgram, stage: Stage) -> str:
    """The reduction axis that runs innermost: the longest one."""
    extents = staged.program.axes
    return max(stage.reduce, key=lambda axis: extents[axis], default="")


def blocks_of(
    staged: StagedProgram, schedule: Schedule, bindings: Mapping[str, Binding]
) -> dict[str, tuple[int, int]]:
    """Block sizes (outer, inner) of every axis, in elements; multiples of the axis' unit."""
    blocks = {}
    units = axis_units(staged, bindings)
    for axis, extent in staged.program.axes.items():
        unit = units[axis]
        default = int(schedule.get(f"tile.{axis}.1") or 0)
        inner = int(schedule.get(f"tile.{axis}.0") or default) or extent
        inner = min(round_up(inner, unit), extent)
        outer = default or extent
        outer = min(round_up(outer, inner), extent)
        blocks[axis] = (outer, inner)
    return blocks


def operand_name(staged: StagedProgram, node: int) -> str:
    """How decisions call an operand: its tensor, or v<node>; a tensor that is read in several
    ways keeps its name for the first, the others are <tensor>_v<node>. What is made up differs
    from the names of tensors."""
    nodes = staged.program.nodes
    op = nodes[node].op
    made_up = f"v{node}"
    if isinstance(op, Load):
        earlier = (other.op for other in nodes[:node])
        if not any(isinstance(other, Load) and other.tensor == op.tensor for other in earlier):
            return op.tensor
        made_up = f"{op.tensor}_v{node}"
    while made_up in staged.program.scope.tensors:
        made_up += "_"
    return made_up


def all_buffers(plan: Plan) -> list[Buffer]:
    return [*plan.buffers.values(), *(pack.buffer for pack in plan.packs.values())]


def buffer_bytes(buffer: Buffer) -> int:
    return buffer.elements * packed_bytes(buffer.dtype)


def workspace_bytes(plan: Plan, private: bool) -> int:
    """Bytes of shared, or of one thread's private, workspace."""
    ends = [b.offset + buffer_bytes(b) for b in all_buffers(plan) if b.private == private]
    return round_up(max(ends, default=0), 4096)
