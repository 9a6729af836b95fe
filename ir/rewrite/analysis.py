"""Which chains of reductions can be carried in one pass, by structural rules on their bodies.

Decides only; `streaming.py` and `split.py` write the programs.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.dtypes import is_float
from ir.ops.map import Cast, Constant, Map
from ir.ops.reduce import Contract, Reduce
from ir.program import Node, Program


class NotDerivable(Exception):
    """Internal: an expression has none of the forms; the message says which node and why."""


@dataclass(frozen=True, slots=True)
class Body:
    """The summand of a reduction: a product of factors, and what was moved behind the sum."""

    factors: tuple[int, ...]
    hoisted: tuple[tuple[str, int], ...]  # ("mul" | "div", node)


class Analysis:
    """Which reductions can be carried along which axis."""

    def __init__(self, program: Program, keep: frozenset[str] = frozenset()) -> None:
        self.program = program
        self.keep = keep
        self.nodes = program.nodes
        self.bodies: dict[int, Body] = {}
        self.carried: dict[int, str] = {}
        self.refused: dict[int, str] = {}
        self._seen: dict[tuple[int, str], frozenset[int]] = {}

    def run(self) -> Analysis:
        dependent: dict[int, str] = {}
        for position, node in enumerate(self.nodes):
            axis = reduction_axis(node)
            if axis is None or axis in self.keep:
                continue
            needed = self.needs(position, axis)
            if not needed:
                continue
            try:
                self._derive(position, axis, needed, dependent)
                dependent[position] = axis
            except NotDerivable as reason:
                self.refused[position] = str(reason)
        for position, axis in dependent.items():
            self.carried[position] = axis
            self.carried.update(dict.fromkeys(self.needs(position, axis), axis))
        return self

    def needs(self, position: int, axis: str) -> frozenset[int]:
        """Reductions over `axis` that the body of a reduction reads."""
        found: frozenset[int] = frozenset()
        for arg in self.nodes[position].args:
            found |= self.reads(arg, axis)
        return found

    def reads(self, position: int, axis: str) -> frozenset[int]:
        """Reductions over `axis` at or below a node, the nearest ones and theirs."""
        key = (position, axis)
        if key not in self._seen:
            node = self.nodes[position]
            found: frozenset[int] = frozenset()
            for arg in node.args:
                found |= self.reads(arg, axis)
            if reduction_axis(node) == axis:
                found |= {position}
            self._seen[key] = found
        return self._seen[key]

    def _derive(
        self, position: int, axis: str, needed: frozenset[int], done: dict[int, str]
    ) -> None:
        node = self.nodes[position]
        for other in needed:
            if other in self.refused:
                raise NotDerivable(f"node {other}, which it reads, is a pass of its own")
        kind = node.op.kind if isinstance(node.op, Reduce) else "sum"
        if kind != "sum":
            raise NotDerivable(f"a {kind} over {axis} of values that move with node {min(needed)}")
        if not is_float(node.dtype):
            raise NotDerivable("whole numbers are not rescaled")
        self.bodies[position] = self.body(position, axis)
        rules = Rules(self, axis)
        if not rules.separable(self.bodies[position].factors):
            rules.shifted(self.bodies[position].factors)

    def body(self, position: int, axis: str) -> Body:
        """The summand as a product, k-independent factors that move taken out of it."""
        node = self.nodes[position]
        factors = list(node.args)
        if isinstance(node.op, Reduce):
            inner = self.nodes[factors[0]]
            if isinstance(inner.op, Map) and inner.op.function == "mul":
                factors = list(inner.args)
        hoisted: list[tuple[str, int]] = []
        kept = [self._strip(factor, axis, hoisted) for factor in factors]
        return Body(tuple(kept), tuple(hoisted))

    def _strip(self, position: int, axis: str, hoisted: list[tuple[str, int]]) -> int:
        """Peel k-independent, moving factors off a product or quotient, through casts."""
        core, node = position, self.nodes[position]
        while isinstance(node.op, Cast) and is_float(node.dtype):
            core = node.args[0]
            node = self.nodes[core]
        if not isinstance(node.op, Map) or node.op.function not in ("mul", "div"):
            return position
        left, right = node.args
        if self.moves(right, axis) and not self.varies(right, axis):
            hoisted.append((node.op.function, right))
            return self._strip(left, axis, hoisted)
        if node.op.function == "mul" and self.moves(left, axis) and not self.varies(left, axis):
            hoisted.append(("mul", left))
            return self._strip(right, axis, hoisted)
        return position

    def moves(self, position: int, axis: str) -> bool:
        """Whether a value depends on a reduction over `axis`."""
        return bool(self.reads(position, axis))

    def varies(self, position: int, axis: str) -> bool:
        return axis in self.nodes[position].axes


def reduction_axis(node: Node) -> str | None:
    """The axis of a reduction over exactly one axis."""
    if isinstance(node.op, (Reduce, Contract)) and len(node.op.over) == 1:
        return node.op.over[0]
    return None


class Rules:
    """The structural rules, as tests; `_Emit` applies the same ones to build nodes."""

    def __init__(self, analysis: Analysis, axis: str) -> None:
        self.a = analysis
        self.axis = axis

    def separable(self, factors: tuple[int, ...]) -> bool:
        return all(self.has_ratio(factor) for factor in factors)

    def has_ratio(self, position: int) -> bool:
        """f(k, r') / f(k, r) does not depend on k."""
        node = self.a.nodes[position]
        if not self.a.moves(position, self.axis) or not self.a.varies(position, self.axis):
            return True
        if isinstance(node.op, Cast):
            return is_float(node.dtype) and self.has_ratio(node.args[0])
        if not isinstance(node.op, Map):
            return False
        if node.op.function in ("mul", "div"):
            return all(self.has_ratio(arg) for arg in node.args)
        if node.op.function == "neg":
            return self.has_ratio(node.args[0])
        if node.op.function == "where":
            return self._where_zero(node)
        return node.op.function == "exp" and self.has_shift(node.args[0])

    def _where_zero(self, node: Node) -> bool:
        """where(condition, f, 0), the condition not moving."""
        condition, yes, no = node.args
        zero = self.a.nodes[no].op
        return (
            not self.a.moves(condition, self.axis)
            and isinstance(zero, Constant)
            and zero.value == 0
            and self.has_ratio(yes)
        )

    def has_shift(self, position: int) -> bool:
        """e(k, r') - e(k, r) does not depend on k."""
        node = self.a.nodes[position]
        if not self.a.moves(position, self.axis) or not self.a.varies(position, self.axis):
            return True
        if isinstance(node.op, Cast):
            return is_float(node.dtype) and self.has_shift(node.args[0])
        if not isinstance(node.op, Map):
            return False
        if node.op.function in ("add", "sub", "neg"):
            return all(self.has_shift(arg) for arg in node.args)
        if node.op.function in ("mul", "div"):
            left, right = node.args
            fixed = not self.a.moves(right, self.axis) and not self.a.varies(right, self.axis)
            if fixed:
                return self.has_shift(left)
            mirrored = not self.a.moves(left, self.axis) and not self.a.varies(left, self.axis)
            return node.op.function == "mul" and mirrored and self.has_shift(right)
        return False

    def shifted(self, factors: tuple[int, ...]) -> None:
        """A product of one or two factors that shift; raises NotDerivable."""
        if len(factors) > 2:
            raise NotDerivable(f"a product of {len(factors)} factors that shift")
        for factor in factors:
            if not self.has_shift(factor):
                function = getattr(
                    self.a.nodes[factor].op, "function", self.a.nodes[factor].op.name
                )
                raise NotDerivable(
                    f"node {factor} ({function}) neither scales nor shifts by an "
                    f"amount independent of {self.axis}"
                )
