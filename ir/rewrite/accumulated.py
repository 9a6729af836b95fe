"""States that only add up what no step makes of them, as reductions.

    s = s + x[t] in each step t, read after the last one  =  s at first + sum over t of x[t]

A loop takes one step after the other; a reduction takes them in any order, in parts, and where x is
a product of what has axes of its own (rank-one updates of a matrix) it is a product of matrices.
The larger and the smaller of a state and a number are extremes in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.builder import cast
from ir.ops.map import Constant, Map
from ir.ops.recur import Before, Recur
from ir.ops.reduce import Reduce
from ir.program import Program
from ir.rewrite.graft import copy_node, graft
from ir.tiles import Tile, apply

NAME = "accumulated"
WHY = "what each step adds to a state that nothing else reads is summed over all steps"
ROUNDING = "sums of the same terms are rounded in other groups"
_KINDS = {"add": "sum", "sub": "sum", "max": "max", "min": "min"}


@dataclass(frozen=True, slots=True)
class _Sum:
    """What a state is combined with in each step, and how."""

    first: int
    term: int
    function: str


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program with every such state as a reduction, and the first one's end; None without."""
    inside = _within_steps(program)
    found = {
        position: one
        for position in range(len(program.nodes))
        if (one := _sum(program, position, inside)) is not None
    }
    if not found:
        return None
    graph, made = graft(program), dict[int, Tile]()
    gone = {arg for position in found for arg in program.nodes[position].args}
    for position, node in enumerate(program.nodes):
        if position in gone:
            continue
        if position not in found:
            args = [made[arg] for arg in node.args]
            made[position] = copy_node(graph, program, position, args)
            continue
        assert isinstance(node.op, Recur)
        one = found[position]
        term = cast(made[one.term], node.dtype)
        total = graph.add(Reduce(_KINDS[one.function], (node.op.axis,)), term)
        first = program.nodes[one.first].op
        nothing = one.function == "add" and isinstance(first, Constant) and not first.value
        made[position] = total if nothing else apply(one.function, made[one.first], total)
    return min(found), graph.program()


def _within_steps(program: Program) -> set[int]:
    """What is computed in a step of a state."""
    found: set[int] = set()
    for position, node in enumerate(program.nodes):
        ends = isinstance(node.op, Recur)
        if isinstance(node.op, Before) or (not ends and found & set(node.args)):
            found.add(position)
    return found


def _sum(program: Program, position: int, inside: set[int]) -> _Sum | None:
    """How a state is added up that ends at a node; None of other nodes and states."""
    node = program.nodes[position]
    if not isinstance(node.op, Recur):
        return None
    before, step = node.args
    op, args = program.nodes[step].op, program.nodes[step].args
    if not isinstance(op, Map) or op.function not in _KINDS or before not in args:
        return None
    others = [arg for arg in args if arg != before]
    turned = op.function == "sub" and args[0] != before
    if len(others) != 1 or turned or others[0] in inside:
        return None
    alone = {*program.users(before)} == {step, position} and [*program.users(step)] == [position]
    term, first = program.nodes[others[0]], program.nodes[before].args[0]
    axes = {*term.axes, *program.nodes[first].axes} - {node.op.axis}
    whole = node.op.axis in term.axes and axes == {*node.axes}
    kept = program.axes[node.op.axis] > 0 or _KINDS[op.function] == "sum"
    return _Sum(first, others[0], op.function) if alone and whole and kept else None
