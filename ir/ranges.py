"""What whole numbers of a program may be at least and at most, as far as that is known."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from ir.dtypes import dtype_of, is_float, whole_range
from ir.loops import Carried
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.reduce import Reduce
from ir.program import Program

Range = tuple[int, int]
LIMITS: Mapping[str, Range] = {
    name: whole_range(name) for name in ("u8", "i8", "u16", "i16", "u4", "i4", "i2", "bool")
}
_NARROW = ("i8", "u8", "i16", "u16")  # what whole numbers are stored as, the narrowest first
_MONOTONE = frozenset({"add", "sub", "mul", "max", "min", "neg", "shr", "floordiv"})  # in each


def integer_range(
    program: Program, position: int, assumed: Mapping[int, Range] | None = None
) -> Range | None:
    """Bounds of an integer's values, where they are known; `assumed`: of some nodes, as states."""
    known: dict[int, Range | None] = {**assumed} if assumed else {}
    pending = [position]
    while pending:
        here = pending[-1]
        missing = [arg for arg in _ranged(program, here) if arg not in known]
        if here in known or not missing:
            known.setdefault(here, _range(program, here, known))
            pending.pop()
        pending += [] if here in known else missing
    return known[position]


def _ranged(program: Program, position: int) -> tuple[int, ...]:
    """The operands that an integer's bounds follow from."""
    node = program.nodes[position]
    if is_float(node.dtype) or not isinstance(node.op, Cast | Map | Read | Reduce):
        return ()
    return node.args[:1] if isinstance(node.op, Read) else node.args


def _range(program: Program, position: int, known: Mapping[int, Range | None]) -> Range | None:
    node = program.nodes[position]
    if is_float(node.dtype):
        return None
    if isinstance(node.op, Load):
        return LIMITS.get(node.dtype)
    if isinstance(node.op, Constant):
        return int(node.op.value), int(node.op.value)
    if isinstance(node.op, Iota):
        return 0, program.axes[node.op.axis] - 1
    if not isinstance(node.op, Cast | Map | Read | Reduce):
        return None
    parts = [known[arg] for arg in _ranged(program, position)]
    limit = LIMITS.get(node.dtype)
    found = mapped_range(node.op, parts) if isinstance(node.op, Map) else parts[0]
    if isinstance(node.op, Read) and node.op.fill is not None and found is not None:
        found = _both(found, (int(node.op.fill), int(node.op.fill)))
    if isinstance(node.op, Reduce) and found is not None:
        found = _reduced(program, node.op, found)
    if found is None and node.dtype == "bool":
        return limit
    inside = found is None or limit is None or (limit[0] <= found[0] and found[1] <= limit[1])
    return found if inside else limit


def _reduced(program: Program, op: Reduce, each: Range) -> Range | None:
    """Of an extreme, or a sum, of numbers within a range."""
    count = prod(program.axes[axis] for axis in op.over)
    if op.kind in ("max", "min"):
        return each if count else None
    return (count * each[0], count * each[1]) if op.kind == "sum" else None


def mapped_range(op: Map, parts: Sequence[Range | None]) -> Range | None:
    """What a function makes of operands within `parts`, in numbers without an end."""
    known = [part for part in parts if part is not None]
    if op.function == "where" and parts[1] is not None and parts[2] is not None:
        return _both(parts[1], parts[2])
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


def _both(left: Range, right: Range) -> Range:
    return min(left[0], right[0]), max(left[1], right[1])


def narrowest(dtype: str, found: Range | None) -> str:
    """The narrowest type that holds a range of whole numbers of a type; itself, if none does."""
    fitting = (
        name for name in _NARROW
        if found is not None and LIMITS[name][0] <= found[0] and found[1] <= LIMITS[name][1]
    )  # fmt: skip
    return next(fitting, dtype) if dtype in ("i32", "i64") else dtype


def state_ranges(program: Program, loop: Carried) -> dict[int, Range]:
    """Bounds of states that are whole numbers: what holds of the first one, and of the next one if
    it does of the one before."""
    found: dict[int, Range] = {}
    for before, after in loop.states:
        first = integer_range(program, program.nodes[before].args[0])
        for name in _NARROW:
            assumed = {**found, before: LIMITS[name]}
            then = integer_range(program, program.nodes[after].args[1], assumed)
            if first is None or then is None:
                break
            low, high = _both(first, then)
            if LIMITS[name][0] <= low and high <= LIMITS[name][1]:
                found[before] = LIMITS[name]
                break
    return found


def lookup_inside(program: Program, index: int, entries: int) -> bool:
    """Whether indices of a table of so many entries are surely inside of it."""
    bounds = integer_range(program, index)
    return bounds is not None and bounds[0] >= 0 and bounds[1] < entries


def shifts_inside(program: Program, amount: int, dtype: str) -> bool:
    """Whether the amounts of a shift are surely below the width of `dtype`, and none below 0."""
    bounds = integer_range(program, amount)
    width = dtype_of(dtype).bits
    return bounds is not None and bounds[0] >= 0 and bounds[1] < width
