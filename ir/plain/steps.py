"""What a step of a loop of states computes: which values are kept in arrays, and in which order.

A value is kept if it is evaluated more often than it has elements: read at other points, summed
with others, or used by statements over other points. What else there is, is computed where it is
read: by all that a step stores and becomes over the same points at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ir.loops import Carried, entangled
from ir.ops.fold import Fold
from ir.ops.read import Read
from ir.ops.recur import Before
from ir.ops.reduce import Contract, Reduce
from ir.plain.settled import leaves
from ir.program import Node, Program

Place = tuple[int, ...]  # a statement, and the reads and sums within it that lead to a value


@dataclass(frozen=True, slots=True)
class Together:
    """Stores, and states as they are before and after, over the same points."""

    histories: tuple[int, ...]
    states: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Steps:
    """The plan of a step.

    `points` are axes along which nothing meets, so that a kernel runs a loop for each of them.
    `kept` are the nodes with arrays, in order; of the states, `early` are those whose new values
    have to wait in arrays of their own until all of a step is done. `together` are, over the same
    points each, what a step stores and the new states; what becomes of no state comes first.
    """

    axis: str
    points: frozenset[str]
    kept: tuple[int, ...]
    early: frozenset[int]
    histories: tuple[int, ...]
    together: tuple[Together, ...] = ()

    def group(self, axes: Sequence[str]) -> tuple[str, ...]:
        """Of the axes of a value those that its array has."""
        return tuple(axis for axis in axes if axis != self.axis and axis not in self.points)


def steps_of(program: Program, loop: Carried) -> Steps:
    """Plan the steps of a loop."""
    points = independent(program, loop)
    histories = tuple(p for p, _ in program.stores() if program.nodes[p].args[0] in loop.inside)
    empty = Steps(loop.axis, points, (), frozenset(), histories)
    counts = _Evaluations(program, loop, empty)
    early = {before for before, _ in loop.states if counts.waits(before)}
    return replace(empty, kept=tuple(counts.kept), early=frozenset(early), together=counts.together)


def independent(program: Program, loop: Carried) -> frozenset[str]:
    """Axes of all states along which every value of a step needs its own point alone."""
    states = [program.nodes[before].axes for before, _ in loop.states]
    found = set(states[0]).intersection(*states) - {loop.axis}
    for position in loop.inside:
        found -= entangled(program, program.nodes[position])
    return frozenset(found)


def runs(program: Program, position: int) -> bool:
    """Whether a value is one of a fold's running ones."""
    op = program.nodes[position].op
    return isinstance(op, Fold) and op.keep


def alike(program: Program, position: int, other: int) -> bool:
    """Whether both are parts of one fold."""
    one, two = program.nodes[position], program.nodes[other]
    if not isinstance(one.op, Fold) or not isinstance(two.op, Fold):
        return False
    return (replace(one.op, part=0), one.args) == (replace(two.op, part=0), two.args)


class _Evaluations:
    """How often a step evaluates each value, at which places, if nothing but `kept` is kept."""

    def __init__(self, program: Program, loop: Carried, steps: Steps) -> None:
        self.program, self.loop, self.steps = program, loop, steps
        self.places: dict[int, dict[Place, int]] = {position: {} for position in loop.inside}
        self._after = {after: before for before, after in loop.states}
        self.together = _together(program, loop, steps.histories)
        self._group = {s: group for group in self.together for s in _statements(group)}
        self.shared = frozenset(
            axis
            for axis in steps.points
            for position in loop.beside
            if isinstance(program.nodes[position].op, Contract | Reduce)
            and axis not in program.nodes[position].axes
        )
        self.kept: list[int] = []
        for store in steps.histories:
            self._read(program.nodes[store].args[0], {(store,): self._size(program.nodes[store])})
        for before, after in loop.states:
            size = self._size(program.nodes[before])
            self._read(program.nodes[after].args[1], {(after,): size})
        for position in sorted(loop.inside, reverse=True):
            self._visit(position)
        self.kept.reverse()

    def _size(self, node: Node) -> int:
        """Elements of a value at one point of the loop."""
        return math.prod(self.program.axes[axis] for axis in self.steps.group(node.axes))

    def _read(self, position: int, places: dict[Place, int]) -> None:
        if position in self.places:
            self.places[position].update(places)

    def _visit(self, position: int) -> None:
        node, places = self.program.nodes[position], self.places[position]
        if isinstance(node.op, Before):
            return
        once = {(_statements(self._group[p[0]])[0], *p[1:]) if p[0] in self._group else p: p
                for p in places}  # fmt: skip
        often = sum(places[place] * self._points(place, node) for place in once.values())
        running = runs(self.program, position)
        if running or (not isinstance(node.op, Read) and often > self._size(node)):
            self.kept.append(position)
            places = {(self._first_alike(position),): self._size(node)}
        inner = {(*place, self._first_alike(position)): times for place, times in places.items()}
        if isinstance(node.op, Contract | Reduce | Fold) and not running:
            over = (node.op.axis,) if isinstance(node.op, Fold) else node.op.over
            terms = math.prod(self.program.axes[axis] for axis in over)
            inner = {place: times * terms for place, times in inner.items()}
        elif not isinstance(node.op, Read):
            inner = places
        for slot, arg in enumerate(node.args):
            self._read(arg, places if isinstance(node.op, Read) and slot else inner)

    def _points(self, place: Place, node: Node) -> int:
        """Points of a kernel that read the same at a place, of what no state is in: neighbours."""
        if not self.loop.beside:
            return 1
        lacks = self.shared & {*self.program.nodes[place[0]].axes} - {*node.axes}
        return math.prod(self.program.axes[axis] for axis in lacks)

    def _first_alike(self, position: int) -> int:
        """The first of the parts of a fold, which are evaluated at once."""
        node = self.program.nodes[position]
        if not isinstance(node.op, Fold):
            return position
        users = self.program.users(node.args[0])
        return min(place for place in users if alike(self.program, place, position))

    def _leaves(self, before: int, place: Place) -> bool:
        """Whether a read of a state, in what makes the same one, is of a point that stays."""
        after = dict(self.loop.states)[before]
        return place[0] == after and len(place) == 2 and leaves(self.program, before, *place)

    def waits(self, before: int) -> bool:
        """Whether a new state is made while other points of the old one are still read: unless all
        that make new states read it at their own points, or where the step leaves it as it is, and
        have its axes."""
        for place in self.places[before]:
            group = self._group.get(place[0])
            if group is None or not group.states:
                continue
            reader = self.program.nodes[group.states[0][0]]
            own = len(place) == 1 or self._leaves(before, place)
            if not own or set(reader.axes) != set(self.program.nodes[before].axes):
                return True
        return False


def _together(program: Program, loop: Carried, histories: Sequence[int]) -> tuple[Together, ...]:
    found: dict[frozenset[str], tuple[list[int], list[tuple[int, int]]]] = {}
    for store in histories:
        axes = frozenset(program.nodes[store].axes) - {loop.axis}
        found.setdefault(axes, ([], []))[0].append(store)
    for before, after in loop.states:
        axes = frozenset(program.nodes[before].axes) - {loop.axis}
        found.setdefault(axes, ([], []))[1].append((before, after))
    groups = [Together(tuple(stores), tuple(states)) for stores, states in found.values()]
    return tuple(sorted(groups, key=lambda group: bool(group.states)))


def _statements(group: Together) -> tuple[int, ...]:
    return (*(after for _, after in group.states), *group.histories)
