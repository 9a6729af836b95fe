"""Loops of a program: the states that go along an axis together, and what makes up a step.

Inside a loop is what is computed from a state at the state's own point of the axis. It has values
at every point, which what is outside may read. Knows no target.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from ir.errors import ProgramError
from ir.ops.fold import Fold
from ir.ops.load import Load
from ir.ops.read import Read
from ir.ops.recur import Before, Recur
from ir.ops.reduce import Carry, Contract, Reduce
from ir.ops.scatter import Scatter
from ir.ops.store import Store
from ir.ops.top import Top
from ir.program import Node, Program


@dataclass(frozen=True, slots=True)
class Carried:
    """One loop: its axis, the `Before` nodes with their `Recur`, and all nodes inside; `beside` are
    those of them that no state is in."""

    axis: str
    states: tuple[tuple[int, int], ...]
    inside: frozenset[int]
    beside: frozenset[int] = frozenset()

    @property
    def nodes(self) -> frozenset[int]:
        """What the loop computes: what is inside, and the states at the end."""
        return self.inside | {after for _, after in self.states}


@lru_cache(maxsize=256)
def loops_of(program: Program) -> tuple[Carried, ...]:
    """The loops of a program; raises ProgramError where states and steps do not belong together."""
    found: list[Carried] = []
    for before, after in _states(program).items():
        axis = program.nodes[after].op.axis  # type: ignore[attr-defined]
        inside, _ = _cut(program, {before}, axis)
        own = inside | {program.nodes[after].args[1]}
        joined = [loop for loop in found if loop.axis == axis and _belong(program, loop, own)]
        states = [(before, after), *(pair for loop in joined for pair in loop.states)]
        for loop in joined:
            inside |= loop.inside
            found.remove(loop)
        found.append(Carried(axis, tuple(sorted(states)), frozenset(inside)))
    found = [_checked(program, loop) for loop in found]
    for loop in found:
        _refuse_nested(program, loop, found)
    return tuple(sorted(found, key=lambda loop: min(loop.inside)))


def _belong(program: Program, loop: Carried, other: set[int]) -> bool:
    """Whether what is inside a loop, or its new states, is inside another, or its new state."""
    new = {program.nodes[after].args[1] for _, after in loop.states}
    return bool((loop.inside | new) & other)


def widened(program: Program, loop: Carried) -> Carried:
    """The loop with what is reduced for its steps alone, and has a value of its own at every one of
    them, and what that is made of."""
    own = set[int]()
    for position in range(len(program.nodes) - 1, -1, -1):
        node, users = program.nodes[position], program.users(position)
        apart = isinstance(node.op, Load | Top | Scatter | Fold)  # in phases of their own
        if not users or position in loop.nodes or apart:
            continue
        if _keeps(program, node, loop.axis) and loop.nodes.union(own).issuperset(users):
            own.add(position)
    if not any(isinstance(program.nodes[position].op, Contract | Reduce) for position in own):
        return loop
    return replace(loop, inside=loop.inside | own, beside=frozenset(own))


def loops_by_node(program: Program) -> dict[int, Carried]:
    """The loop that computes a node, of those that one does."""
    return {position: loop for loop in loops_of(program) for position in loop.nodes}


def read_outside(program: Program, loop: Carried) -> tuple[int, ...]:
    """Nodes inside a loop that something outside reads."""
    users = ((p, program.users(p)) for p in sorted(loop.inside))
    return tuple(p for p, readers in users if any(user not in loop.nodes for user in readers))


def handed_on(program: Program, loop: Carried) -> tuple[int, ...]:
    """Nodes that the next states need, and that others read as well."""
    needed = _needed(program, loop)
    within = needed | {after for _, after in loop.states}
    users = ((p, program.users(p)) for p in sorted(needed))
    return tuple(p for p, readers in users if any(user not in within for user in readers))


def one_by_one(program: Program) -> int:
    """Ops that wait for one another because states do: of every step of every loop."""
    return sum(program.axes[loop.axis] * len(_needed(program, loop)) for loop in loops_of(program))


def _needed(program: Program, loop: Carried) -> set[int]:
    """What of a step the next states are made of."""
    needed = {before for before, _ in loop.states}
    pending = [program.nodes[after].args[1] for _, after in loop.states]
    while pending:
        position = pending.pop()
        if position in loop.inside and position not in needed:
            needed.add(position)
            pending.extend(program.nodes[position].args)
    return needed


def _states(program: Program) -> dict[int, int]:
    """Each state's `Recur`."""
    found: dict[int, int] = {}
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Recur):
            before = node.args[0]
            if not isinstance(program.nodes[before].op, Before) or before in found:
                raise ProgramError(f"{program.name}: recur takes a state, and each state once")
            found[before] = position
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Before) and position not in found:
            raise ProgramError(
                f"{program.name}: state {node.op.label} along {node.op.axis} has no step: "
                "recur(state, what it is after each step)"
            )
    return found


def _cut(
    program: Program, states: set[int], axis: str, apart: frozenset[int] = frozenset()
) -> tuple[set[int], set[int]]:
    """What is made of states at their own point of the axis, and what needs more than that, or is
    `apart`."""
    inside, behind = set(states), set[int]()
    for position, node in enumerate(program.nodes):
        if position in apart or not behind.isdisjoint(node.args):
            behind.add(position)
        elif not inside.isdisjoint(node.args):
            (inside if _keeps(program, node, axis) else behind).add(position)
    return inside, behind


def _checked(program: Program, loop: Carried) -> Carried:
    """A loop without what needs all of its steps, and what no step needs and is better made of all
    of them; raises ProgramError if a step needs all of them."""
    states = {before for before, _ in loop.states}
    loop = replace(loop, inside=frozenset(_cut(program, states, loop.axis)[0]))
    inside, behind = _cut(program, states, loop.axis, _apart(program, loop))
    for _, after in loop.states:
        if program.nodes[after].args[1] in behind:
            raise ProgramError(
                f"{program.name}: the step of a state along {loop.axis} needs all steps to be "
                f"done: it reads what is folded over {loop.axis}, or at other points of it, or a "
                "state at the end"
            )
    return replace(loop, inside=frozenset(inside))


def _apart(program: Program, loop: Carried) -> frozenset[int]:
    """What no step needs: what is ordered or sent; and terms of sums over all steps, if they are
    over axes that no step has otherwise, and what they are made of takes less room."""
    needed, nodes = _needed(program, loop), program.nodes
    own = {axis for p in needed for axis in nodes[p].axes if program.axes[axis] > 1}
    ends = {*read_outside(program, loop)}
    found = set[int]()
    for position in sorted(loop.inside - needed):
        node = nodes[position]
        if isinstance(node.op, Top | Scatter):
            found.add(position)
        elif any(program.axes[axis] > 1 for axis in {*node.axes} - own - {loop.axis}):
            kept = sum(_points(program, arg) for arg in {*node.args} & loop.inside)
            made = ends.intersection(_made_of(program, position))
            summed = all(_is_summed(program, loop, end) for end in made)
            if summed and kept < sum(_points(program, end) for end in made):
                found.add(position)
    return frozenset(found)


def _is_summed(program: Program, loop: Carried, position: int) -> bool:
    """Whether those outside of a loop that read a value sum it over all steps."""
    others = [program.nodes[user] for user in program.users(position) if user not in loop.nodes]
    return all(isinstance(n.op, Contract | Reduce) and loop.axis in n.op.over for n in others)


def _made_of(program: Program, position: int) -> set[int]:
    """A node and what is made of it."""
    found, pending = set[int](), [position]
    while pending:
        here = pending.pop()
        if here not in found:
            found.add(here)
            pending.extend(program.users(here))
    return found


def _points(program: Program, position: int) -> int:
    return prod(program.axes[axis] for axis in program.nodes[position].axes)


def _keeps(program: Program, node: Node, axis: str) -> bool:
    """Whether a value at one point of the axis needs its arguments at that point alone."""
    if axis not in node.axes or isinstance(node.op, (Store, Recur, Before, Carry)):
        return False
    return axis not in entangled(program, node)


def entangled(program: Program, node: Node) -> frozenset[str]:
    """Axes along which a point of a node's value does not stand alone: it needs other points of the
    arguments, or its place among all of them."""
    op = node.op
    if isinstance(op, (Contract, Reduce)):
        return frozenset(op.over)
    if isinstance(op, Top):
        return frozenset((op.axis, op.rank))
    if isinstance(op, (Carry, Fold, Before, Recur)):
        return frozenset((op.axis,))
    if isinstance(op, Read):
        return op.moved(program.nodes[node.args[0]].axes)
    if isinstance(op, Scatter):
        sources = op.sources([program.nodes[arg].type for arg in node.args])
        return frozenset((*sources, *op.axes)) - op.owned
    return frozenset()


def _refuse_nested(program: Program, loop: Carried, loops: list[Carried]) -> None:
    for other in loops:
        if other is not loop and other.inside & loop.inside:
            raise ProgramError(
                f"{program.name}: a step along {loop.axis} holds a loop along {other.axis}; "
                "one inside the other is not possible"
            )
