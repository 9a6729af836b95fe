"""Exponentials of scaled differences as one multiply-add each, and extremes behind functions.

exp(c x - m) is 2^(c' x - m'), with c' = c log2 e and m' = m log2 e: what rounding m' costs is no
more than x is off by itself, if it was computed. What is exact has no such room: where x and m are
both the -1e30 of a mask, or both the lowest number that a loaded bias has, their difference is 0,
and c' x - m' is not. Such values are subtracted first. max(f(x)) is f(max(x)) where f keeps the
order (a factor above 0, a tangent), since rounding keeps it too.

In an exponent it counts how far a term is off, not how far for its size: c tanh(x) is
c - 2 c / (e^2x + 1) there, without the series that keeps small tangents exact. It is off by
2^-22 c, which is little beside the rounding to 16 bits of all that is made of the exponential.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from operator import or_

from ir.dtypes import dtype_of, is_float
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Map
from ir.ops.reduce import Carry, Contract, Now, Prior, Reduce
from ir.ops.store import Store
from ir.program import Program
from ir.scalar import running_bound

LOG2E = 1.4426950408889634
_RISING = ("tanh", "sigmoid")
_LARGEST = 1024.0  # factor of a tangent that is off by 2^-22, beside roundings of 2^-12 and more
_SMALL = 64.0  # numbers up to here times log2 e are rounded by less than 2^-18
_TAKEN = ("where", "max", "min", "neg", "abs")  # each gives one of its operands, but for signs


@dataclass(frozen=True, slots=True)
class Shifted:
    """exp(factor * value - shift), where `shift` is finite, and 0 where the condition `mask` does
    not hold; None for no shift, and no mask."""

    value: int
    factor: float
    shift: int | None = None
    mask: int | None = None


def shifted_exponent(
    program: Program, position: int, assumed: frozenset[int] = frozenset()
) -> Shifted | None:
    """What an exponential is of, if that is a multiple, or a difference with a running extreme,
    where all conditions that are `assumed` hold."""
    node = program.nodes[position]
    if not _is(program, position, "exp") or node.dtype != "f32":
        return None
    inner = unmasked(program, node.args[0], assumed)
    if not _is(program, inner, "sub") or program.nodes[inner].dtype != "f32":
        mask, inner = _mask(program, inner)
        scaled = scaled_value(program, inner)
        return Shifted(*scaled, mask=mask) if scaled else None
    value, shift = program.nodes[inner].args
    reader = program.nodes[_moved_by_constant(program, shift)]
    if not isinstance(reader.op, Now | Prior):
        return None
    op = program.nodes[reader.args[0]].op
    if not isinstance(op, Carry) or running_bound(op.kind, reader.dtype) is None:
        return None
    value = unmasked(program, value, assumed)
    if not _is_rounded_by_itself(program, value):
        return None
    scaled = scaled_value(program, value)
    return Shifted(*(scaled or (value, 1.0)), shift)


def _mask(program: Program, position: int) -> tuple[int | None, int]:
    """The condition under which a value is not -inf, if it is chosen so, and the value then."""
    if not _is(program, position, "where"):
        return None, position
    condition, value, other = program.nodes[position].args
    op = program.nodes[other].op
    masked = isinstance(op, Constant) and op.value == -math.inf
    return (condition, value) if masked else (None, position)


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


@dataclass(frozen=True, slots=True)
class Ordered:
    """An extreme of `value` behind functions that keep the order: nodes, the innermost first."""

    value: int
    through: tuple[int, ...]


def ordered_extreme(
    program: Program, position: int, assumed: frozenset[int] = frozenset()
) -> Ordered | None:
    """What a reduction to the largest or least is of, if functions that keep the order made it."""
    node = program.nodes[position]
    if not isinstance(node.op, Reduce | Carry) or node.op.kind not in ("max", "min"):
        return None
    through: list[int] = []
    here = unmasked(program, node.args[0], assumed)
    while (inner := _keeps_order(program, here)) is not None:
        through.append(here)
        here = inner
    return Ordered(here, tuple(reversed(through))) if through else None


def _keeps_order(program: Program, position: int) -> int | None:
    """The argument, where a node does not fall as that rises; None where it may, or is no f32."""
    scaled = scaled_value(program, position)
    if scaled is not None:
        return scaled[0] if scaled[1] > 0 else None
    node = program.nodes[position]
    if any(_is(program, position, name) for name in _RISING):
        inner = program.nodes[node.args[0]]
        return node.args[0] if node.dtype == inner.dtype == "f32" else None
    return None


@dataclass(frozen=True, slots=True)
class Tangent:
    """tanh(factor * value), which is 1 - 2 / grown."""

    value: int
    factor: float

    def grown(self, value: str) -> str:
        """e^2x + 1 in CUDA C++; a product of four stays finite: at 2^30 the tangent is 1."""
        return f"(tw_exp2(tw_least({value} * {2 * self.factor * LOG2E!r}f, 30.0f)) + 1.0f)"


def coarse_tangent(program: Program, position: int, shifted: Shifted) -> Tangent | None:
    """The tangent in an exponential, if how far it is off is little beside what is rounded."""
    if not _is(program, shifted.value, "tanh") or not 0 < shifted.factor <= _LARGEST:
        return None  # of a factor below 0, the extreme has made each tangent already
    if program.nodes[shifted.value].dtype != "f32" or not _is_rounded(program, position):
        return None
    (inner,) = program.nodes[shifted.value].args
    return Tangent(*(scaled_value(program, inner) or (inner, 1.0)))


def is_coarse_wave(program: Program, position: int) -> bool:
    """Whether a sine may be off by 2^-20: all that is made of it is rounded to 16 bits."""
    wave = _is(program, position, "sin") or _is(program, position, "cos")
    return wave and program.nodes[position].dtype == "f32" and _is_rounded(program, position)


@lru_cache(maxsize=1024)
def _is_rounded(program: Program, position: int) -> bool:
    """Whether all that is made of a value is rounded to 16 bits or fewer before it is stored."""
    pending, seen = [position], {position}
    while pending:
        for user in program.users(pending.pop()):
            node = program.nodes[user]
            if isinstance(node.op, Store):
                return False
            narrow = is_float(node.dtype) and dtype_of(node.dtype).bits <= 16
            if user not in seen and not (isinstance(node.op, Cast) and narrow):
                seen.add(user)
                pending.append(user)
    return True


def summed_along(program: Program, position: int, axis: str) -> bool:
    """Whether all that is stored of a value is made of sums, or extremes, along an axis."""
    pending, seen = [position], {position}
    while pending:
        for user in program.users(pending.pop()):
            op = program.nodes[user].op
            if isinstance(op, Store):
                return False
            over = op.over if isinstance(op, Reduce | Contract) else ()
            over = (op.axis, *(op.beside or ())) if isinstance(op, Carry) else over
            if user not in seen and axis not in over:
                seen.add(user)
                pending.append(user)
    return True


def tangent_text(inverse: str, factor: float, shift: str) -> str:
    """exp(factor * tanh - shift) in CUDA C++, where the tangent is 1 - 2 * inverse."""
    rest = f"{factor * LOG2E!r}f" + (f" - {_moved(shift)}" if shift else "")
    return f"tw_exp2(fmaf({inverse}, {-2 * factor * LOG2E!r}f, {rest}))"


def exponent_text(value: str, factor: float, shift: str) -> str:
    """The exponential in CUDA C++; a shift as large as floats go stays finite."""
    scale = f"{factor * LOG2E!r}f"
    return (
        f"tw_exp2(fmaf({value}, {scale}, -{_moved(shift)}))"
        if shift
        else f"tw_exp2({value} * {scale})"
    )


def _moved(shift: str) -> str:
    return f"tw_most({shift} * {LOG2E!r}f, -3.4028234663852886e+38f)"


def _is(program: Program, position: int, function: str) -> bool:
    op = program.nodes[position].op
    return isinstance(op, Map) and op.function == function


def _is_rounded_by_itself(program: Program, position: int) -> bool:
    """Whether a value is as far off, for its size, as a product rounded to f32: computed, and with
    no large number in it that may be all of it."""
    node = program.nodes[position]
    if isinstance(node.op, Reduce | Contract | Carry):
        return True
    if isinstance(node.op, Cast):
        return is_float(node.dtype) and _is_rounded_by_itself(program, node.args[0])
    if not isinstance(node.op, Map) or _is_large(program, position):
        return False
    values = node.args[1:] if node.op.function == "where" else node.args
    if node.op.function in _TAKEN:
        computed = (_is_rounded_by_itself(program, value) for value in values)
        numbers = (isinstance(program.nodes[value].op, Constant) for value in values)
        return all(map(or_, computed, numbers))
    return is_float(node.dtype)


def _is_large(program: Program, position: int) -> bool:
    """Whether the size of a value may be that of what is loaded, or of a large number: itself, one
    of those it is chosen from or added up of, or a multiple."""
    node = program.nodes[position]
    if isinstance(node.op, Constant):
        return math.isfinite(node.op.value) and abs(node.op.value) > _SMALL
    if isinstance(node.op, Load):
        return True
    if isinstance(node.op, Cast):
        return _is_large(program, node.args[0])
    if not isinstance(node.op, Map):
        return False
    values = node.args[1:] if node.op.function == "where" else node.args
    if node.op.function == "mul":
        numbers = {v for v in values if isinstance(program.nodes[v].op, Constant)}
        exact = any(not _is_rounded_by_itself(program, v) for v in {*values} - numbers)
        return exact and any(_is_large(program, v) for v in numbers)
    sums = ("add", "sub", *_TAKEN)
    return node.op.function in sums and any(_is_large(program, value) for value in values)
