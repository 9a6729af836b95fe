"""Which points of a reduced axis can matter: conditions read off the masks in the expressions.

For `where(condition, x, y)` inside the body of a reduction, the body is evaluated symbolically with
y in its place. If that gives the identity of the reduction, points where the condition fails
contribute nothing, and a backend may skip them. The same goes for x, where the condition holds.
Values that no mask replaces are taken to be finite. Whole numbers that are read from a tensor, such
as the length of a sequence, are terms of a condition as axes are: its `reads`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ir.dtypes import is_float
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Carry, Contract, Now, Reduce
from ir.program import Node, Program
from ir.rewrite.analysis import combined_axes
from ir.scalar import COMBINES, scalar_function

Terms = tuple[tuple[str, int], ...]
Reads = tuple[tuple[int, int], ...]
Key = tuple[Terms, Reads]
_READ = "i32"  # the type of whole numbers that conditions may read
_LARGEST = 1 << 10  # number that what is read is multiplied by, lest bounds of kernels overflow
_FARTHEST = 1 << 30  # sum of coordinates, each times its coefficient
MOST_READ = 16  # of them, that one bound of a kernel is made of


@dataclass(frozen=True, slots=True)
class Condition:
    """Sum of coefficient * axis, of coefficient * what a node reads, and constant >= 0."""

    terms: Terms
    constant: int
    reads: Reads = ()

    def varies(self, axis: str) -> bool:
        """Whether other points than those of `axis` decide where it holds."""
        return bool(self.reads) or any(name != axis for name, _ in self.terms)


@dataclass(frozen=True, slots=True)
class Mask:
    """A `where`, the operand that is the value outside (1 or 2), and the axes summed below it."""

    node: int
    outside: int
    inner: frozenset[str]


@lru_cache(maxsize=4096)
def live_range(program: Program, axis: str) -> tuple[Condition, ...]:
    """Conditions that must all hold for a point of `axis` to matter to any reduction over it."""
    common: dict[Key, int] | None = None
    for position, node in enumerate(program.nodes):
        if axis in combined_axes(node):
            found = _body_conditions(program, position, axis)
            common = found if common is None else _either(common, found)
    return tuple(
        Condition(terms, constant, reads)
        for (terms, reads), constant in sorted((common or {}).items())
    )


@dataclass(frozen=True, slots=True)
class Gap:
    """Points of an axis that matter to nothing although points on both sides of them do: those
    beyond every one of `near`, bounds from above, and before every one of `far`, from below. What
    is beyond all of `near` and of `last` does not matter either, if `last` is known."""

    near: tuple[Condition, ...]
    far: tuple[Condition, ...]
    last: tuple[Condition, ...] = ()

    @property
    def axes(self) -> frozenset[str]:
        """All of those that its bounds are made of."""
        every = (*self.near, *self.far, *self.last)
        return frozenset(name for one in every for name, _ in one.terms)


def ending(program: Program, axis: str) -> tuple[int, ...]:
    """Conditions which, once they fail along `axis`, fail at all points behind as well, and without
    which a point adds nothing to any reduction over it."""
    found = dict[int, None]()
    for node, fails in deciding(program, axis).items():
        pending = [program.nodes[node].args[0]] if fails else []
        while pending:
            position = pending.pop()
            if program.nodes[position].op == Map("and"):
                pending += program.nodes[position].args
                continue
            bounds = _conjuncts(program, position, True)
            signs = [dict(bound.terms).get(axis, 0) for bound in bounds]
            ends = min(signs, default=0) < 0 and max(signs) <= 0
            if ends and only_bounds(program, position, True):
                found[position] = None
    return tuple(found)


@lru_cache(maxsize=4096)
def live_gap(program: Program, axis: str) -> Gap | None:
    """Where a mask leaves two spans of `axis`, as a window beside the first points does, what is
    between them in every reduction over it."""
    common: set[Gap] | None = None
    for position, node in enumerate(program.nodes):
        if axis in combined_axes(node):
            found = {
                gap
                for mask in _deciding(program, position, axis)
                for gap in _gaps(program, program.nodes[mask.node].args[0], mask.outside == 2, axis)
                if not gap.axes & mask.inner
            }
            common = found if common is None else common & found
    return min(common, key=str) if common else None


def is_narrowed(program: Program, axis: str) -> bool:
    """Whether masks leave out points of an axis that a loop need not go over."""
    return bool(live_range(program, axis)) or live_gap(program, axis) is not None


def _gaps(program: Program, position: int, holds: bool, axis: str) -> list[Gap]:
    """Those that a condition leaves where it holds, or where it fails."""
    node = program.nodes[position]
    function = node.op.function if isinstance(node.op, Map) else ""
    if function == "not":
        return _gaps(program, node.args[0], not holds, axis)
    if function == ("and" if holds else "or"):
        return [gap for arg in node.args for gap in _gaps(program, arg, holds, axis)]
    if function != ("or" if holds else "and"):
        return []
    near, far, last = list[Condition](), list[Condition](), list[Condition]()
    for bounds in _alternatives(program, position, holds):
        signs = {dict(one.terms).get(axis, 0): one for one in bounds if not one.reads}
        if 1 in signs:
            far.append(signs[1])
            last += [signs[-1]] if -1 in signs else []
        elif -1 in signs:
            near.append(signs[-1])
        else:
            return []
    whole = tuple(last) if len(last) == len(far) else ()
    return [Gap(tuple(near), tuple(far), whole)] if near and far else []


def _alternatives(program: Program, position: int, holds: bool) -> list[list[Condition]]:
    """What follows from each of the conditions of which one holds."""
    node = program.nodes[position]
    function = node.op.function if isinstance(node.op, Map) else ""
    if function == "not":
        return _alternatives(program, node.args[0], not holds)
    if function == ("or" if holds else "and"):
        return [one for arg in node.args for one in _alternatives(program, arg, holds)]
    return [_conjuncts(program, position, holds)]


def _either(left: dict[Key, int], right: dict[Key, int]) -> dict[Key, int]:
    """What holds where one or the other does: of two bounds in one direction, the weaker."""
    return {terms: max(left[terms], right[terms]) for terms in left if terms in right}


def _body_conditions(program: Program, position: int, axis: str) -> dict[Key, int]:
    found: dict[Key, int] = {}
    for mask in _deciding(program, position, axis):
        for bound in _conjuncts(program, program.nodes[mask.node].args[0], mask.outside == 2):
            key = bound.terms, bound.reads
            axes = {name for name, _ in bound.terms}
            read = {name for node, _ in bound.reads for name in program.nodes[node].axes}
            if axis in axes - read and not (axes | read) & mask.inner:
                found[key] = min(found.get(key, bound.constant), bound.constant)
    return found


def _deciding(program: Program, position: int, axis: str) -> list[Mask]:
    """The masks outside of which a point adds nothing to a reduction."""
    node = program.nodes[position]
    kind = node.op.kind if isinstance(node.op, (Reduce, Carry)) else "sum"
    body = node.args[:1] if isinstance(node.op, Carry) else node.args
    found = []
    for mask in _masks(program, body, axis):
        fold = _Fold(program, mask, axis)
        values = [fold.value(arg) for arg in body]
        if _is_identity(values[0] if len(values) == 1 else _apply("mul", values), kind):
            found.append(mask)
    return found


def deciding(program: Program, axis: str) -> dict[int, bool]:
    """The choices that leave points of `axis` out of every reduction over it, and whether that is
    where their condition fails (True) or holds."""
    common: dict[int, bool] | None = None
    for position, node in enumerate(program.nodes):
        if axis in combined_axes(node):
            masks = _deciding(program, position, axis)
            found = {mask.node: mask.outside == 2 for mask in masks if not mask.inner}
            common = found if common is None else dict(common.items() & found.items())
    return common or {}


def _is_identity(value: float | None, kind: str) -> bool:
    if value is None:
        return False
    return value == COMBINES[kind].identity


def _masks(program: Program, roots: tuple[int, ...], axis: str) -> list[Mask]:
    """The where nodes in an expression, not looking into reductions over `axis`."""
    found: list[Mask] = []
    pending = [(root, frozenset[str]()) for root in roots]
    seen: set[tuple[int, frozenset[str]]] = set()
    while pending:
        position, inner = pending.pop()
        node = program.nodes[position]
        if (position, inner) in seen or _opaque(node, axis):
            continue
        seen.add((position, inner))
        if isinstance(node.op, Map) and node.op.function == "where":
            found += [Mask(position, outside, inner) for outside in (1, 2)]
        below = inner | frozenset(combined_axes(node))
        pending.extend((arg, below) for arg in node.args)
    return found


def _opaque(node: Node, axis: str) -> bool:
    """Whose value says nothing about this point of the axis."""
    return isinstance(node.op, (Now, Carry)) or axis in combined_axes(node)


class _Fold:
    """Constant folding with one where replaced by an operand; None means any finite value."""

    def __init__(self, program: Program, mask: Mask, axis: str) -> None:
        self.program, self.mask, self.axis = program, mask, axis
        self.memo: dict[int, float | None] = {}

    def value(self, position: int) -> float | None:
        if position not in self.memo:
            self.memo[position] = self._fold(position)
        return self.memo[position]

    def _fold(self, position: int) -> float | None:
        node = self.program.nodes[position]
        if position == self.mask.node:
            return self.value(node.args[self.mask.outside])
        if isinstance(node.op, Constant):
            return float(node.op.value)
        if _opaque(node, self.axis) or not isinstance(node.op, (Cast, Map, Reduce, Contract)):
            return None
        args = [self.value(arg) for arg in node.args]
        if isinstance(node.op, Cast):
            return args[0] if is_float(node.dtype) else None
        if isinstance(node.op, Map):
            row = scalar_function(node.op.function)  # of others a number is not folded
            plain = not row.is_whole and node.op.dtype is None
            return _apply(node.op.function, args) if plain else None
        if isinstance(node.op, Contract):
            return _repeated(_apply("mul", args), "sum")
        return _repeated(args[0], node.op.kind)


def _repeated(value: float | None, kind: str) -> float | None:
    """One value combined with itself, an unknown number of times."""
    same = {"sum": (0.0, math.inf, -math.inf), "prod": (0.0, 1.0), "max": None, "min": None}[kind]
    return value if value is None or same is None or value in same else None


def _apply(function: str, args: list[float | None]) -> float | None:
    known = [arg for arg in args if arg is not None]
    if function == "where" and args[0] is not None:
        return args[1] if args[0] else args[2]
    if function == "where":
        return args[1] if args[1] == args[2] else None
    if len(known) == len(args):
        with np.errstate(all="ignore"):
            result = float(scalar_function(function).meaning(*np.asarray(args, dtype=float)))
        return None if math.isnan(result) else result
    return _absorbed(function, args)


def _absorbed(function: str, args: list[float | None]) -> float | None:
    """The result where one operand decides it whatever finite value the other has."""
    if len(args) != 2:
        return None
    left, right = args
    known = left if right is None else right
    if known is None:
        return None
    decides = {
        "add": math.isinf(known),
        "sub": math.isinf(known),
        "mul": known == 0,
        "div": known == 0 and right is None,
        "max": known == math.inf,
        "min": known == -math.inf,
        "and": known == 0,
        "or": known == 1,
    }.get(function, False)
    if not decides:
        return None
    return -known if function == "sub" and left is None else known


def _conjuncts(program: Program, position: int, holds: bool) -> list[Condition]:
    """Affine bounds that follow from a condition holding, or failing."""
    node = program.nodes[position]
    if not isinstance(node.op, Map):
        return []
    function = node.op.function
    if function == "not":
        return _conjuncts(program, node.args[0], not holds)
    if function == ("and" if holds else "or"):
        return [c for arg in node.args for c in _conjuncts(program, arg, holds)]
    if function == "eq" and holds:
        left, right = node.args
        return [*_bound(program, left, right, 0), *_bound(program, right, left, 0)]
    if function not in ("le", "lt"):
        return []
    left, right = node.args if holds else (node.args[1], node.args[0])
    return _bound(program, left, right, int((function == "lt") == holds))


def block_of(program: Program, position: int) -> tuple[str, int] | None:
    """The axis of whose coordinate a value is the block, and points of a block, a power of two: the
    index of a table of blocks. None for any other value."""
    node = program.nodes[position]
    if node.op != Map("shr"):
        return None
    of, by = (program.nodes[arg].op for arg in node.args)
    if not isinstance(of, Iota) or not isinstance(by, Constant):
        return None
    return of.axis, 1 << int(by.value)


def only_bounds(program: Program, position: int, holds: bool) -> bool:
    """Whether a condition says no more, by holding or failing, than bounds that follow from it."""
    node = program.nodes[position]
    function = node.op.function if isinstance(node.op, Map) else ""
    if function == "not":
        return only_bounds(program, node.args[0], not holds)
    if function == ("and" if holds else "or"):
        return all(only_bounds(program, arg, holds) for arg in node.args)
    return bool(_conjuncts(program, position, holds))


def sufficient(program: Program, position: int, beyond: str = "") -> tuple[Condition, ...] | None:
    """Affine bounds that together make a condition hold; None where none are known to. Of several
    ways to hold the first one, or the first one that bounds the axis `beyond` from below."""
    node = program.nodes[position]
    function = node.op.function if isinstance(node.op, Map) else ""
    if function in ("and", "or"):
        parts = [sufficient(program, arg, beyond) for arg in node.args]
        known = [part for part in parts if part is not None]
        if function == "or":
            far = [part for part in known if any(dict(c.terms).get(beyond, 0) > 0 for c in part)]
            return next(iter([*far, *known]), None)
        return tuple(one for part in known for one in part) if len(known) == len(parts) else None
    if function not in ("le", "lt"):
        return None
    low, high = node.args
    return tuple(_bound(program, low, high, int(function == "lt"), whole=True)) or None


@dataclass(frozen=True, slots=True)
class _Affine:
    """Coefficients of axes and of what nodes read, and a constant."""

    terms: dict[str, int]
    reads: dict[int, int]
    constant: int

    @property
    def known(self) -> bool:
        return not self.terms and not self.reads

    def times(self, scale: int) -> _Affine:
        return _Affine(
            {axis: c * scale for axis, c in self.terms.items()},
            {node: c * scale for node, c in self.reads.items()},
            self.constant * scale,
        )

    def plus(self, other: _Affine) -> _Affine:
        terms, reads = dict(self.terms), dict(self.reads)
        for axis, c in other.terms.items():
            terms[axis] = terms.get(axis, 0) + c
        for node, c in other.reads.items():
            reads[node] = reads.get(node, 0) + c
        return _Affine(terms, reads, self.constant + other.constant)


def _bound(program: Program, low: int, high: int, gap: int, whole: bool = False) -> list[Condition]:
    """low + gap <= high, between whole numbers. Below the smaller of two is below both, above the
    larger above both: what is known of that, or with `whole` all of it or nothing. A quotient is
    less than one below what is divided; so much more may hold, or with `whole` less."""
    for side, function in ((low, "max"), (high, "min")):
        if program.nodes[side].op == Map(function):
            both = [
                _bound(program, *((arg, high) if side == low else (low, arg)), gap, whole)
                for arg in program.nodes[side].args
            ]
            return [] if whole and not all(both) else [one for part in both for one in part]
    left, right = _divided(program, low), _divided(program, high)
    if left is None or right is None:
        return []
    (left_of, left_by), (right_of, right_by) = left, right
    common = math.lcm(left_by, right_by)
    below, above = common // left_by, common // right_by
    apart = right_of.times(above).plus(left_of.times(-below))
    rest = -(right_by - 1) * above if whole else (left_by - 1) * below
    terms = tuple(sorted((a, c) for a, c in apart.terms.items() if c))
    reads = tuple(sorted((n, c) for n, c in apart.reads.items() if c))
    size = sum(abs(c) * program.axes[axis] for axis, c in terms)
    if common > 1 and (size >= _FARTHEST or any(abs(c) > _LARGEST for _, c in reads)):
        return []
    return [Condition(terms, apart.constant + rest - gap * common, reads)]


def _divided(program: Program, position: int) -> tuple[_Affine, int] | None:
    """A whole-numbered expression, or what it is the quotient of, and by which number."""
    node = program.nodes[position]
    if isinstance(node.op, Cast) and node.dtype == "i32":
        return _divided(program, node.args[0])
    plain = _affine(program, position)
    if plain is not None:
        return plain, 1
    if not isinstance(node.op, Map) or node.op.function not in ("floordiv", "shr"):
        return None
    of, by = _affine(program, node.args[0]), program.nodes[node.args[1]].op
    if of is None or not isinstance(by, Constant) or node.dtype != "i32":
        return None
    if not 0 <= by.value < _FARTHEST:  # what a shift by less leaves is no quotient
        return None
    number = int(by.value)
    number = 1 << min(number, 31) if node.op.function == "shr" else number
    return (of, number) if 0 < number < _FARTHEST else None


def _affine(program: Program, position: int) -> _Affine | None:
    """A whole-numbered expression."""
    node = program.nodes[position]
    if isinstance(node.op, Iota):
        return _Affine({node.op.axis: 1}, {}, 0)
    if isinstance(node.op, Constant):
        whole = math.isfinite(node.op.value) and node.op.value == int(node.op.value)
        return _Affine({}, {}, int(node.op.value)) if whole else None
    if isinstance(node.op, Load):
        return _Affine({}, {position: 1}, 0) if node.dtype == _READ else None
    if isinstance(node.op, Cast) and node.dtype in ("i32", "f32", "f64"):
        return _affine(program, node.args[0])
    if not isinstance(node.op, Map) or node.op.function not in ("add", "sub", "mul"):
        return None
    left, right = (_affine(program, arg) for arg in node.args)
    if left is None or right is None:
        return None
    if node.op.function == "mul":
        if not left.known and not right.known:
            return None
        return right.times(left.constant) if left.known else left.times(right.constant)
    return left.plus(right.times(1 if node.op.function == "add" else -1))
