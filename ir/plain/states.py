"""Loops of states: step by step, what a step keeps and what its states become."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ir.dtypes import dtype_of
from ir.errors import ProgramError
from ir.loops import Carried, loops_of, widened
from ir.ops.fold import Fold
from ir.ops.scatter import Scatter
from ir.ops.store import Store
from ir.ops.top import Top
from ir.plain.block import Block
from ir.plain.code import (
    GROUP,
    THREAD,
    Accumulate,
    Array,
    Call,
    Element,
    Loop,
    Name,
    PlainKernel,
    Scalar,
    Spread,
    Write,
)
from ir.plain.scalars import flat, index, plus, times
from ir.plain.steps import Steps, alike, runs, steps_of
from ir.plain.values import Given, Point, Values, refuse_behind
from ir.program import Program
from ir.ranges import integer_range, narrowest, state_ranges
from ir.stages import is_reduction, reduced_axes

_MANY = 1024  # points for each of which there may be one thread
_NARROW = 32  # iterations that are too few for a group to share
_ROOM = 4096  # bytes of arrays that one thread may have
_LONG, _LONGER = 128, 2048  # terms of sums that are worth a group: of few points, and of many


def state_kernel(values: Values, group: list[int]) -> PlainKernel:
    """All states of one loop, and what its steps store."""
    program = values.program
    loops = loops_of(program)
    if len(loops) != 1:
        axes = ", ".join(loop.axis for loop in loops)
        raise ProgramError(
            f"{program.name}: {len(loops)} loops, along {axes}: a plain kernel computes one"
        )
    loop = widened(program, loops[0])
    _check_inside(program, loop)
    refuse_behind(program, [after for _, after in loop.states])
    steps = steps_of(program, loop)
    maker = _Scalars if _is_scalar(program, loop, steps) else _Arrays
    return maker(values, loop, steps).kernel()


def _is_scalar(program: Program, loop: Carried, steps: Steps) -> bool:
    """Whether each state is one number at each point, and a step has nothing that is more, nor sums
    that are worth a group."""
    positions = (
        *(before for before, _ in loop.states),
        *filter(partial(runs, program), steps.kept),
    )
    alone = not any(steps.group(program.nodes[position].axes) for position in positions)
    return alone and not _has_long_sums(program, loop, steps.points)


def _has_long_sums(program: Program, loop: Carried, points: Collection[str]) -> bool:
    """Whether a step sums so many terms that each point is worth a group of threads."""
    many = math.prod(program.axes[axis] for axis in points) >= _MANY
    reduced = (program.nodes[p] for p in loop.inside if is_reduction(program.nodes[p]))
    terms = (math.prod(program.axes[axis] for axis in reduced_axes(node)) for node in reduced)
    return max(terms, default=0) >= (_LONGER if many else _LONG)


def _check_inside(program: Program, loop: Carried) -> None:
    """Raises ProgramError for what no step computes, and for what needs more than one step."""
    for position in sorted(loop.inside):
        op = program.nodes[position].op
        if isinstance(op, Top | Scatter):
            axes = ", ".join(op.axes) if isinstance(op, Scatter) else op.axis
            raise ProgramError(
                f"{program.name}: a step of a state along {loop.axis} holds a {op.name} over "
                f"{axes}: in a step are sums, folds, running values, reads and what is elementwise"
            )
    for position, node in enumerate(program.nodes):
        if position in loop.nodes or isinstance(node.op, Store):
            continue
        if not loop.inside.isdisjoint(node.args):
            raise ProgramError(
                f"{program.name}: {node.op.name} of what is inside the loop along {loop.axis} and "
                "needs all of its steps; store it, and go on from what is stored"
            )


class _Loop:
    """What both ways to run a loop share."""

    def __init__(self, values: Values, loop: Carried, steps: Steps) -> None:
        self.values, self.loop, self.steps = values, loop, steps
        self.program = values.program
        nodes = self.program.nodes
        first = nodes[loop.states[0][0]].axes
        self.points = values.points([axis for axis in first if axis in steps.points])
        self.variable = Name(values.names.fresh(f"i_{loop.axis}"))
        self.here: Point = {**self.points, loop.axis: self.variable}
        self.block = Block(values.names)

    def finals(self) -> list[int]:
        """The outputs that are written when all steps are done."""
        stores = [position for position, _ in self.program.stores()]
        return [position for position in stores if position not in self.steps.histories]

    def close(self, step: Block) -> None:
        """The loop around a step."""
        extent = self.program.axes[self.loop.axis]
        self.block.add(Loop(self.variable, extent, step.body))


class _Scalars(_Loop):
    """States that are one number at each point: variables."""

    def kernel(self) -> PlainKernel:
        nodes, values, step = self.program.nodes, self.values, self.block.inner()
        states = []
        for before, after in self.loop.states:
            first = values.value(self.block, nodes[before].args[0], self.points)
            state = self.block.let(first, "state")
            states.append(state)
            values.given[before] = values.given[after] = _variable(state)
        for position in sorted(self.loop.inside):
            if not self.steps.group(nodes[position].axes):
                values.value(step, position, self.here)
        for position in self.steps.histories:
            values.store(step, position, self.here)
        new = [
            step.let(values.value(step, nodes[after].args[1], self.here), "new")
            for _, after in self.loop.states
        ]
        for state, found in zip(states, new, strict=True):
            step.assign(state, found)
        self.close(step)
        for position in self.finals():
            values.store(self.block, position, self.points)
        return values.kernel(self.points, self.block)


class _Arrays(_Loop):
    """States that are arrays: of a group of threads, or of each, where there are many points and
    little to share. Of those that have to wait a group has two, and steps go from one to the other;
    a thread, whose arrays are to be registers, moves the new one to the old one's place."""

    def __init__(self, values: Values, loop: Carried, steps: Steps) -> None:
        super().__init__(values, loop, steps)
        nodes = self.program.nodes
        kept = [(position, "kept") for position in steps.kept]
        kept += [(before, "state") for before, _ in loop.states]
        sizes = {position: self._size(nodes[position].axes) for position, _ in kept}
        waiting = sum(self._bytes(position, sizes[position]) for position in steps.early)
        room = waiting + sum(self._bytes(position, size) for position, size in sizes.items())
        many = math.prod(self.program.axes[axis] for axis in self.points) >= _MANY
        long = _has_long_sums(self.program, loop, steps.points)
        self.shared = long or not (many and min(sizes.values()) < _NARROW and room <= _ROOM)
        self.place = GROUP if self.shared else THREAD
        self.ranges = state_ranges(self.program, loop)
        self.halves = {p: sizes[p] for p in steps.early} if self.shared else {}
        sizes |= {position: 2 * size for position, size in self.halves.items()}
        self.arrays = {
            position: values.array(stem, self._stored(position), sizes[position], self.place)
            for position, stem in kept
        }

    def _stored(self, position: int) -> str:
        """The type of an array's elements: as narrow as their numbers, where those are known."""
        dtype = self.values.dtype(position)
        if not self.shared:
            return dtype
        return narrowest(dtype, integer_range(self.program, position, self.ranges))

    def _size(self, axes: Sequence[str]) -> int:
        return math.prod(self.program.axes[axis] for axis in self.steps.group(axes))

    def _bytes(self, position: int, size: int) -> int:
        return dtype_of(self.values.dtype(position)).bytes * size

    def kernel(self) -> PlainKernel:
        nodes, values = self.program.nodes, self.values
        step, extent = self.block.inner(), self.program.axes[self.loop.axis]
        old = self._half(step, self.variable)
        new = self._half(step, plus(self.variable, index(1)))
        for before, _ in self.loop.states:
            made = _Made(nodes[before].args[0], before, self.arrays[before], index(0))
            self._write(self.block, [made], self.points)
        for before, _ in self.loop.states:
            values.given[before] = self._element(before, self.arrays[before], old)
        for position in self.steps.kept:
            if position in values.given:
                continue  # a part of a fold
            if runs(self.program, position):
                self._run(step, position)
                continue
            self._write(step, [_Made(position, position, self.arrays[position])], self.here)
            values.given[position] = self._element(position, self.arrays[position])
        self._advance(step, new)
        self.close(step)
        for before, after in self.loop.states:
            values.given[after] = self._element(before, self.arrays[before], index(extent % 2))
        for position in self.finals():
            self._store(self.block, position, self.points)
        return values.kernel(self.points, self.block, self.shared)

    def _run(self, step: Block, first: int) -> None:
        """A fold's running states, of all parts that are kept: along its axis by all threads, or
        by one for each other point where these are many."""
        node, extents = self.program.nodes[first], self.program.axes
        op = node.op
        assert isinstance(op, Fold)
        parts = [p for p in self.steps.kept if alike(self.program, p, first)]

        def run(block: Block, there: Point) -> None:
            variable, body, keep = block.variable(op.axis), block.inner(), block.inner()
            here = {**there, op.axis: variable}
            made = tuple(self.values.value(body, arg, here) for arg in node.args)
            names = self.values.names
            states = tuple(Name(names.fresh("state"), self.values.dtype(a)) for a in node.args)
            for position in parts:
                part = self.program.nodes[position].op
                assert isinstance(part, Fold)
                where, array = self._index(position, here), self.arrays[position]
                keep.add(Write(array.name, where, states[part.part]))
            extent = extents[op.axis]
            block.add(
                Accumulate(
                    variable, extent, op.backward, body.body, made, states, op.how, keep.body
                )
            )

        others = [axis for axis in self.steps.group(node.axes) if axis != op.axis]
        if self.shared and math.prod(extents[axis] for axis in others) < extents[op.axis]:
            self.values.looped(step, others, self.here, run)
        else:
            self._spread(step, others, self.here, run)
        for position in parts:
            self.values.given[position] = self._element(position, self.arrays[position])

    def _half(self, step: Block, number: Scalar) -> Scalar:
        """Which of two arrays a step with this number finds states in."""
        if not self.halves:
            return index(0)
        return step.let(Call("mod", (number, index(2)), "i64"), "half")

    def _advance(self, step: Block, half: Scalar) -> None:
        """What is stored, and new states, of the same points at once."""
        moves = []
        for together in self.steps.together:
            made = []
            for before, after in together.states:
                one = _Made(self.program.nodes[after].args[1], before, self.arrays[before], half)
                if before in self.steps.early and not self.shared:
                    array = self.arrays[before]
                    new = self.values.array("new", array.dtype, array.size, self.place)
                    moves.append((one, new))
                    one = replace(one, array=new)
                made.append(one)
            self._write(step, made, self.here, together.histories)
        for one, new in moves:
            self._move(step, one, new)

    def _write(
        self, block: Block, together: Sequence[_Made], at: Point, stores: Sequence[int] = ()
    ) -> None:
        """Outputs, and arrays of values with the same axes; all elements at a point are known
        before one of these is written."""

        def write(inner: Block, there: Point) -> None:
            found = [self.values.value(inner, made.source, there) for made in together]
            if len(found) + len(stores) > 1:
                found = [inner.let(value) for value in found]
            for position in stores:
                self.values.store(inner, position, there)
            for value, made in zip(found, together, strict=True):
                inner.add(Write(made.array.name, self._index(made.like, there, made.half), value))

        like = together[0].like if together else stores[0]
        self._spread(block, self.program.nodes[like].axes, at, write)

    def _move(self, block: Block, made: _Made, new: Array) -> None:
        def move(inner: Block, there: Point) -> None:
            where = self._index(made.like, there)
            dtype = self.values.dtype(made.like)
            inner.add(Write(made.array.name, where, Element(new.name, where, dtype)))

        self._spread(block, self.program.nodes[made.like].axes, self.here, move)

    def _store(self, block: Block, position: int, at: Point) -> None:
        def store(inner: Block, there: Point) -> None:
            self.values.store(inner, position, there)

        self._spread(block, self.program.nodes[position].axes, at, store)

    def _index(self, position: int, at: Point, half: Scalar | None = None) -> Scalar:
        axes = self.steps.group(self.program.nodes[position].axes)
        own = flat([at[axis] for axis in axes], self.program.scope.shape(axes))
        if half is None or position not in self.halves:
            return own
        return plus(times(half, self.halves[position]), own)

    def _element(self, position: int, array: Array, half: Scalar | None = None) -> Given:
        dtype = self.values.dtype(position)
        return lambda _, at: Element(array.name, self._index(position, at, half), dtype)

    def _spread(
        self, block: Block, axes: Sequence[str], at: Point, make: Callable[[Block, Point], None]
    ) -> None:
        """What `make` does at the points of an array, by the group or by each thread alone."""
        axes, inner = self.steps.group(axes), block.inner()
        if not self.shared:
            self.values.looped(inner, axes, at, make)
            block.statements.extend(inner.statements)
            return
        extents = self.program.axes
        wide = {axis: block.variable(axis) for axis in axes if extents[axis] > 1}
        make(inner, {**at, **dict.fromkeys(axes, index(0)), **wide})
        variables = tuple((name, extents[axis]) for axis, name in wide.items())
        block.add(Spread(variables, inner.body))


@dataclass(frozen=True, slots=True)
class _Made:
    """The values of node `source`, in an array with the axes of node `like`; in which half of it,
    where it has two."""

    source: int
    like: int
    array: Array
    half: Scalar | None = None


def _variable(name: Name) -> Given:
    return lambda block, at: name
