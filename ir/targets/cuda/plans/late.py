"""What the epilogue of a kernel on wgmma reads and nothing before it: lines of tensors' tiles.

A residual, or the other factors of a gate, lie in memory until a tile's products are done, and then
all its threads wait for them, panel by panel, unless L2 was asked for them during the main loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from ir.columns import Decision
from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.program import Program
from ir.targets.cuda.build.readers import loaded_late, read_once

NAME = "late"
NEEDED, ASKED = "needed", "asked"
_ALIGN = 16  # bytes, of what is asked for
_LEAST = 64  # bytes of a line, below which there are too many


@dataclass(frozen=True, slots=True)
class LateTile:
    """A tile of a tensor: lines of `bytes` along the axis `along`, for each point of `across`."""

    position: int
    along: str
    across: tuple[str, ...]
    bytes: int
    lines: int


def late_loads(program: Program) -> tuple[int, ...]:
    """Loads that an epilogue alone reads, of which each element is one tile's."""
    return tuple(
        position
        for position in sorted(loaded_late(program))
        if read_once(program, position) and _along(program, position)
    )


def late_decision(name: str, owner: str, program: Program) -> Decision | None:
    """The decision, of kernels whose epilogue reads tensors of its own."""
    if not late_loads(program):
        return None
    why = "whether L2 is asked during the main loop for what the epilogue alone reads"
    return Decision(name, (NEEDED, ASKED), "pipeline", owner, why, NEEDED, unsaid=NEEDED)


def late_tiles(program: Program, tiles: Mapping[str, int]) -> Iterator[LateTile]:
    """Their tiles, where lines are aligned."""
    for position in late_loads(program):
        node, along = program.nodes[position], _along(program, position)
        size = dtype_of(node.dtype).bytes
        across = tuple(axis for axis in node.axes if axis != along)
        line = tiles.get(along, 1) * size
        if line >= _LEAST and line % _ALIGN == 0:
            yield LateTile(position, along, across, line, prod(tiles.get(a, 1) for a in across))


def _along(program: Program, position: int) -> str:
    """The axis along which a load's elements are neighbours, in aligned rows; empty without."""
    node = program.nodes[position]
    op = node.op
    assert isinstance(op, Load)
    shape, last = program.scope.tensors[op.tensor].shape, op.index[-1] if op.index else None
    size = dtype_of(node.dtype)
    if last is None or op.fill is not None or size.per_byte > 1:
        return ""
    (axis, step), *more = last.terms or (("", 0),)
    rows = shape[-1] * size.bytes % _ALIGN == 0 and last.constant * size.bytes % _ALIGN == 0
    own = not any(axis == name for index in op.index[:-1] for name, _ in index.terms)
    return axis if step == 1 and not more and rows and own else ""
