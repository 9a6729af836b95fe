"""Which points of a reduced axis can matter: conditions read off the masks in the expressions.

For `where(condition, x, y)` inside the body of a reduction, the body is evaluated symbolically with
y in its place. If that gives the identity of the reduction, points where the condition fails
contribute nothing, and a backend may skip them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Carry, Contract, Now
from ir.program import Program
from ir.scalar import COMBINES, LOWEST
from ir.stages import is_reduction, reduced_axes


@dataclass(frozen=True, slots=True)
class Condition:
    """Sum of coefficient * axis + constant >= 0."""

    terms: tuple[tuple[str, int], ...]
    constant: int


def live_range(program: Program, axis: str) -> tuple[Condition, ...]:
    """Conditions that must all hold for a point of `axis` to matter to any reduction over it."""
    common: set[Condition] | None = None
    for position, node in enumerate(program.nodes):
        if is_reduction(node) and axis in reduced_axes(node):
            found = _body_conditions(program, position)
            common = found if common is None else common & found
    kept = sorted(common or (), key=lambda c: (c.terms, c.constant))
    return tuple(c for c in kept if axis in dict(c.terms))


def _body_conditions(program: Program, position: int) -> set[Condition]:
    node = program.nodes[position]
    kind = "sum" if isinstance(node.op, Contract) else node.op.kind  # type: ignore[attr-defined]
    body = node.args[:1] if isinstance(node.op, Carry) else node.args
    found: set[Condition] = set()
    for mask in _masks(program, body):
        fold = _Fold(program, mask)
        values = [fold.value(arg) for arg in body]
        product = values[0] if len(values) == 1 else _multiply(values[0], values[1])
        if _is_identity(product, kind):
            found |= set(_conjuncts(program, program.nodes[mask].args[0]))
    return found


def _is_identity(value: float | None, kind: str) -> bool:
    if value is None:
        return False
    identity = COMBINES[kind].identity
    return (
        value == identity
        or (kind == "max" and value <= LOWEST)
        or (kind == "min" and value >= -LOWEST)
    )


def _masks(program: Program, roots: tuple[int, ...]) -> list[int]:
    """The where nodes in an expression, not looking into reductions."""
    found, pending, seen = [], list(roots), set()
    while pending:
        position = pending.pop()
        node = program.nodes[position]
        if position in seen or is_reduction(node) or isinstance(node.op, Now):
            continue
        seen.add(position)
        if isinstance(node.op, Map) and node.op.function == "where":
            found.append(position)
        pending.extend(node.args)
    return found


class _Fold:
    """Constant folding with one where replaced by its last operand; None means any finite value."""

    def __init__(self, program: Program, mask: int) -> None:
        self.program, self.mask = program, mask
        self.memo: dict[int, float | None] = {}

    def value(self, position: int) -> float | None:
        if position not in self.memo:
            self.memo[position] = self._fold(position)
        return self.memo[position]

    def _fold(self, position: int) -> float | None:
        node = self.program.nodes[position]
        if position == self.mask:
            return self.value(node.args[2])
        if isinstance(node.op, Constant):
            return float(node.op.value)
        if isinstance(node.op, Cast):
            return self.value(node.args[0])
        if not isinstance(node.op, Map):
            return None
        return _apply(node.op.function, [self.value(arg) for arg in node.args])


def _multiply(left: float | None, right: float | None) -> float | None:
    if left == 0 or right == 0:
        return 0.0
    return None if left is None or right is None else left * right


def _apply(function: str, args: list[float | None]) -> float | None:
    if function in ("add", "sub"):
        left, right = args
        if right is not None and function == "sub":
            right = -right
        infinite = [v for v in (left, right) if v is not None and math.isinf(v)]
        if infinite:
            return infinite[0]
        return None if left is None or right is None else left + right
    if function == "mul":
        return _multiply(args[0], args[1])
    if function == "div":
        if args[0] == 0:
            return 0.0
        return None if args[0] is None or not args[1] else args[0] / args[1]
    if function == "where":
        return args[1] if args[1] == args[2] else None
    if function == "neg":
        return None if args[0] is None else -args[0]
    if function == "exp" and args[0] is not None:
        return math.exp(min(args[0], 700.0))
    return None


def _conjuncts(program: Program, position: int) -> list[Condition]:
    node = program.nodes[position]
    if not isinstance(node.op, Map):
        return []
    if node.op.function == "and":
        return [c for arg in node.args for c in _conjuncts(program, arg)]
    if node.op.function not in ("le", "lt"):
        return []
    left, right = (_affine(program, arg) for arg in node.args)
    if left is None or right is None:
        return []
    terms = dict(right[0])
    for axis, coefficient in left[0].items():
        terms[axis] = terms.get(axis, 0) - coefficient
    constant = right[1] - left[1] - (node.op.function == "lt")
    kept = tuple(sorted((a, c) for a, c in terms.items() if c))
    return [Condition(kept, constant)]


def _affine(program: Program, position: int) -> tuple[dict[str, int], int] | None:
    """An integer expression as coefficients and a constant."""
    node = program.nodes[position]
    if isinstance(node.op, Iota):
        return {node.op.axis: 1}, 0
    if isinstance(node.op, Constant) and node.op.value == int(node.op.value):
        return {}, int(node.op.value)
    if not isinstance(node.op, Map) or node.op.function not in ("add", "sub", "mul"):
        return None
    left, right = (_affine(program, arg) for arg in node.args)
    if left is None or right is None:
        return None
    if node.op.function == "mul":
        if left[0] and right[0]:
            return None
        scale, other = (left[1], right) if not left[0] else (right[1], left)
        return {a: c * scale for a, c in other[0].items()}, other[1] * scale
    sign = 1 if node.op.function == "add" else -1
    terms = dict(left[0])
    for axis, coefficient in right[0].items():
        terms[axis] = terms.get(axis, 0) + sign * coefficient
    return terms, left[1] + sign * right[1]
