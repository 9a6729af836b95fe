"""What whole numbers of a program may be at least and at most, as far as that is known."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from ir.dtypes import dtype_of, is_float, whole_range
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.program import Program

Range = tuple[int, int]
LIMITS: Mapping[str, Range] = {
    name: whole_range(name) for name in ("u8", "i8", "u16", "i16", "u4", "i4", "i2", "bool")
}
_MONOTONE = frozenset({"add", "sub", "mul", "max", "min", "neg", "shr", "floordiv"})  # in each


def integer_range(program: Program, position: int) -> Range | None:
    """Bounds of an integer's values, where they are known."""
    node = program.nodes[position]
    if is_float(node.dtype):
        return None
    if isinstance(node.op, Load):
        return LIMITS.get(node.dtype)
    if isinstance(node.op, Constant):
        return int(node.op.value), int(node.op.value)
    if isinstance(node.op, Iota):
        return 0, program.axes[node.op.axis] - 1
    if not isinstance(node.op, Cast | Map):
        return None
    parts = [integer_range(program, arg) for arg in node.args]
    found = parts[0] if isinstance(node.op, Cast) else mapped_range(node.op, parts)
    limit = LIMITS.get(node.dtype)
    inside = found is None or limit is None or (limit[0] <= found[0] and found[1] <= limit[1])
    return found if inside else limit


def mapped_range(op: Map, parts: Sequence[Range | None]) -> Range | None:
    """What a function makes of operands within `parts`, in numbers without an end."""
    known = [part for part in parts if part is not None]
    if op.function == "bitand":  # with a mask, whatever the other is
        masks = [high for low, high in known if low >= 0]
        return (0, min(masks)) if masks else None
    if op.function == "mod" and parts[1] is not None and parts[1][0] > 0:
        return 0, parts[1][1] - 1
    if op.function == "popcount":
        return 0, 64
    if op.function == "lookup" and op.dtype is not None and not is_float(op.dtype):
        return int(min(op.entries)), int(max(op.entries))
    if len(known) < len(parts) or op.function not in _MONOTONE:
        return None
    if op.function == "shr" and known[1][0] < 0:
        return None
    if op.function == "floordiv" and known[1][0] <= 0:
        return None
    meaning = op.numpy(["i64"] * len(parts))
    ends = [int(meaning(*map(np.int64, corner))) for corner in itertools.product(*known)]
    return min(ends), max(ends)


def lookup_inside(program: Program, index: int, entries: int) -> bool:
    """Whether indices of a table of so many entries are surely inside of it."""
    bounds = integer_range(program, index)
    return bounds is not None and bounds[0] >= 0 and bounds[1] < entries


def shifts_inside(program: Program, amount: int, dtype: str) -> bool:
    """Whether the amounts of a shift are surely below the width of `dtype`, and none below 0."""
    bounds = integer_range(program, amount)
    width = dtype_of(dtype).bits
    return bounds is not None and bounds[0] >= 0 and bounds[1] < width
