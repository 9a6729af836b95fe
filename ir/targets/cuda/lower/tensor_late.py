"""The producer of a kernel on wgmma asks the L2 cache for what the epilogue of its tile reads.

It has little to do, and asks for some lines with each block that it copies. They are hints: nothing
is read by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.targets.cuda.plans.late import LateTile, late_tiles
from ir.targets.cuda.text.naming import text_name
from ir.targets.cuda.text.writer import Writer

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_lower import TensorLowering


def ask_late(lowering: TensorLowering, w: Writer, origins: Mapping[str, str], blocks: int) -> None:
    """Ask for this block's share of the lines; there are about so many `blocks`."""
    for tile in late_tiles(lowering.program, lowering.plan.tiles):
        share = -(-tile.lines // max(1, blocks))
        line = w.name("line")
        end = f"min({share} * block + {share}, {tile.lines})"
        with w.block(f"for (i32 {line} = {share} * block; {line} < {end}; {line}++)"):
            _ask(lowering, w, origins, tile, line)


def _ask(
    lowering: TensorLowering, w: Writer, origins: Mapping[str, str], tile: LateTile, line: str
) -> None:
    program, tiles = lowering.program, lowering.plan.tiles
    op = program.nodes[tile.position].op
    assert isinstance(op, Load)
    spec = program.scope.tensors[op.tensor]
    apart = max(lowering.plan.cluster)  # tiles of a cluster may lie behind all others
    there, rest, inside = {tile.along: origins.get(tile.along, "0")}, line, list[str]()
    for axis in reversed(tile.across):
        count, first = tiles.get(axis, 1), origins.get(axis, "0")
        there[axis] = f"({first} + ({rest}) % {count})" if count > 1 else first
        rest = f"({rest}) / {count}" if count > 1 else rest
        if program.axes[axis] % (count * apart):
            inside.append(f"{there[axis]} < {program.axes[axis]}")
    places, stride = [], 1
    for index, extent in zip(reversed(op.index), reversed(spec.shape), strict=True):
        terms = [f"(i64)({there[axis]}) * {step * stride}" for axis, step in index.terms]
        places += [*terms, *([f"{index.constant * stride}"] if index.constant else [])]
        stride *= extent
    size, count = str(tile.bytes), tiles.get(tile.along, 1)
    if program.axes[tile.along] % (count * apart):
        inside.append(f"{there[tile.along]} < {program.axes[tile.along]}")
        left = f"({program.axes[tile.along]} - {there[tile.along]})"
        size = f"min({left} * {dtype_of(spec.dtype).bytes}, {tile.bytes})"
    at = f"{w.pointer(text_name(op.tensor))} + {' + '.join(places or ['0'])}"
    with w.block(f"if ({' && '.join(inside)})" if inside else ""):
        w.line(f"tw_ask_lines({at}, {size});")
