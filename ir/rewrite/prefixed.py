"""Sums under a mask that is a triangle as running sums.

    sum over j of where(j <= i, x[m, j], 0)  =  the running sum of x[m, .], at i

What is summed is the same for all i but for where it ends: n sums of n terms are one pass over n.
Both ends may be the running one, and the diagonal may be left out or lie off the middle:

    sum over j of where(j > i + 1, x[j], 0)  =  the running sum from the end of x[. + 2], at i

Sums are rounded in another order, as those of a scan are.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.axes import Axis
from ir.folding import cumulative
from ir.ops.load import Index
from ir.ops.map import Map
from ir.ops.read import Read
from ir.ops.reduce import Contract, Reduce
from ir.program import Program
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.guarded import Without, conditions, leaves, line_of, terms_of
from ir.rewrite.work import in_steps
from ir.tiles import Tile

NAME = "prefixed"
WHY = "sums that begin alike and end one after the other are a running sum"
ROUNDING = "sums of the same terms are rounded in other groups"


@dataclass(frozen=True, slots=True)
class _Triangle:
    """Points of `inner`, summed, up to that of `outer` and `more`; from there on if `backward`."""

    condition: int
    inner: str
    outer: str
    more: int
    backward: bool


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program with every such sum as a running one, and the first one's node; or None."""
    steps = in_steps(program)
    found = {
        position: triangle
        for position in range(len(program.nodes))
        if position not in steps and (triangle := _triangle(program, position)) is not None
    }
    if not found:
        return None
    graph, made = graft(program), dict[int, Tile]()
    for position, node in enumerate(program.nodes):
        if position not in found:
            args = [made[arg] for arg in node.args]
            made[position] = copy_node(graph, program, position, args)
            continue
        assert isinstance(node.op, Contract | Reduce)
        one = found[position]
        without = Without(program, graph, made, one.condition)
        term = without.product(terms_of(program, position), node.dtype)
        rest = tuple(axis for axis in node.op.over if axis != one.inner)
        term = graph.add(Reduce("sum", rest), term) if rest else term
        here = Index(((one.outer, 1),), one.more)
        index = tuple(here if axis == one.inner else Index(((axis, 1),)) for axis in term.axes)
        moved = graph.add(Read(index, 0.0 if one.more else None), term)
        along = Axis(one.outer, program.axes[one.outer])
        made[position] = cumulative("sum", moved, along, backward=one.backward)
    return min(found), graph.program()


def _triangle(program: Program, position: int) -> _Triangle | None:
    """The triangle under which a sum's terms count and beside which nothing varies with its end."""
    terms = terms_of(program, position)
    op = program.nodes[position].op
    for condition in (one for arg in terms for one in conditions(program, arg)):
        assert isinstance(op, Contract | Reduce)
        node = program.nodes[condition]
        if node.op not in (Map("le"), Map("lt")):
            continue
        left, right = (line_of(program, arg) for arg in node.args)
        if left is None or right is None or (left.axis in op.over) == (right.axis in op.over):
            continue
        backward = right.axis in op.over  # outer <= inner
        inner, outer = (right, left) if backward else (left, right)
        strict = node.op == Map("lt")
        more = outer.more - inner.more + (strict if backward else -strict)
        one = _Triangle(condition, inner.axis, outer.axis, more, backward)
        if (more >= 0 if backward else more <= 0) and _is_free(program, position, one):
            return one
    return None


def _is_free(program: Program, position: int, one: _Triangle) -> bool:
    """Whether terms are along the inner axis alone, and the outer one is as long."""
    op = program.nodes[position].op
    assert isinstance(op, Contract | Reduce)
    axes = {axis for leaf in leaves(program, position, one.condition)
            for axis in program.nodes[leaf].axes}  # fmt: skip
    alike = program.axes[one.inner] == program.axes[one.outer]
    return alike and one.outer not in axes and set(op.over) <= axes
