"""Folds in lanes: each goes along a run of neighbours of its own, and what they leave is merged in
the order of the runs.

One state that goes from point to point waits for itself at each; as many as there are lanes, in two
vectors beside each other, do not. What is folded is computed in vectors along the axis, a few
neighbours of each run at a time, and turned over in a thread's own memory, so that the next vectors
have a neighbour of every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of, is_float
from ir.merges import State, Term
from ir.plain.code import Accumulate, Array, Convert, Element, Number, PlainKernel, Scalar
from ir.targets.cpu.nest import Index, Value
from ir.targets.cpu.plain_any_lanes import Stretch
from ir.targets.cpu.plain_held import MOST_LANES, HeldLanes, held_arrays, held_name
from ir.targets.cpu.plain_stretches import is_apart, is_near, stretch_arrays

if TYPE_CHECKING:
    from ir.targets.cpu.plain import PlainLowering

FEWEST = 512  # points of a fold that is worth lanes
_LONG = 4096  # from which there are two vectors of lanes
_RUN = 256  # points of a run, about


def is_laned(s: Accumulate) -> bool:
    """Whether a fold leaves its end alone, and does so long enough and by more than one operation
    on whole numbers, in which compilers have vectors by themselves."""
    single = len(s.states) == 1 and _is_one(s.merge.results[0])
    simple = single and not is_float(s.states[0].dtype)
    return s.extent >= FEWEST and not s.keep and not simple and is_apart(s) and is_near(s)


def _is_one(term: Term) -> bool:
    """Whether a term is one function of states."""
    return isinstance(term, State) or all(
        isinstance(arg, State) for arg in getattr(term, "args", ())
    )


def _is_number(scalar: Scalar) -> bool:
    return isinstance(scalar, Number) or (isinstance(scalar, Convert) and _is_number(scalar.arg))


def lane_arrays(kernel: PlainKernel) -> tuple[Array, ...]:
    return held_arrays(kernel, is_laned, lambda s: 2 * MOST_LANES * MOST_LANES)


class _Ahead(Stretch):
    """What is folded, with what is read so many bytes of it later on asked for meanwhile: runs are
    too many for a machine to see that each is read to its end."""

    ahead = 0  # coordinates

    def _element(self, element: Element) -> Value:
        array, stride = self._array(element.array), self.walk.stride(element.index) or 0
        where = self.lowering.address(array, element.index, self.variables)
        self.b.prefetch(where, self.ahead * stride * dtype_of(array.dtype).bytes)
        return super()._element(element)


class FoldLanes(HeldLanes):
    """A fold of `windows` times `wide` runs of `length` points: between the points `first` and
    `end`, at which no condition is in doubt, as late as they have room."""

    def __init__(
        self, lowering: PlainLowering, s: Accumulate, variables: Mapping[str, Index], lanes: int
    ) -> None:
        super().__init__(lowering, s, variables, lanes)
        self.varying = [n for n, value in enumerate(s.values) if not _is_number(value)]
        self.folded = _Ahead(lowering, s, s.body, variables, self.lanes)
        self.possible = self.folded.fits() and self.folded.values_fit(s.values)
        ends = self.folded.first, self.folded.end  # where all conditions hold
        self.first, self.end = (s.extent - n for n in ends[::-1]) if s.backward else ends
        self.groups = 2 if s.extent >= _LONG else 1
        most = max(_RUN, s.extent // (self.wide * _LONG)) + self.lanes
        self.length = min(range(self.lanes + 1, most, self.lanes), key=self._alone)
        self.windows = self._windows(self.length)
        self.folded.ahead = self.wide * self.length * (-1 if s.backward else 1)

    def _windows(self, length: int) -> int:
        return (self.end - max(1, self.first)) // (self.wide * length)

    def _alone(self, length: int) -> int:
        """Points that are merged one by one: those beside all runs, and what runs leave."""
        windows = self._windows(length)
        return self.s.extent - windows * self.wide * (length - 2)

    def fits(self) -> bool:
        return self.possible and self.windows > 0 and self.merging.values_fit(self.new)

    def run(self) -> tuple[Value, ...]:
        """Emit all of it; what the states are in the end."""
        size, extent = self.wide * self.length, self.s.extent
        with self.b.loop(
            "window", self.end - self.windows * size, self.end, size,
            self._part(0, self.end - self.windows * size),
        ) as loop:  # fmt: skip
            own = self._window(loop.variable)
            loop.block.yields = tuple(self.merged(loop.carried, own))
        if self.end == extent:
            return loop.results
        return tuple(self.merged(loop.results, self._part(self.end, extent)))

    def _part(self, low: int, high: int) -> list[Value]:
        """What points come to one by one."""
        here = dict(self.variables)
        self.lowering.part_of_fold(self.s, here, low, high)
        return [self.lowering.value(state, here) for state in self.s.states]

    def _window(self, low: Index) -> tuple[Value, ...]:
        """What the runs that begin at a position come to."""
        self._begin(low)
        groups = range(self.groups)
        first = [value for group in groups for value in self.row(group * self.lanes)]
        with self.b.loop("place", 1, self.length, self.lanes, first) as loop:
            place = self.b.add(low, loop.variable)
            self._fill(place)
            loop.block.yields = self._along(loop.carried)
        for group in groups:
            self.hold(loop.results[group * self.count :][: self.count], group * self.lanes)
        with self.b.loop("lane", 1, self.wide, 1, self.held_at(0)) as lane:
            lane.block.yields = tuple(self.merged(lane.carried, self.held_at(lane.variable)))
        return lane.results

    def _begin(self, low: Index) -> None:
        """The first point of each run."""
        with self.b.loop("lane", 0, self.wide, 1) as loop:
            here = dict(self.variables)
            place = self.b.add(low, self.b.mul(loop.variable, self.length))
            here[self.s.variable.name] = self._turned(place, 1)
            self.lowering.statements(self.s.body, here)
            self.hold([self.lowering.value(v, here) for v in self.s.values], loop.variable)

    def _turned(self, place: Index, count: int) -> Index:
        """Where so many points in memory begin, of which the fold comes to one first."""
        return self.b.sub(self.s.extent - count, place) if self.s.backward else place

    def _fill(self, place: Index) -> None:
        """The next few neighbours of each run, turned over."""
        with self.b.loop("lane", 0, self.wide, 1) as loop:
            own = self.b.add(place, self.b.mul(loop.variable, self.length))
            self.folded.at(self._turned(own, self.lanes), {})
            slot = self.b.mul(loop.variable, self.lanes)
            for number in self.varying:
                value = self.folded.vector(self.s.values[number])
                self.store(number, self.stored(value), slot)
        for group in range(self.groups):
            slots = [(group * self.lanes + row) * self.lanes for row in range(self.lanes)]
            for number in self.varying:
                self.turn_over(number, slots, slots[0])

    def _along(self, states: Sequence[Value]) -> tuple[Value, ...]:
        """The states of all runs behind those neighbours."""
        with self.b.loop("next", 0, self.lanes, 1, states) as loop:
            found = list[Value]()
            at = self.b.sub(self.lanes - 1, loop.variable) if self.s.backward else loop.variable
            for group in range(self.groups):
                before = loop.carried[group * self.count :][: self.count]
                found += self.merged_lanes(before, self._wide_at(group, at))
            loop.block.yields = tuple(found)
        return loop.results

    def _wide_at(self, group: int, row: Index) -> list[Value]:
        """A row of a group's square."""
        place = self.b.add(group * self.square, self.b.mul(row, self.lanes))
        return [
            self.load(number, place, self.lanes) if number in self.varying else self._alike(value)
            for number, value in enumerate(self.s.values)
        ]

    def _alike(self, value: Scalar) -> Value:
        """What all points have, as memory would have it."""
        return self.b.splat(self.stored(self.lowering.value(value, self.variables)), self.lanes)


def laned(lowering: PlainLowering, s: Accumulate, variables: dict[str, Index], lanes: int) -> bool:
    """Emit a fold in lanes, where that can be; whether it was."""
    if held_name(len(s.states) - 1) not in lowering.bases or not is_laned(s):
        return False
    found = FoldLanes(lowering, s, variables, lanes)
    if not found.fits():
        return False
    variables.update(zip((state.name for state in s.states), found.run(), strict=True))
    return True


def fold_arrays(kernel: PlainKernel) -> tuple[Array, ...]:
    """Memory of a thread for folds whose states go through it."""
    found: dict[str, Array] = {}
    for array in (*stretch_arrays(kernel), *lane_arrays(kernel)):
        before = found.get(array.name, array)
        found[array.name] = max(before, array, key=lambda one: one.size)
    return tuple(found.values())
