"""The least and the most that a value can be whatever the inputs are, as the program says it.

What is at least 0 by a maximum, as an exponential or as minus the logarithm of a share is so in
every right kernel, however far rounding takes it: a root of it is not in doubt below that. Sums of
squares are not counted: kernels may find a variance as a difference. Of functions that kernels
approximate no more is counted than that, but for logarithms: those of at most 1 are at most 0.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from ir.dtypes import dtype_of, is_float
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.reduce import Contract, Reduce
from ir.program import Node, Program

Range = tuple[float, float]
NOTHING = -math.inf
_ANY = NOTHING, math.inf
_FROM_ZERO = 0.0, math.inf
_SHARE = 0.0, 1.0 - 2.0**-24  # of 24 bits
_LOST = 2.0**-22  # of the larger operand: two roundings of it to f32
_FINE = ("f32", "f64")
_POSITIVE = ("exp", "sigmoid")


@lru_cache(maxsize=64)
def floors(program: Program) -> tuple[float, ...]:
    """The least value of each node; minus infinity where nothing is known."""
    return tuple(low for low, _ in ranges(program))


@lru_cache(maxsize=64)
def ranges(program: Program) -> tuple[Range, ...]:
    """The least and the most value of each node; infinities where nothing is known."""
    found: list[Range] = []
    for node in program.nodes:
        here = _range(node, [found[arg] for arg in node.args])
        if isinstance(node.op, Map) and node.op.function in ("add", "sub"):
            here = _less_lost(here, node, [found[arg] for arg in node.args], program)
        found.append(here if node.dtype in _FINE else _rounded(here))
    return tuple(found)


def _rounded(here: Range) -> Range:
    """The same of what a type may round by more than a little: nothing stays nothing."""
    low, high = here
    return min(low, 0.0) if low >= 0.0 else NOTHING, max(high, 0.0) if high <= 0.0 else math.inf


def _range(node: Node, args: list[Range]) -> Range:
    op = node.op
    if args and not is_float(node.dtype):  # whole numbers may wrap
        return _loaded(node) if isinstance(op, Load) else _ANY
    match op:
        case Constant():
            return float(op.value), float(op.value)
        case Iota():
            return _FROM_ZERO
        case Load():
            return _loaded(node)
        case Cast():
            return args[0]
        case Read():
            ends = args[:1] if op.fill is None else [args[0], (op.fill, op.fill)]
            return _hull(ends)
        case Reduce():
            return _reduced(op.kind, args[0])
        case Contract():
            return _FROM_ZERO if min(low for low, _ in args) >= 0.0 else _ANY
        case Map():
            return _of_map(op.function, args)
    return _ANY


def _less_lost(here: Range, node: Node, args: list[Range], program: Program) -> Range:
    """A sum or a difference less what its operands may be off where they cancel: nothing of numbers
    that every kernel has exactly."""
    if all(_is_exact(program.nodes[arg]) for arg in node.args):
        return here
    largest = max((abs(end) for ends in args for end in ends if math.isfinite(end)), default=0.0)
    low, high = (end if abs(end) >= largest else None for end in here)
    lost = largest * _LOST
    return here[0] - lost if low is None else low, here[1] + lost if high is None else high


def _is_exact(node: Node) -> bool:
    if isinstance(node.op, Constant):
        return float(np.float32(node.op.value)) == node.op.value
    return node.op == Map("unit")


def _loaded(node: Node) -> Range:
    return _FROM_ZERO if dtype_of(node.dtype).kind in ("uint", "bool") else _ANY


def _hull(ranges: list[Range]) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _reduced(kind: str, of: Range) -> Range:
    low, high = of
    if kind in ("max", "min"):
        return of
    if kind == "prod":
        return _FROM_ZERO if low >= 0.0 else _ANY
    return low if low >= 0.0 else NOTHING, high if high <= 0.0 else math.inf


def _of_map(function: str, args: list[Range]) -> Range:
    if function in _POSITIVE:
        return _FROM_ZERO
    if function == "unit":
        return _SHARE
    lows, highs = [low for low, _ in args], [high for _, high in args]
    match function:
        case "abs":
            return max(lows[0], -highs[0], 0.0), math.inf
        case "max":
            return max(lows), max(highs)
        case "min":
            return min(lows), min(highs)
        case "where":
            return _hull(args[1:])
        case "neg":
            return -highs[0], -lows[0]
        case "add":
            return _sum(lows), -_sum([-high for high in highs])
        case "sub":
            return _sum([lows[0], -highs[1]]), -_sum([-highs[0], lows[1]])
        case "sqrt":
            return math.sqrt(max(lows[0], 0.0)), math.sqrt(max(highs[0], 0.0))
        case "log":
            return NOTHING, 0.0 if highs[0] <= 1.0 else math.inf
        case "mul" | "div":
            return _by_signs(args)
    return _ANY


def _sum(ends: list[float]) -> float:
    """Of lower ends."""
    return sum(ends) if min(ends) > NOTHING else NOTHING


def _by_signs(args: list[Range]) -> Range:
    """Of a product or a quotient, as far as the operands have signs."""
    if any(low < 0.0 < high for low, high in args):
        return _ANY
    negative = sum(high <= 0.0 and low < 0.0 for low, high in args)
    return (NOTHING, 0.0) if negative == 1 else _FROM_ZERO
