"""Indices that are a sum of axes inside of a tensor, and bend back where the sum leaves it.

`x[max(t - w, 0)]`, an edge that is repeated, mirrored or wrapped around: inside, that is a plain
index, and what lies beyond an end is found by the function that bends it. Knows no target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import dtype_of
from ir.of_coordinates import values_of
from ir.ops.base import TileArray
from ir.ops.load import Index, Load
from ir.ops.map import Constant, Map
from ir.program import Program
from ir.rewrite.digits import Sum, sums_of

_PLACE = "place"  # the axis of the sum's values, where a function of it is looked at
_FEW = 1 << 25  # of those, up to which all are
_PIECE = 1 << 21  # of those, at a time


@dataclass(frozen=True)
class Bend:
    """A function of a sum of axes: the node that has it, and of the nodes that it is made of which
    are such sums what they are of the first: so many times, and a number more."""

    node: int
    of: Sum
    parts: tuple[tuple[int, int, int], ...]
    function: int  # the same number where others are the same function of their sums

    def values(self, program: Program, low: int, high: int) -> NDArray[np.int64]:
        """The index for each value of the sum from `low` to `high`."""
        coordinates = {_PLACE: np.arange(low, high + 1)}
        given = {
            part: TileArray((_PLACE,), times * coordinates[_PLACE] + more)
            for part, times, more in self.parts
        }
        behind = program.behind([self.node], lambda p: p in given)
        made = values_of(program, behind, coordinates, given)
        return np.broadcast_to(made[self.node].array, (high + 1 - low,)).astype(np.int64)

    def leaves(self, program: Program, low: int, high: int, extent: int) -> bool:
        """Whether it is outside of a dimension for some value from `low` to `high`, of which those
        inside stay."""
        sides = ((low, min(high, -1)), (max(low, extent), high))
        found = (self.values(program, *side) for side in sides if side[0] <= side[1])
        return any(one.min() < 0 or one.max() >= extent for one in found)


@lru_cache(maxsize=256)
def bends(program: Program) -> Mapping[int, Mapping[int, Bend]]:
    """Of each load whose computed indices are all such functions: these, by dimension."""
    loads = [
        position
        for position, node in enumerate(program.nodes)
        if isinstance(node.op, Load) and node.args and dtype_of(node.dtype).bits >= 8
    ]
    if not loads:
        return {}
    functions = _Functions(program)
    found = {position: functions.of_load(position) for position in loads}
    return {position: own for position, own in found.items() if own is not None}


class _Functions:
    """The indices of a program that are functions of one sum of axes each."""

    def __init__(self, program: Program) -> None:
        self.program, self.sums = program, sums_of(program)
        self.numbers: dict[object, int] = {}  # of functions, the same for those that are alike

    def of_load(self, position: int) -> dict[int, Bend] | None:
        """None where an index is no such function."""
        node = self.program.nodes[position]
        assert isinstance(node.op, Load)
        found: dict[int, Bend] = {}
        shape = self.program.scope.tensors[node.op.tensor].shape
        for number, (index, extent) in enumerate(zip(node.op.index, shape, strict=True)):
            if index.gather is None:
                continue
            alone = index == Index(gather=index.gather)
            bend = self._bend(node.args[index.gather], extent) if alone else None
            if bend is None:
                return None
            found[number] = bend
        return found

    def _bend(self, position: int, extent: int) -> Bend | None:
        """The function that an index is, if it leaves what is inside the tensor and ends inside: of
        the sum that is most of the time inside."""
        parts = self._parts(position)
        if not parts or position in parts:  # of data, or of no axis; plain already
            return None
        found: list[tuple[int, Bend]] = []
        for first in sorted(parts.values(), key=_order):
            times = {here: _times(one, first) for here, one in parts.items()}
            if None in times.values():
                return None
            more = {h: (t, parts[h].constant - t * first.constant)
                    for h, t in times.items() if t is not None}  # fmt: skip
            own = tuple((here, *rest) for here, rest in sorted(more.items()))
            bend = Bend(position, first, own, self._number(position, more))
            if self._fits(bend, extent):
                low, high = first.bounds(self.program.axes)
                found.append((min(high, extent - 1) - max(low, 0), bend))
        inside = max((count for count, _ in found), default=0)
        return next((bend for count, bend in found if count == inside), None)

    def _parts(self, position: int) -> dict[int, Sum]:
        """The sums of axes that a whole number is made of; none where it is made of others."""
        nodes, parts = self.program.nodes, dict[int, Sum]()
        ends = {here for here, one in self.sums.items() if one.terms}
        for here in self.program.behind([position], lambda p: p in ends):
            node = nodes[here]
            if here in ends:
                parts[here] = self.sums[here]
            elif not isinstance(node.op, Constant | Map) or node.dtype not in ("i32", "bool"):
                return {}
        return parts

    def _fits(self, bend: Bend, extent: int) -> bool:
        low, high = bend.of.bounds(self.program.axes)
        if high - low + extent > _FEW:
            return False
        text = str([(n.op, n.dtype, n.args) for n in self.program.nodes[: bend.node + 1]])
        return _stays(_Asked((text, bend.node, bend.parts, low, high, extent), bend, self.program))

    def _number(self, position: int, parts: Mapping[int, tuple[int, int]]) -> int:
        """Of what a node is, of whatever sum the parts are."""
        known: dict[int, int] = {}
        for here in self.program.behind([position], lambda p: p in parts):
            node = self.program.nodes[here]
            what: object = parts.get(here)
            if what is None:
                what = (str(node.op), node.dtype, *(known[arg] for arg in node.args))
            known[here] = self.numbers.setdefault(what, len(self.numbers))
        return known[position]


@dataclass(frozen=True)
class _Asked:
    """A function, and the numbers that it is looked at: the same in programs that begin alike."""

    key: tuple[str, int, tuple[tuple[int, int, int], ...], int, int, int]
    bend: Bend = field(compare=False)
    program: Program = field(compare=False)


@lru_cache(maxsize=1024)
def _stays(asked: _Asked) -> bool:
    """Whether a function leaves what is inside of a dimension, and ends inside."""
    *_, low, high, extent = asked.key
    if asked.bend.leaves(asked.program, low, high, extent):
        return False
    for first in range(0, extent, _PIECE):
        last = min(first + _PIECE, extent) - 1
        found = asked.bend.values(asked.program, first, last)
        if not np.array_equal(found, np.arange(first, last + 1)):
            return False
    return True


def _order(one: Sum) -> tuple[int, tuple[tuple[str, int], ...], int]:
    """First those that go up along most of their axes."""
    terms = tuple(sorted(one.terms.items()))
    return sum(factor < 0 for _, factor in terms), terms, one.constant


def _times(one: Sum, first: Sum) -> int | None:
    """How many times the terms of another sum one has; None where it has others."""
    axis, factor = next(iter(first.terms.items()))
    times, rest = divmod(one.terms.get(axis, 0), factor)
    return times if not rest and first.times(times).terms == one.terms else None
