"""From a schedule to a loop tree: which loops stand where, what is packed, where values live.

Static only: sizes and positions, no code. The loop string (outer order, then inner order) is one
mechanism for every program; a loop of one iteration is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.ops.load import Load
from ir.ops.reduce import Carry
from ir.schedule import Schedule
from ir.stages import Stage, StagedProgram
from ir.targets.cpu.instructions import DotRow, VectorRow, dot_row


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
            return 32 if self.dot.operand == "bf16" else 64
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


def bind_stage(stage: Stage, schedule: Mapping[str, object] | Schedule, vector: VectorRow) -> Binding:
    """Read a stage's decisions."""
    def value(name: str, default: int | str) -> int | str:
        found = schedule.get(f"{name}.{stage.name}", default)
        return found if isinstance(found, (int, str)) else default

    return Binding(
        str(value("lane", stage.domain[-1] if stage.domain else "")), str(value("row", "")),
        int(value("rows", 1)), int(value("vectors", 1)), int(value("unroll", 1)),
        value("micro", "rows") == "lanes", dot_row(str(value("instruction", "fma"))),
        int(value("prefetch", 0)), vector,
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


def blocks_of(staged: StagedProgram, schedule: Schedule, bindings: Mapping[str, Binding]
              ) -> dict[str, tuple[int, int]]:
    """Block sizes (outer, inner) of every axis, in elements; multiples of the axis' unit."""
    blocks = {}
    units = axis_units(staged, bindings)
    for axis, extent in staged.program.axes.items():
        unit = units[axis]
        default = int(schedule.get(f"tile.{axis}.1", 0))
        inner = int(schedule.get(f"tile.{axis}.0", default)) or extent
        inner = min(round_up(inner, unit), extent)
        outer = int(schedule.get(f"tile.{axis}.1", 0)) or extent
        outer = min(round_up(outer, inner), extent)
        blocks[axis] = (outer, inner)
    return blocks


class _Tree:
    """Builds the loop tree: axes enter one by one; stages that may share a loop do."""

    def __init__(self, plan: Plan, order: list[tuple[str, int]], parallel: frozenset[str]) -> None:
        self.plan = plan
        self.order = order
        self.parallel = parallel
        self.stages = plan.staged.stages

    def build(self) -> list[Item]:
        return self._items(list(range(len(self.stages))), 0, None)

    def _items(self, members: list[int], depth: int, parent: Loop | None) -> list[Item]:
        while depth < len(self.order) and not self._splits(depth, parent):
            depth += 1
        if depth == len(self.order):
            leaves: list[Item] = []
            for position in members:
                leaf = Leaf(self.stages[position], parent)
                self.plan.leaves[leaf.stage.name] = leaf
                leaves.append(leaf)
            return leaves
        axis, level = self.order[depth]
        items: list[Item] = []
        for inside, run in self._runs(members, axis):
            if not inside:
                items += self._items(run, depth + 1, parent)
                continue
            loop = Loop(axis, level, self.plan.blocks[axis][1 - level], parent)
            free = parent is None or parent.parallel or not parent.in_parallel
            kept = all(axis not in self.stages[position].reduce for position in run)
            loop.parallel = (axis in self.parallel and free and kept
                             and not loop.repeats_parallel())
            loop.items = self._items(run, depth + 1, loop)
            items.append(loop)
        return items

    def _splits(self, depth: int, parent: Loop | None) -> bool:
        axis, level = self.order[depth]
        path = parent.path() if parent else ()
        return self.plan.blocks[axis][1 - level] < self.plan.size(axis, path)

    def _belongs(self, position: int, axis: str) -> bool:
        """Whether the stage must stand inside a loop over `axis`."""
        stage = self.stages[position]
        if axis in stage.domain:
            return True
        nodes = self.plan.staged.program.nodes
        for uses in self.plan.staged.uses[position].values():
            for use in uses:
                source = nodes[nodes[use.node].args[0]] if not use.final else None
                if source and isinstance(source.op, Carry) and source.op.axis == axis:
                    return True
        return False

    def _runs(self, members: list[int], axis: str) -> list[tuple[bool, list[int]]]:
        runs: list[tuple[bool, list[int]]] = []
        for position in members:
            inside = self._belongs(position, axis)
            slot = self._slot(runs, position, axis, inside)
            if slot is None:
                runs.append((inside, [position]))
            else:
                runs[slot][1].append(position)
        return runs

    def _slot(self, runs: list[tuple[bool, list[int]]], position: int, axis: str, inside: bool
              ) -> int | None:
        """The last run if the stage may join it."""
        if not runs or runs[-1][0] != inside:
            return None
        if not inside:
            return len(runs) - 1
        ok = all(self._joins(position, other, axis) for other in runs[-1][1])
        return len(runs) - 1 if ok else None

    def _joins(self, position: int, other: int, axis: str) -> bool:
        stage, earlier = self.stages[position], self.stages[other]
        for use in self.plan.staged.uses[position].get(other, ()):
            varies = axis in self.plan.staged.program.nodes[use.node].axes
            running = not use.final or any(r.node == use.node for r in earlier.running)
            if running or varies or axis not in earlier.reduce:
                continue
            if not (use.late and axis in stage.reduce):
                return False
        return True


def order_of(schedule: Schedule, axes: Iterable[str]) -> list[tuple[str, int]]:
    """The loop string as (axis, level) pairs: level 1 first. Axes not named run innermost."""
    result = []
    for level in (1, 0):
        named = [a for a in str(schedule.get(f"order.{level}", "")).split() if a]
        rest = [a for a in axes if a not in named]
        result += [(axis, level) for axis in (*named, *rest)]
    return result


def make_plan(staged: StagedProgram, schedule: Schedule, vector: VectorRow, threads: int) -> Plan:
    """Everything static about one candidate; raises Refusal."""
    bindings = {stage.name: bind_stage(stage, schedule, vector) for stage in staged.stages}
    blocks = blocks_of(staged, schedule, bindings)
    plan = Plan(staged, bindings, blocks, [])
    plan.chunk = str(schedule.get("chunk", "block"))
    plan.stream = bool(schedule.get("stream", False))
    plan.threads = threads
    parallel = frozenset(str(schedule.get("parallel", "")).split())
    plan.items = _Tree(plan, order_of(schedule, staged.program.axes), parallel).build()
    _check_carries(plan)
    _place_buffers(plan)
    _place_packs(plan, schedule)
    _lay_out(plan)
    return plan


def _check_carries(plan: Plan) -> None:
    """Stages that read running values stand in the very loops that carry them."""
    staged = plan.staged
    for position, table in enumerate(staged.uses):
        own = plan.leaves[staged.stages[position].name].path()
        for other, uses in table.items():
            earlier = staged.stages[other]
            running = {r.node for r in earlier.running}
            if all(use.final and use.node not in running for use in uses):
                continue
            for loop in plan.leaves[earlier.name].path():
                if loop.axis in earlier.reduce and loop not in own:
                    raise Refusal("carried-apart", f"{staged.stages[position].name} is outside the "
                                                   f"loop over {loop.axis} that carries its operand")


def _common(paths: list[tuple[Loop, ...]]) -> tuple[Loop, ...]:
    common = []
    for loops in zip(*paths, strict=False):
        if any(loop is not loops[0] for loop in loops):
            break
        common.append(loops[0])
    return tuple(common)


def _outside(path: tuple[Loop, ...], axes: tuple[str, ...]) -> tuple[Loop, ...]:
    """The part of a path before the first loop over one of `axes`."""
    for i, loop in enumerate(path):
        if loop.axis in axes:
            return path[:i]
    return path


def _place_buffers(plan: Plan) -> None:
    staged = plan.staged
    for position, stage in enumerate(staged.stages):
        path = plan.leaves[stage.name].path()
        carried = _outside(path, stage.reduce) != path
        for accumulator in stage.accumulators:
            node = accumulator.node
            if carried or node in staged.materialised or _read_running(plan, node):
                _buffer(plan, position, node, staged.program.nodes[node].axes, accumulator.dtype)
        for result in stage.written:
            if result.tensor is None and result.node not in plan.buffers:
                node_type = staged.program.nodes[result.node]
                _buffer(plan, position, result.node, node_type.axes, node_type.dtype)


def _read_running(plan: Plan, node: int) -> bool:
    return any(
        not use.final and plan.staged.program.nodes[use.node].args[0] == node
        for table in plan.staged.uses for uses in table.values() for use in uses
    )


def _buffer(plan: Plan, position: int, node: int, axes: tuple[str, ...], dtype: str) -> None:
    staged = plan.staged
    stage = staged.stages[position]
    own = plan.leaves[stage.name].path()
    paths = [own]
    if any(a.node == node for a in stage.accumulators):
        paths.append(_outside(own, stage.reduce))
    for user, table in enumerate(staged.uses):
        for use in table.get(position, ()):
            source = use.node if use.final else staged.program.nodes[use.node].args[0]
            if source == node:
                paths.append(plan.leaves[staged.stages[user].name].path())
    path = _common(paths)
    binding = plan.bindings[stage.name]
    order = sorted(axes, key=lambda a: (a == binding.lane, a == binding.row))
    digits = []
    for axis in order:
        size = plan.size(axis, path)
        if axis == order[-1]:
            size = round_up(size, 64) if size > 16 else round_up(size, 16)
            if len(order) > 1:
                size = spread(size, element_bytes(dtype))
        elif axis == binding.row:
            size = round_up(size, 16) if size > 1 else size
        digits.append((axis, size, 1))
    private = any(loop.parallel for loop in path)
    plan.buffers[node] = Buffer(f"v{node}", dtype, tuple(digits), path, private)


def operand_role(plan: Plan, stage: Stage, node: int) -> str:
    """ "lane" if the operand varies along the lane axis, else "row"."""
    binding = plan.bindings[stage.name]
    return "lane" if binding.lane in plan.staged.program.nodes[node].axes else "row"


def _place_packs(plan: Plan, schedule: Schedule) -> None:
    for stage in plan.staged.stages:
        for accumulator in stage.accumulators:
            if len(accumulator.terms) != 2:
                continue
            for node in dict.fromkeys(accumulator.terms):
                where = str(schedule.get(f"pack.{stage.name}.{operand_name(plan.staged, node)}", "no"))
                if where != "no" and (stage.name, node) not in plan.packs:
                    _place_pack(plan, stage, node, int(where))


def operand_name(staged: StagedProgram, node: int) -> str:
    """How decisions call an operand: its tensor, or v<node>."""
    op = staged.program.nodes[node].op
    return op.tensor if isinstance(op, Load) else f"v{node}"


def _place_pack(plan: Plan, stage: Stage, node: int, level: int) -> None:
    leaf = plan.leaves[stage.name]
    path = leaf.path()
    axes = plan.staged.program.nodes[node].axes
    keep = 0
    for i, loop in enumerate(path):
        if loop.axis in axes and loop.level >= level:
            keep = i + 1
    needed = _ready(plan, stage, node, path)
    prefix = path[: max(keep, needed)]
    binding = plan.bindings[stage.name]
    buffer = Buffer(f"{operand_name(plan.staged, node)}_packed", _packed_dtype(plan, stage, node),
                    _pack_digits(plan, stage, node, prefix), prefix,
                    any(loop.parallel for loop in prefix))
    parent = prefix[-1] if prefix else None
    pack = Pack(stage, node, parent, buffer)
    plan.packs[(stage.name, node)] = pack
    items = parent.items if parent else plan.items
    following = path[len(prefix)] if len(prefix) < len(path) else leaf
    items.insert(next(i for i, item in enumerate(items) if item is following), pack)


def _ready(plan: Plan, stage: Stage, node: int, path: tuple[Loop, ...]) -> int:
    """Loops that must enclose the pack because the operand is computed inside them."""
    staged = plan.staged
    needed = 0
    for leaf in staged.leaves(stage, (node,)):
        owner = staged.producer.get(leaf)
        if owner is None or staged.stages[owner] is stage:
            continue
        common = _common([path, plan.leaves[staged.stages[owner].name].path()])
        needed = max(needed, len(common))
    return needed


def _packed_dtype(plan: Plan, stage: Stage, node: int) -> str:
    dot = plan.bindings[stage.name].dot
    return dot.operand if dot.name != "fma" else plan.staged.program.nodes[node].dtype


def _pack_digits(plan: Plan, stage: Stage, node: int, path: tuple[Loop, ...]
                 ) -> tuple[tuple[str, int, int], ...]:
    """lane operand: [rest..][lane panel][reduction..][k / d][lane][d]; row operand: [rest..][row][k]."""
    binding = plan.bindings[stage.name]
    axes = plan.staged.program.nodes[node].axes
    main = main_reduction(plan.staged, stage)
    lane, row = binding.lane, binding.row
    rest = [a for a in axes if a not in (lane, row, main) and a not in stage.reduce]
    inner = [a for a in axes if a in stage.reduce and a not in (main, lane)]
    digits = [(a, plan.size(a, path), 1) for a in rest]
    depth = binding.dot.depth
    if lane in axes:
        panel = min(binding.lane_step, round_up(plan.size(lane, path), binding.vector.lanes))
        if binding.tiled:
            panel = binding.vector.lanes
        panels = -(-plan.size(lane, path) // panel)
        digits.append((lane, panels, panel))
        digits += [(a, plan.size(a, path), 1) for a in inner]
        if main in axes and main != lane:
            digits.append((main, round_up(plan.size(main, path), binding.depth) // depth, depth))
        digits.append((lane, panel, 1))
        if main in axes and main != lane and depth > 1:
            digits.append((main, depth, 1))
        return tuple(digits)
    if row in axes:
        digits.append((row, round_up(plan.size(row, path), binding.row_step), 1))
    digits += [(a, plan.size(a, path), 1) for a in inner]
    if main in axes:
        digits.append((main, _row_length(plan, stage, node, plan.size(main, path)), 1))
    return tuple(digits)


def _row_length(plan: Plan, stage: Stage, node: int, size: int) -> int:
    """Elements of a packed row: whole vectors, and no power-of-two distance between rows."""
    binding = plan.bindings[stage.name]
    length = round_up(size, math.lcm(binding.depth, binding.vector.lanes))
    return spread(length, element_bytes(_packed_dtype(plan, stage, node)))


def spread(length: int, element: int) -> int:
    """A row length that does not put neighbouring rows into the same cache set."""
    return length + 64 // element if length * element % 1024 == 0 else length


def _lay_out(plan: Plan) -> None:
    """Give every buffer an offset: shared ones once, private ones per thread (see `lower`)."""
    offsets = {True: 0, False: 0}
    for buffer in all_buffers(plan):
        buffer.offset = offsets[buffer.private]
        offsets[buffer.private] += round_up(buffer_bytes(buffer), 64) + 64 * 5


def all_buffers(plan: Plan) -> list[Buffer]:
    return [*plan.buffers.values(), *(pack.buffer for pack in plan.packs.values())]


def element_bytes(dtype: str) -> int:
    """Bytes of one element of a buffer (i16 exists only as a packed form)."""
    return 2 if dtype == "i16" else dtype_of(dtype).bytes


def buffer_bytes(buffer: Buffer) -> int:
    return buffer.elements * element_bytes(buffer.dtype)


def workspace_bytes(plan: Plan, private: bool) -> int:
    """Bytes of shared, or of one thread's private, workspace."""
    ends = [b.offset + buffer_bytes(b) for b in all_buffers(plan) if b.private == private]
    return round_up(max(ends, default=0), 4096)
