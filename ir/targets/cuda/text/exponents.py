"""Exponentials of scaled differences as one multiply-add each, and extremes of scaled values.

exp(c x - m) is 2^(c' x - m'), with c' = c log2 e and m' = m log2 e: what rounding m' costs is no
more than a difference of scaled operands is allowed to be off. max(c x) is c max(x) for c > 0,
exactly, since rounding keeps the order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ir.ops.map import Constant, Map
from ir.ops.reduce import Carry, Now, Prior, Reduce
from ir.program import Program
from ir.scalar import running_bound

LOG2E = 1.4426950408889634
_SAFE = 1e38  # numbers up to here stay finite when they are multiplied by log2 e


@dataclass(frozen=True, slots=True)
class Shifted:
    """exp(factor * value - shift), where `shift` is finite."""

    value: int
    factor: float
    shift: int


def shifted_exponent(
    program: Program, position: int, assumed: frozenset[int] = frozenset()
) -> Shifted | None:
    """What an exponential is of, if that is a difference with a running extreme, where all
    conditions that are `assumed` hold."""
    node = program.nodes[position]
    if not _is(program, position, "exp") or node.dtype != "f32":
        return None
    difference = node.args[0]
    if not _is(program, difference, "sub") or program.nodes[difference].dtype != "f32":
        return None
    value, shift = program.nodes[difference].args
    reader = program.nodes[_moved_by_constant(program, shift)]
    if not isinstance(reader.op, Now | Prior) or not _holds_small_numbers(program):
        return None
    op = program.nodes[reader.args[0]].op
    if not isinstance(op, Carry) or running_bound(op.kind, reader.dtype) is None:
        return None
    value = unmasked(program, value, assumed)
    scaled = scaled_value(program, value)
    return Shifted(*(scaled or (value, 1.0)), shift)


def _moved_by_constant(program: Program, position: int) -> int:
    """A value, or what a number is taken from to make it."""
    if not _is(program, position, "sub"):
        return position
    value, number = program.nodes[position].args
    return value if isinstance(program.nodes[number].op, Constant) else position


def scaled_value(program: Program, position: int) -> tuple[int, float] | None:
    """(value, number) whose product a node is, in f32."""
    if not _is(program, position, "mul") or program.nodes[position].dtype != "f32":
        return None
    left, right = program.nodes[position].args
    for value, factor in ((left, right), (right, left)):
        op = program.nodes[factor].op
        finite = isinstance(op, Constant) and math.isfinite(op.value)
        if finite and program.nodes[value].dtype == "f32":
            return value, float(op.value)  # type: ignore[attr-defined]
    return None


def unmasked(program: Program, position: int, assumed: frozenset[int]) -> int:
    """A value, or what it is where conditions hold."""
    while _is(program, position, "where") and program.nodes[position].args[0] in assumed:
        position = program.nodes[position].args[1]
    return position


def scaled_extreme(
    program: Program, position: int, assumed: frozenset[int] = frozenset()
) -> tuple[int, float] | None:
    """(value, number > 0) of a reduction to the largest or least of their products."""
    node = program.nodes[position]
    if not isinstance(node.op, Reduce | Carry) or node.op.kind not in ("max", "min"):
        return None
    found = scaled_value(program, unmasked(program, node.args[0], assumed))
    return found if found and 0 < found[1] < math.inf else None


def exponent_text(value: str, factor: float, shift: str) -> str:
    """The exponential in CUDA C++; a shift as large as floats go stays finite."""
    moved = f"tw_most({shift} * {LOG2E!r}f, -3.4028234663852886e+38f)"
    return f"tw_exp2(fmaf({value}, {factor * LOG2E!r}f, -{moved}))"


def _is(program: Program, position: int, function: str) -> bool:
    op = program.nodes[position].op
    return isinstance(op, Map) and op.function == function


def _holds_small_numbers(program: Program) -> bool:
    """Whether no finite constant is so large that an extreme of such would not survive scaling."""
    constants = (node.op.value for node in program.nodes if isinstance(node.op, Constant))
    return all(abs(value) < _SAFE or math.isinf(value) for value in constants)
