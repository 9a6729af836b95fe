"""Where values and packed operands live: which loops they cover, their layout, their offsets.

A value covers the region of the loops that its producer and its readers share; what no parallel
loop encloses is shared by the threads.
"""

from __future__ import annotations

import math

from ir.schedule import Schedule
from ir.stages import Stage
from ir.targets.cpu.instructions import packed_bytes
from ir.targets.cpu.narrow import FORMATS
from ir.targets.cpu.plan import (
    Buffer,
    Loop,
    Pack,
    Plan,
    all_buffers,
    buffer_bytes,
    main_reduction,
    operand_name,
    round_up,
)


def place(plan: Plan, schedule: Schedule) -> None:
    """Fill in the plan's buffers and packs."""
    _place_buffers(plan)
    _place_packs(plan, schedule)
    _lay_out(plan)


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
        for table in plan.staged.uses
        for uses in table.values()
        for use in uses
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
            if node in (source, use.node):  # a running value may be kept as it was before a block
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
                size = spread(size, packed_bytes(dtype))
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
                where = str(
                    schedule.get(f"pack.{stage.name}.{operand_name(plan.staged, node)}", "no")
                )
                if where != "no" and (stage.name, node) not in plan.packs:
                    _place_pack(plan, stage, node, int(where))


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
    plan.bindings[stage.name]
    buffer = Buffer(
        f"{operand_name(plan.staged, node)}_packed",
        _packed_dtype(plan, stage, node),
        _pack_digits(plan, stage, node, prefix),
        prefix,
        any(loop.parallel for loop in prefix),
    )
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
    """What an operand is packed to: what the instruction reads; for FMA, what is widened by more
    than a shift is widened here, once, and not wherever the panel is read."""
    binding, here = plan.bindings[stage.name], plan.staged.program.nodes[node]
    if binding.dot.name != "fma":
        return binding.dot.lane if binding.lane in here.axes else binding.dot.row
    format = FORMATS.get(here.dtype)
    return "f32" if format is not None and format.rescaled else here.dtype


def _pack_digits(
    plan: Plan, stage: Stage, node: int, path: tuple[Loop, ...]
) -> tuple[tuple[str, int, int], ...]:
    """Lane operand: [rest][lane panel][reduced][k / d][lane][d]; row operand: [rest][row][k].

    Rows of an operand that has lanes too are among the rest.
    """
    binding = plan.bindings[stage.name]
    axes = plan.staged.program.nodes[node].axes
    main = main_reduction(plan.staged, stage)
    lane, row = binding.lane, binding.row
    rest = [a for a in axes if a not in (lane, row, main) and a not in stage.reduce]
    inner = [a for a in axes if a in stage.reduce and a not in (main, lane)]
    digits = [(a, plan.size(a, path), 1) for a in rest]
    depth = binding.dot.depth
    if lane in axes:
        if row in axes:
            digits.append((row, round_up(plan.size(row, path), binding.row_step), 1))
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
    return spread(length, packed_bytes(_packed_dtype(plan, stage, node)))


def spread(length: int, element: int) -> int:
    """A row length that does not put neighbouring rows into the same cache set."""
    return length + 64 // element if length * element % 1024 == 0 else length


def _lay_out(plan: Plan) -> None:
    """Give every buffer an offset: shared ones once, private ones per thread (see `lower`)."""
    offsets = {True: 0, False: 0}
    for buffer in all_buffers(plan):
        buffer.offset = offsets[buffer.private]
        offsets[buffer.private] += round_up(buffer_bytes(buffer), 64) + 64 * 5
