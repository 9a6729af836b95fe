"""Which reductions can be carried along which axis, and in what form. Writes no program."""

from __future__ import annotations

from ir.dtypes import compute_dtype, is_float
from ir.ops.map import Map
from ir.ops.reduce import Carry, Contract, Now, Reduce
from ir.program import Node, Program
from ir.rewrite.algebra import NotDerivable, Rules, Term


class Analysis:
    """Decides for every reduction; `run` fills `carried`, `forms` and `refused`."""

    def __init__(
        self, program: Program, keep: frozenset[str] = frozenset(), joint: tuple[str, ...] = ()
    ) -> None:
        self.program = program
        self.keep = keep
        self.joint = joint  # axes that are walked together, in the name of the last one
        self.nodes = program.nodes
        self.forms: dict[int, tuple[Term, ...]] = {}
        self.carried: dict[int, str] = {}
        self.refused: dict[int, str] = {}
        self._seen: dict[tuple[int, str], frozenset[int]] = {}

    def run(self) -> Analysis:
        for position, node in enumerate(self.nodes):
            for axis in combined_axes(node):
                if axis in self.joint[:-1]:
                    continue
                needed = self.needs(position, axis)
                if needed and axis not in self.keep and not isinstance(node.op, Carry):
                    self._decide(position, axis, needed)
        return self

    def _decide(self, position: int, axis: str, needed: frozenset[int]) -> None:
        try:
            forms = self._derive(position, axis, needed)
        except NotDerivable as reason:
            self.refused[position] = str(reason)
            return
        self.forms[position] = forms
        self.carried.update(dict.fromkeys((*needed, position), axis))

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
            if axis in combined_axes(node):
                found |= {position}
            self._seen[key] = found
        return self._seen[key]

    def moves(self, position: int, axis: str) -> bool:
        """Whether a value depends on a reduction over `axis`."""
        return bool(self.reads(position, axis))

    def varies(self, position: int, axis: str) -> bool:
        return not {*self.over(axis)}.isdisjoint(self.nodes[position].axes)

    def over(self, axis: str) -> tuple[str, ...]:
        """The axes that are walked where `axis` is."""
        return self.joint if self.joint and axis == self.joint[-1] else (axis,)

    def folds(self, position: int, axis: str, kind: str) -> bool:
        """Whether a node is the reduction of that kind over what is walked."""
        op = self.nodes[position].op
        return isinstance(op, Reduce) and op.kind == kind and {*op.over} == {*self.over(axis)}

    def multiplied(self, position: int) -> bool:
        """Whether a value of a narrow type is an operand of a contraction of such numbers."""
        dtype = self.nodes[position].dtype
        users = (self.nodes[user] for user in self.program.users(position))
        alike = (
            isinstance(node.op, Contract) and all(self.nodes[a].dtype == dtype for a in node.args)
            for node in users
        )  # fmt: skip
        return compute_dtype(dtype) != dtype and any(alike)

    def _derive(self, position: int, axis: str, needed: frozenset[int]) -> tuple[Term, ...]:
        node = self.nodes[position]
        self._check_chain(position, axis, needed)
        kind = node.op.kind if isinstance(node.op, Reduce) else "sum"
        if not is_float(node.dtype):
            raise NotDerivable("whole numbers are not rescaled")
        rules = Rules(self, axis)
        if kind in ("max", "min"):
            return (rules.extreme(node.args[0], kind),)
        if kind != "sum":
            raise NotDerivable(f"a {kind} over {axis} of values that move with node {min(needed)}")
        factors = list(node.args)
        inner = self.nodes[factors[0]]
        if len(factors) == 1 and isinstance(inner.op, Map) and inner.op.function == "mul":
            factors = list(inner.args)
        terms = rules.product([rules.terms(factor) for factor in factors])
        for term in terms:
            rules.check_size(term)
        return terms

    def _check_chain(self, position: int, axis: str, needed: frozenset[int]) -> None:
        """What moves must do so through reductions over this axis alone, carried along it."""
        for member in sorted((*needed, position)):
            over = combined_axes(self.nodes[member])
            if {*over} != {*self.over(axis)}:
                raise NotDerivable(f"node {member} is reduced over {' and '.join(over)} together")
            if isinstance(self.nodes[member].op, Carry):
                raise NotDerivable(f"node {member}, which it reads, is carried as written")
        for member in sorted(needed & self.refused.keys()):
            raise NotDerivable(f"node {member}, which it reads, is a pass of its own")
        for between in self._moving(position, axis):
            node = self.nodes[between]
            gone = {*combined_axes(node)}
            if isinstance(node.op, Now) or gone not in (set(), {*self.over(axis)}):
                raise NotDerivable(f"it moves through node {between}, a {node.op.name}")

    def _moving(self, position: int, axis: str) -> list[int]:
        """The moving nodes that a reduction reads, those of the reductions it needs included."""
        found: set[int] = set()
        pending = list(self.nodes[position].args)
        while pending:
            current = pending.pop()
            if current not in found and self.moves(current, axis):
                found.add(current)
                pending.extend(self.nodes[current].args)
        return sorted(found)


def combined_axes(node: Node) -> tuple[str, ...]:
    """The axes that a node combines over; none for what is no reduction."""
    return node.op.over if isinstance(node.op, (Reduce, Contract, Carry)) else ()
