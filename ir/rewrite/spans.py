"""Between which numbers the values of a program lie, whatever its inputs are.

A tangent lies between -1 and 1, a sum of n such between -n and n, a byte between -128 and 127:
ends of intervals go through functions (Moore, 1966), each a little further out than its rounding.
Of what is loaded as a float nothing is known. A value that a mask may have set to -inf has a hole:
its ends are those of where it is a number. What is no number counts for nothing: it stays none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

from ir.dtypes import dtype_of, is_float, whole_range
from ir.ops.base import volume
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.reduce import Contract, Reduce
from ir.program import Node, Program

_FAR = {"shr": 64, "floordiv": 1 << 62}  # numbers that are shifted or divided by
_NARROWEST = 16  # bits of a float that rounds to one nearby
_FUNCTIONS = 2.0**-18  # of its size that a function in f32 may be off


@dataclass(frozen=True, slots=True)
class Span:
    """The least and the most of a value; with a hole, it may be -inf as well."""

    least: float = -math.inf
    most: float = math.inf
    hole: bool = False

    @property
    def known(self) -> bool:
        return math.isfinite(self.least) and math.isfinite(self.most)

    def beside(self, other: Span) -> Span:
        """Of what is one or the other."""
        least, most = min(self.least, other.least), max(self.most, other.most)
        return Span(least, most, self.hole or other.hole)


UNKNOWN = Span(hole=True)
_MASK = Span(math.inf, -math.inf, hole=True)  # no number, and -inf
_FIXED = {"tanh": (-1.0, 1.0), "erf": (-1.0, 1.0), "sigmoid": (0.0, 1.0), "sin": (-1.0, 1.0),
          "cos": (-1.0, 1.0)}  # fmt: skip
_RISING: dict[str, Callable[[float], float]] = {
    "exp": lambda x: math.exp(min(x, 700.0)), "floor": math.floor, "ceil": math.ceil,
    "trunc": math.trunc, "round": lambda x: float(round(x)),
}  # fmt: skip
_CORNERS: dict[str, Callable[[float, float], float]] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y,
}  # fmt: skip


def spans_of(program: Program) -> tuple[Span, ...]:
    """The span of each node."""
    found: list[Span] = []
    for node in program.nodes:
        found.append(_of(program, node, [found[arg] for arg in node.args]))
    return tuple(found)


def _of(program: Program, node: Node, args: Sequence[Span]) -> Span:
    op = node.op
    if isinstance(op, Constant):
        return _number(op.value)
    if isinstance(op, Iota):
        return Span(0.0, program.axes[op.axis] - 1.0)
    if isinstance(op, Load):
        stored = _type(node.dtype)
        return stored if op.fill is None else stored.beside(_number(op.fill))
    if isinstance(op, Read):
        return args[0] if op.fill is None else args[0].beside(_number(op.fill))
    if isinstance(op, Cast):
        return _cast(args[0], program.nodes[node.args[0]].dtype, node.dtype)
    if isinstance(op, Contract):
        return _summed(_corners("mul", *args), volume(program.scope, op.over), node.dtype)
    if isinstance(op, Reduce):
        terms = volume(program.scope, op.over)
        if op.kind in ("max", "min"):
            return args[0]
        return _summed(args[0], terms, node.dtype) if op.kind == "sum" else UNKNOWN
    return _mapped(op, args, node.dtype) if isinstance(op, Map) else UNKNOWN


def _number(value: float) -> Span:
    if value == -math.inf:
        return _MASK
    return Span(value, value) if math.isfinite(value) else UNKNOWN


def _type(dtype: str) -> Span:
    if is_float(dtype):
        return UNKNOWN
    if dtype == "bool":
        return Span(0.0, 1.0)
    least, most = whole_range(dtype)
    return Span(float(least), float(most))


def _cast(span: Span, source: str, dtype: str) -> Span:
    if not is_float(dtype):
        if is_float(source) and span.known:  # what is no number becomes 0
            span = Span(min(span.least, 0.0), max(span.most, 0.0), span.hole)
        return _within(span, dtype)
    return _rounded(span, dtype) if dtype_of(dtype).bits >= _NARROWEST else UNKNOWN


def _summed(span: Span, terms: int, dtype: str) -> Span:
    """Of a sum of so many, each rounded once more than the one before."""
    if not is_float(dtype):
        return _within(Span(span.least * terms, span.most * terms, span.hole), dtype)
    if not span.known or span.hole:
        return UNKNOWN
    return _rounded(Span(span.least * terms, span.most * terms), dtype, terms)


def _rounded(span: Span, dtype: str, times: int = 1) -> Span:
    """A value that may be off by a few roundings."""
    if not span.known or span.least > span.most:
        return span
    unit = 2.0 ** -dtype_of(dtype).mantissa + _FUNCTIONS
    size = max(abs(span.least), abs(span.most)) * times * unit
    exact = span.least == span.most
    return span if exact else Span(span.least - size, span.most + size, span.hole)


def _mapped(op: Map, args: Sequence[Span], dtype: str) -> Span:
    function = op.function
    if function in _FIXED:
        return Span(*_FIXED[function])
    if function == "where":
        return args[1].beside(args[2])
    if function in ("max", "min"):
        return _extreme(function, *args)
    if not is_float(dtype):
        return _counted(function, args, dtype)
    if function == "neg":
        return Span(-args[0].most, -args[0].least) if _whole(args) else UNKNOWN
    if function == "abs":
        return Span(0.0, max(abs(args[0].least), abs(args[0].most))) if _whole(args) else UNKNOWN
    if function in _RISING:
        return _risen(function, args[0], dtype)
    if function in _CORNERS:
        return _rounded(_corners(function, *args), dtype)
    if function == "div" and _whole(args) and args[1].least * args[1].most > 0:
        left, right = args
        return _rounded(_corners("mul", left, Span(1 / right.most, 1 / right.least)), dtype)
    return UNKNOWN


def _within(span: Span, dtype: str) -> Span:
    """A value as a whole number: towards zero, and of its type whatever it was."""
    own = _type(dtype)
    if dtype == "bool":  # which is true of whatever is not 0
        return own
    fits = span.known and not span.hole and own.least <= span.least <= span.most <= own.most
    return Span(math.trunc(span.least), math.trunc(span.most)) if fits else own


def _counted(function: str, args: Sequence[Span], dtype: str) -> Span:
    """Of whole numbers, as long as they stay in the range of their type."""
    if not _whole(args):
        return _type(dtype)
    first, last = args[0], args[-1]
    fixed = int(last.least) if last.least == last.most else None
    if function in _CORNERS:
        return _within(_corners(function, *args), dtype)
    if function in ("neg", "abs"):
        most = max(abs(first.least), abs(first.most))
        found = Span(-first.most, -first.least) if function == "neg" else Span(0.0, most)
        return _within(found, dtype)
    if function == "bitand" and (ends := [arg.most for arg in args if arg.least >= 0]):
        return Span(0.0, min(ends))
    if function in ("bitor", "xor") and min(first.least, last.least) >= 0:
        return Span(0.0, 2.0 ** int(max(first.most, last.most)).bit_length() - 1)
    if function == "mod" and fixed is not None and fixed > 0:
        return Span(0.0, fixed - 1.0)
    if function in ("shr", "floordiv") and fixed is not None and 0 < fixed < _FAR[function]:
        by = 1 << fixed if function == "shr" else fixed
        return Span(first.least // by, first.most // by)
    return _type(dtype)


def _whole(args: Sequence[Span]) -> bool:
    return all(arg.known and not arg.hole for arg in args)


def _extreme(function: str, left: Span, right: Span) -> Span:
    """Of the larger or the smaller of two; the larger is a number where one of them is."""
    choose = max if function == "max" else min
    hole = (left.hole and right.hole) if function == "max" else (left.hole or right.hole)
    return Span(choose(left.least, right.least), choose(left.most, right.most), hole)


def _risen(function: str, span: Span, dtype: str) -> Span:
    if not span.known:
        return UNKNOWN
    rising, grown = _RISING[function], function == "exp"  # which makes 0 of -inf
    least = 0.0 if span.hole and grown else rising(span.least)
    return _rounded(Span(least, rising(span.most), span.hole and not grown), dtype)


def _corners(function: str, left: Span, right: Span) -> Span:
    """Ends of a sum, difference or product; what a number of known sign scales keeps its hole."""
    if not (left.known and right.known):
        return UNKNOWN
    if left.hole or right.hole:
        keeps = {"add": True, "sub": not right.hole}.get(function)
        if keeps is None:
            other = right if left.hole else left
            keeps = not other.hole and other.least > 0
        if not keeps:
            return UNKNOWN
    combine = _CORNERS[function]
    ends = product((left.least, left.most), (right.least, right.most))
    found = [combine(x, y) for x, y in ends]
    return Span(min(found), max(found), left.hole or right.hole)
