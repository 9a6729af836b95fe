"""States whose steps are associative as scans, which need not go one step after the other.

A step s -> a s + b, where neither a nor b is made of the state, is one of an affine scan; so are
those of two states that are made of each other (a filter of second order, an oscillation), a being
a matrix then; one of s -> max(s, b) or min(s, b) is a running maximum or minimum. What a state is
behind each step is then computed in pieces that meet (Blelloch, *Prefix Sums and Their
Applications*, 1990), by as many threads as there are pieces. Sums are rounded in other groups; the
products of factors, by which pieces meet, have to be numbers of the type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ir.axes import Axis
from ir.builder import Graph, cast, where
from ir.folding import cumulative, recurrence, scan
from ir.ops.base import volume
from ir.ops.map import Constant, Iota, Map
from ir.ops.recur import Before, Recur
from ir.program import Node, Program
from ir.rewrite.graft import copy_node, graft
from ir.tiles import Tile, apply

NAME = "scanned"
WHY = "a step that scales the state and adds to it, or takes the larger, is one of a scan"
ROUNDING = "sums of the same terms are rounded in other groups"
_EXTREMES = ("max", "min")
MOST = 2  # states that are one scan: of three the merge has more numbers than a fold may have
Group = tuple[int, ...]  # states that are made of each other, in the order of the program
Linear = tuple[tuple[Tile | None, ...], Tile | None]  # a of each state, and b; None is 0


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program with every such state as a scan, and the first one's node; None without."""
    states = _States(program)
    found = {before for before in states.steps if states.is_scan(before)}
    return (min(found), _Scans(states, found, graft(program)).run()) if found else None


def met_once(program: Program) -> Program:
    """The program with linear steps as a s + b, where the state stands in them several times: what
    it is off then counts as often as it does, and not once for each place."""
    states = _States(program)
    found = {
        before
        for before, step in states.steps.items()
        if states.is_linear((before,), step) and states.places(before, step) > 1
    }
    return _Scans(states, found, graft(program), stepping=True).run() if found else program


@dataclass(frozen=True)
class _States:
    """What the steps of a program's states are made of."""

    program: Program

    @cached_property
    def steps(self) -> dict[int, int]:
        """For each state the value that a step makes."""
        nodes = self.program.nodes
        return {node.args[0]: node.args[1] for node in nodes if isinstance(node.op, Recur)}

    @cached_property
    def within(self) -> list[frozenset[int]]:
        """For each node the states that it is made of, at its own or another point."""
        found: list[frozenset[int]] = []
        for position, node in enumerate(self.program.nodes):
            own = {position} if isinstance(node.op, Before) else set[int]()
            found.append(frozenset(own.union(*(found[arg] for arg in node.args))))
        return found

    def group(self, before: int) -> Group:
        """A state, and those that it is made of and that are made of it, of the same points."""
        behind, node = self._behind(self.within[self.steps[before]]), self.program.nodes[before]
        return tuple(
            other for other in sorted({before, *behind})
            if other == before
            or (before in self._behind(self.within[self.steps[other]])
                and self.program.nodes[other].axes == node.axes)
        )  # fmt: skip

    def is_scan(self, before: int) -> bool:
        """Whether a state is one, made of none that is made of it but those of its group, and
        memory has room for it."""
        group, nodes = self.group(before), self.program.nodes
        size = 4 * len(group) * volume(self.program.scope, nodes[before].axes)
        if len(group) > MOST or size > self.program.bytes:
            return False
        for state in group:
            others = self._behind(self.within[self.steps[state]] - {*group})
            if {*group} & (others | self.within[nodes[state].args[0]]):
                return False
        if len(group) == 1 and self.bound(before, self.steps[before]) is not None:
            return True
        finite = all(self._begins_finite(state) for state in group)  # 0 times that is 0
        return finite and all(self.is_linear(group, self.steps[state]) for state in group)

    def _begins_finite(self, before: int) -> bool:
        """Whether a state does not begin with an infinity."""
        first = self.program.nodes[self.program.nodes[before].args[0]].op
        return not isinstance(first, Constant) or math.isfinite(first.value)

    def places(self, before: int, step: int) -> int:
        """How often a state stands in a value that is made of it."""
        counts = {before: 1}
        for position in range(before + 1, step + 1):
            args = self.program.nodes[position].args
            counts[position] = sum(counts.get(arg, 0) for arg in args)
        return counts.get(step, 0)

    def _behind(self, states: frozenset[int]) -> set[int]:
        """The states that these are made of, and they."""
        found, pending = set[int](), list(states)
        while pending:
            state = pending.pop()
            if state not in found:
                found.add(state)
                pending.extend(self.within[self.steps[state]])
        return found

    def bound(self, before: int, step: int) -> int | None:
        """What the state is compared with, where a step takes the larger or the smaller."""
        node = self.program.nodes[step]
        if not isinstance(node.op, Map) or node.op.function not in _EXTREMES:
            return None
        others = [arg for arg in node.args if arg != before]
        free = len(others) == 1 and before not in self.within[others[0]]
        return others[0] if free and self.program.nodes[others[0]].dtype == node.dtype else None

    def is_linear(self, group: Group, step: int) -> bool:
        """Whether a value is a s + b, of numbers that are not rounded to a narrower type."""
        linear = {state: self.program.nodes[state].dtype == "f32" for state in group}
        for position in range(min(group) + 1, step + 1):
            if position not in group and self.is_within(group, position):
                linear[position] = self._stays_linear(group, position, linear)
        return linear.get(step, True)

    def is_within(self, group: Group, position: int) -> bool:
        """Whether a value is made of some of these states."""
        return not self.within[position].isdisjoint(group)

    def _stays_linear(self, group: Group, position: int, linear: Mapping[int, bool]) -> bool:
        """Whether a node is linear in states, of which some of its operands are made."""
        node = self.program.nodes[position]
        if not isinstance(node.op, Map) or node.dtype != "f32":
            return False
        within = [self.is_within(group, arg) for arg in node.args]
        fits = {
            "add": True, "sub": True, "neg": True, "mul": sum(within) == 1,
            "div": not within[-1], "where": not within[0],
        }  # fmt: skip
        return fits.get(node.op.function, False) and all(linear.get(arg, True) for arg in node.args)


class _Scans:
    """Builds the program anew, from its outputs."""

    def __init__(
        self, states: _States, found: set[int], graph: Graph, stepping: bool = False
    ) -> None:
        self.stepping = stepping  # as before, by steps of another form
        self.states, self.program, self.graph = states, states.program, graph
        self.made: dict[int, Tile] = {}
        self.scans: dict[int, Tile] = {}
        self.lines: dict[tuple[Group, int], Linear] = {}
        self.before = {states.steps[before]: before for before in found}
        self.found = found

    def run(self) -> Program:
        for position in range(len(self.program.nodes)):
            self.value(position)
        return self.graph.program()

    def value(self, position: int) -> Tile:
        if position not in self.made:
            self.made[position] = self._value(position)
        return self.made[position]

    def _value(self, position: int) -> Tile:
        node = self.program.nodes[position]
        if position in self.before and self.stepping:
            return self._step(self.before[position], position)
        if self.stepping:
            args = [self.value(arg) for arg in node.args]
            return copy_node(self.graph, self.program, position, args)
        if position in self.before:
            return self.scan(self.before[position])
        if position in self.found:
            return self._prior(position, node)
        if isinstance(node.op, Recur) and node.args[0] in self.found:
            axis = self._axis(node.op.axis)
            return self.scan(node.args[0]).at({axis: axis.extent - 1})
        return copy_node(self.graph, self.program, position, [self.value(a) for a in node.args])

    def _step(self, before: int, step: int) -> Tile:
        """What a step makes of a state, as a s + b."""
        (factor,), addend = self._linear((before,), step)
        scaled = None if factor is None else factor * self.value(before)
        found = _joined(scaled, addend, minus=False)
        assert found is not None
        return found

    def _axis(self, name: str) -> Axis:
        return Axis(name, self.program.axes[name])

    def _prior(self, position: int, node: Node) -> Tile:
        """A state before each step: the scan at the point before, at first what it begins with."""
        assert isinstance(node.op, Before)
        axis, first = self._axis(node.op.axis), self.program.nodes[node.args[0]].op
        fill = first.value if isinstance(first, Constant) else 0.0
        found = self.scan(position).at({axis: axis - 1}, fill=fill)
        if isinstance(first, Constant):
            return found
        return where(self._is_first(axis), self.value(node.args[0]), found)

    def _is_first(self, axis: Axis) -> Tile:
        return self.graph.add(Iota(axis.name)) == 0

    def scan(self, before: int) -> Tile:
        """A state behind each step."""
        if before not in self.scans:
            group = self.states.group(before)
            found = self._coupled(group) if len(group) > 1 else (self._scan(before),)
            self.scans.update(zip(group, found, strict=True))
        return self.scans[before]

    def _coupled(self, group: Group) -> tuple[Tile, ...]:
        """States that are made of each other, behind each step: the scan of a matrix and a vector,
        whose merge is A B and A b + c."""
        nodes, count = self.program.nodes, len(group)
        op = nodes[group[0]].op
        assert isinstance(op, Before)
        axis, axes = self._axis(op.axis), nodes[group[0]].axes
        rows = [self._linear(group, self.states.steps[state]) for state in group]
        zero = self.graph.constant(0.0, "f32")
        firsts = [self.value(nodes[state].args[0]) for state in group]
        values, vector = list[Tile](), list[Tile]()
        for factors, addend in rows:
            own = [zero if one is None else one for one in factors]
            values += [self._over(axes, one) for one in own]
            added = zero if addend is None else addend
            begun = added
            for one, first, state in zip(own, firsts, group, strict=True):
                if nodes[nodes[state].args[0]].op != Constant(0.0, "f32"):
                    begun = begun + one * first
            if begun is not added:
                added = where(self._is_first(axis), begun, added)
            vector.append(self._over(axes, added))

        def merged(left: tuple[Tile, ...], right: tuple[Tile, ...]) -> tuple[Tile, ...]:
            matrix, added = right[: count * count], right[count * count :]
            lines = [matrix[count * n : count * (n + 1)] for n in range(count)]
            columns = [left[n : count * count : count] for n in range(count)]
            products = [_dot(line, column) for line in lines for column in columns]
            behind = left[count * count :]
            return (*products, *(_dot(line, behind) + one
                                 for line, one in zip(lines, added, strict=True)))  # fmt: skip

        return scan(merged, (*values, *vector), axis)[count * count :]

    def _scan(self, before: int) -> Tile:
        node, step = self.program.nodes[before], self.states.steps[before]
        assert isinstance(node.op, Before)
        axis, first = self._axis(node.op.axis), self.value(node.args[0])
        bound = self.states.bound(before, step)
        if bound is not None:
            op = self.program.nodes[step].op
            assert isinstance(op, Map)
            added = self.value(bound)
            added = where(self._is_first(axis), apply(op.function, first, added), added)
            return cumulative(op.function, self._over(node.axes, added), axis)
        (factor,), addend = self._linear((before,), step)
        if factor is None:
            factor = self.graph.constant(0.0, "f32")
        added = self.graph.constant(0.0, "f32") if addend is None else addend
        if self.program.nodes[node.args[0]].op != Constant(0.0, "f32"):
            added = where(self._is_first(axis), factor * first + added, added)
        added = self._over(node.axes, added, factor)
        one, _ = self.graph.node(factor)
        if one == Constant(1.0, "f32"):
            return cumulative("sum", added, axis)
        return recurrence(factor, added, axis)

    def _over(self, axes: tuple[str, ...], added: Tile, *others: Tile) -> Tile:
        """What is added, with those of the axes that neither it nor the others have."""
        there = {axis for tile in (added, *others) for axis in tile.axes}
        for axis in axes:
            if axis not in there:
                added = added + cast(self.graph.add(Iota(axis)), added.dtype) * 0.0
        return added

    def _linear(self, group: Group, position: int) -> Linear:
        """a and b of a value that is a s + b."""
        if (group, position) not in self.lines:
            self.lines[group, position] = self._found_linear(group, position)
        return self.lines[group, position]

    def _found_linear(self, group: Group, position: int) -> Linear:
        if position in group:
            one = self.graph.constant(1.0, "f32")
            return tuple(one if state == position else None for state in group), None
        if not self.states.is_within(group, position):
            return (None,) * len(group), self.value(position)
        node = self.program.nodes[position]
        assert isinstance(node.op, Map)
        function = node.op.function
        if function == "where":
            condition = self.value(node.args[0])
            yes, no = (self._linear(group, arg) for arg in node.args[1:])
            pairs = zip(yes[0], no[0], strict=True)
            return tuple(_chosen(condition, *pair) for pair in pairs), _chosen(
                condition, yes[1], no[1]
            )
        if function in ("mul", "div"):
            at = next(n for n, arg in enumerate(node.args) if self.states.is_within(group, arg))
            other = self.value(node.args[1 - at])
            factors, addend = self._linear(group, node.args[at])
            return tuple(_part(function, one, other) for one in factors), _part(
                function, addend, other
            )
        sides = [self._linear(group, arg) for arg in node.args]
        if function == "neg":
            sides.insert(0, ((None,) * len(group), None))
        minus = function != "add"
        pairs = zip(sides[0][0], sides[1][0], strict=True)
        return tuple(_joined(*pair, minus) for pair in pairs), _joined(
            sides[0][1], sides[1][1], minus
        )


def _dot(left: Sequence[Tile], right: Sequence[Tile]) -> Tile:
    found, *others = (one * other for one, other in zip(left, right, strict=True))
    for other in others:
        found = found + other
    return found


def _part(function: str, part: Tile | None, other: Tile) -> Tile | None:
    return None if part is None else _scaled(function, part, other)


def _joined(left: Tile | None, right: Tile | None, minus: bool) -> Tile | None:
    """left + right, or left - right."""
    if left is None or right is None:
        return left if right is None else -right if minus else right
    return left - right if minus else left + right


def _scaled(function: str, part: Tile, other: Tile) -> Tile:
    """A part times (over) what the whole is multiplied with; 1 times a number is that number."""
    op, _ = part.graph.node(part)
    if function == "mul" and op == Constant(1.0, "f32"):
        return cast(other, "f32")
    return apply(function, part, other)


def _chosen(condition: Tile, yes: Tile | None, no: Tile | None) -> Tile | None:
    if yes is None and no is None:
        return None
    return where(condition, 0.0 if yes is None else yes, 0.0 if no is None else no)
