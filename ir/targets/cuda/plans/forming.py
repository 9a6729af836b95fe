"""Tiles of what operands are formed of: the same points, as they lie in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ir.errors import Refusal
from ir.targets.cuda.build.formed import Former
from ir.targets.cuda.layouts.operands import OperandTile, operand_tile

CHUNK = 16  # bytes of an operand that a thread forms at a time
SOURCE_LINES = (128, 64, 32)  # bytes of lines of what operands are formed of


def source_tile(operand: OperandTile, former: Former, tiles: Mapping[str, int]) -> OperandTile:
    """The tile that an operand's is made of, in the widest lines that it fills."""
    own = {axis: tiles[axis] for axis in former.program.axes}
    tile = operand_tile(former.program, former.load, tuple(operand.over), own, True)
    run = tile.length * tile.size
    return replace(tile, line=next((width for width in SOURCE_LINES if run % width == 0), 0))


def check_formed(operand: OperandTile, source: OperandTile, tiles: Mapping[str, int]) -> None:
    """Refusal for a tile that threads cannot make of a copied one."""
    name, axis = operand.spec.name, operand.run[-1][0]
    if operand.order or operand.pieces:
        raise Refusal("formed", f"{name}: its lines are in another order")
    if source.run != operand.run or tiles[axis] * operand.size % CHUNK:
        raise Refusal("formed", f"{name}: not contiguous as its source is")
    problem = source.problem()
    if problem:
        raise Refusal("operand", f"{source.spec.name}: {problem}")
