"""What the space of one block kernel is made from: axes, lanes, values in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod

from ir.errors import Refusal
from ir.ops.base import TensorSpec
from ir.ops.load import Load
from ir.ops.store import Store
from ir.program import Program
from ir.rewrite.walking import walked
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.layouts.bent import plain_access
from ir.targets.cuda.text.passes import find_passes

_SHORT = 4  # steps of a window between which neighbours read what lies near


@dataclass(frozen=True)
class BlockShape:
    """What the space of one block kernel is made from."""

    program: Program

    @cached_property
    def reduced(self) -> tuple[str, ...]:
        """Axes that some reduction combines over."""
        gone = {a for n in self.program.nodes if is_reduction(n) for a in reduced_axes(n)}
        return tuple(axis for axis in self.program.axes if axis in gone)

    @cached_property
    def _moved(self) -> tuple[int, ...]:
        """What reads or writes a tensor of some dimension."""
        return tuple(
            position
            for position, node in enumerate(self.program.nodes)
            if isinstance(node.op, (Load, Store)) and self._spec(position).shape
        )

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """Axes along which some tensor is contiguous, the largest tensor first, of several (those
        of a window) the longest; last those along which a window goes in short steps."""
        found: dict[str, int] = {}
        for position in self._moved:
            spec = self._spec(position)
            for number, last in enumerate(self._rows(position)):
                for axis in sorted(last, key=lambda axis: -self.program.axes[axis]):
                    short = number > 0 or self._is_within(position, axis)
                    size = 0 if short else prod(spec.shape)
                    if size > found.get(axis, -1):
                        found.pop(axis, None)  # behind those of a tensor as large that were found
                        found[axis] = size
        ranked = sorted(found, key=lambda axis: -found[axis])
        return tuple(ranked) or tuple(self.program.axes)[:1]

    def has_rows(self, axis: str) -> bool:
        """Whether what is summed along an axis lies side by side."""
        return axis in self.reduced and axis in self.lanes

    def is_beside(self, axis: str) -> bool:
        """Whether an axis is summed together with one whose points lie side by side."""
        return axis in self.reduced and axis not in self.lanes and self.lanes[0] in self.reduced

    @cached_property
    def short(self) -> tuple[str, ...]:
        """Axes that go along short last dimensions alone, none of them a lane."""
        found = {
            axis
            for position in self._moved
            if len(rows := [*self._rows(position)]) > 1
            for axis in rows[-1]
        }
        return tuple(axis for axis in self.program.axes if axis in found - {self.lanes[0]})

    def _rows(self, position: int) -> Iterator[tuple[str, ...]]:
        """The axes that go point by point along the last dimension; before those of a short one
        (colours, the parts of a number), which a thread has whole, those along the one before."""
        op, shape = self.program.nodes[position].op, self._spec(position).shape
        dims: list[tuple[tuple[str, int], ...]] = []
        if isinstance(op, Store):
            dims = [((axis, 1),) for axis in op.axes]
        else:
            dims = [d.terms for d in plain_access(self.program, position).dimensions]
        last, *before = ([axis for axis, step in dim if step == 1] for dim in reversed(dims))
        if before and before[0] and shape[-1] <= _SHORT:
            yield tuple(before[0])
        yield tuple(last)

    def _spec(self, position: int) -> TensorSpec:
        op = self.program.nodes[position].op
        assert isinstance(op, (Load, Store))
        return self.program.scope.tensors[op.tensor]

    def _is_within(self, position: int, axis: str) -> bool:
        """Whether an axis is that of a window which a longer one moves along, in short steps."""
        if not isinstance(self.program.nodes[position].op, Load):
            return False
        long, steps = self.program.axes, plain_access(self.program, position).dimensions[-1].terms
        return any(1 < abs(step) <= _SHORT and long[one] > long[axis] for one, step in steps)

    @cached_property
    def loops(self) -> tuple[frozenset[str], ...]:
        """Sets of reduced axes that may be walked together."""
        found = []
        for count in range(len(self.reduced) + 1):
            for axes in combinations(self.reduced, count):
                looped = frozenset(axes)
                try:
                    find_passes(self.streamed(looped), looped)
                except Refusal:
                    continue
                found.append(looped)
        return tuple(found)

    def streamed(self, looped: frozenset[str]) -> Program:
        """The program with chains of reductions over `looped` axes made single-pass."""
        return walked(self.program, looped)

    @cached_property
    def domains(self) -> tuple[frozenset[str], ...]:
        """Axes of the values that live in registers."""
        found = set()
        for node in self.program.nodes:
            if isinstance(node.op, (Load, Store)) or is_reduction(node):
                found.add(frozenset(node.axes))
        return tuple(sorted(found, key=sorted))

    @cached_property
    def loaded(self) -> frozenset[frozenset[str]]:
        """Those of them of which all values are loaded."""
        nodes = self.program.nodes
        others = {
            frozenset(node.axes)
            for node in nodes
            if isinstance(node.op, Store) or is_reduction(node)
        }
        return frozenset(self.domains) - others

    @cached_property
    def bodies(self) -> tuple[frozenset[str], ...]:
        """Axes over which some loop of instructions is unrolled."""
        found = set()
        for node in self.program.nodes:
            if is_reduction(node):
                found.add(frozenset(a for arg in node.args for a in self.program.nodes[arg].axes))
        return tuple(sorted(found, key=sorted))
