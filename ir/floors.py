"""The least that a value can be whatever the inputs are, as far as the program says so.

What is at least 0 by a maximum or as an exponential is so in every right kernel, however far
rounding takes it: a root of it is not in doubt below that. Sums of squares are not counted: kernels
may find a variance as a difference.
"""

from __future__ import annotations

import math
from functools import lru_cache

from ir.dtypes import dtype_of, is_float
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.reduce import Contract, Reduce
from ir.program import Node, Program

NOTHING = -math.inf
_FINE = ("f32", "f64")
_FROM_ZERO = ("exp", "sigmoid", "abs")


@lru_cache(maxsize=64)
def floors(program: Program) -> tuple[float, ...]:
    """The least value of each node; minus infinity where nothing is known."""
    found: list[float] = []
    for node in program.nodes:
        least = _floor(node, [found[arg] for arg in node.args])
        found.append(least if node.dtype in _FINE else _rounded(least))
    return tuple(found)


def _rounded(least: float) -> float:
    """The same of what a type may round by more than a little: nothing stays nothing."""
    return min(least, 0.0) if least >= 0.0 else NOTHING


def _floor(node: Node, args: list[float]) -> float:
    op = node.op
    if args and not is_float(node.dtype):  # whole numbers may wrap
        return 0.0 if isinstance(op, Load) and dtype_of(node.dtype).kind != "int" else NOTHING
    match op:
        case Constant():
            return float(op.value)
        case Iota():
            return 0.0
        case Load():
            return 0.0 if dtype_of(node.dtype).kind in ("uint", "bool") else NOTHING
        case Cast():
            return args[0]
        case Read():
            return args[0] if op.fill is None else min(args[0], op.fill)
        case Reduce():
            kept = op.kind in ("max", "min") or args[0] >= 0.0
            return NOTHING if not kept else 0.0 if op.kind == "prod" else args[0]
        case Contract():
            return 0.0 if min(args) >= 0.0 else NOTHING
        case Map():
            return _of_map(op.function, args)
    return NOTHING


def _of_map(function: str, args: list[float]) -> float:
    if function in _FROM_ZERO:
        return 0.0
    if function in ("max", "min"):
        return max(args) if function == "max" else min(args)
    if function == "where":
        return min(args[1:])
    if function == "add":
        return args[0] + args[1] if min(args) > NOTHING else NOTHING
    if function == "sqrt":
        return math.sqrt(max(args[0], 0.0))
    return 0.0 if function in ("mul", "div") and min(args) >= 0.0 else NOTHING
