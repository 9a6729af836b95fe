"""Quotients and rests of coordinates by powers of two, apart for a thread and for its registers.

A thread's first point and the steps to its others are added in one sum, of which a compiler cannot
tell that neighbours have one quotient: (x + 5) >> 2 and (x + 6) >> 2. As
(x >> 2) + (((x & 3) + 5) >> 2) they are equal as soon as it knows the last bits of x, and what is
made of them (random numbers of one counter, scales of a group) is made once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ir.ops.map import Cast, Constant, Iota, Map
from ir.program import Program

_WHOLE = ("i32", "i64")


@dataclass(frozen=True, slots=True)
class Divided:
    """The quotient by 2^bits, or the rest, of `constant` and multiples of coordinates."""

    multiples: Mapping[str, int]
    constant: int
    bits: int
    rest: bool

    def text(self, first: str, steps: str) -> str:
        """In CUDA C++, given the sums over a thread's first point and over its steps."""
        mask = (1 << self.bits) - 1
        last = f"(({first} & {mask}) + {steps})"
        if self.rest:
            return f"({last} & {mask})"
        return f"(({first} >> {self.bits}) + ({last} >> {self.bits}))"


def divided(program: Program, position: int) -> Divided | None:
    """What a node divides by a power of two, if that is a sum of coordinates; otherwise None."""
    node = program.nodes[position]
    if not isinstance(node.op, Map) or node.op.function not in ("shr", "bitand"):
        return None
    number = program.nodes[node.args[1]].op
    if not isinstance(number, Constant):
        return None
    rest = node.op.function == "bitand"
    bits = int(number.value + 1).bit_length() - 1 if rest else int(number.value)
    if not 0 < bits < 31 or (rest and number.value != (1 << bits) - 1):
        return None
    found = _sum(program, node.args[0])
    return Divided(found[0], found[1], bits, rest) if found is not None else None


def _sum(program: Program, position: int) -> tuple[Counter[str], int] | None:
    """Multiples of coordinates, and the constant, that add up to a node; None where others do."""
    node = program.nodes[position]
    if node.dtype not in _WHOLE:
        return None
    match node.op:
        case Iota():
            return Counter({node.op.axis: 1}), 0
        case Constant():
            return Counter(), int(node.op.value)
        case Cast() if node.dtype == "i64":
            return _sum(program, node.args[0])
        case Map(function="add" | "sub" | "mul"):
            left, right = (_sum(program, arg) for arg in node.args)
            return _joined(node.op.function, left, right) if left and right else None
    return None


def _joined(
    function: str, left: tuple[Counter[str], int], right: tuple[Counter[str], int]
) -> tuple[Counter[str], int] | None:
    if function == "mul":
        if left[0] and right[0]:
            return None
        (multiples, constant), factor = (left, right[1]) if not right[0] else (right, left[1])
        return Counter({axis: c * factor for axis, c in multiples.items()}), constant * factor
    sign = -1 if function == "sub" else 1
    joined = Counter(left[0])
    for axis, c in right[0].items():
        joined[axis] += sign * c
    return joined, left[1] + sign * right[1]
