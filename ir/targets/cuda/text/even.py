"""Sums of what is the same at every point: the points, times that, without going through them."""

from __future__ import annotations

from functools import lru_cache

from ir.ops.map import Cast, Constant, Iota, Map
from ir.program import Program

_MOST = 1 << 10  # whole numbers up to this are exact in every float type, and so are their sums


@lru_cache(maxsize=4096)
def even_value(program: Program, position: int) -> int | None:
    """The whole number that a value is at all of its points; None where it is not told.

    Coordinates times nothing stand in for axes along which nothing varies.
    """
    node = program.nodes[position]
    found: int | None = None
    if isinstance(node.op, Constant) and node.op.value == int(node.op.value):
        found = int(node.op.value)
    elif isinstance(node.op, Cast):
        found = even_value(program, node.args[0])
    elif isinstance(node.op, Map) and node.op.function in ("add", "sub", "mul"):
        left, right = (even_value(program, arg) for arg in node.args)
        if left is not None and right is not None:
            found = {"add": left + right, "sub": left - right, "mul": left * right}[
                node.op.function
            ]
        elif node.op.function == "mul" and 0 in (left, right):
            other = node.args[0] if right == 0 else node.args[1]
            found = 0 if _is_coordinate(program, other) else None
    return found if found is not None and abs(found) <= _MOST else None


def _is_coordinate(program: Program, position: int) -> bool:
    """Whether a value is a coordinate, which is finite."""
    node = program.nodes[position]
    if isinstance(node.op, Cast):
        return _is_coordinate(program, node.args[0])
    return isinstance(node.op, Iota)
