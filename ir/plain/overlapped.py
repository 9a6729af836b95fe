"""Several steps of a loop at a time, over tiles that overlap: a group of threads has a tile.

A tile and the margin around it come to arrays of the group; each step computes all points that the
tile has, of which those near its edge are right no more; behind the last of so many steps, the
points of the tile's own are. Tiles of the next steps begin behind all of these: in rounds, with
states in memory in between, two of each, that nobody reads what another one writes.

What lies outside of the grid is computed like the rest, and harms nobody: reads that may go there
have a fill, which is in the array instead where all reads of a value have the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from ir.dtypes import compute_dtype
from ir.errors import ProgramError
from ir.ops.base import TensorSpec
from ir.ops.read import Read
from ir.plain.block import Block
from ir.plain.code import (
    GROUP,
    Array,
    Between,
    Call,
    Element,
    If,
    Let,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Write,
)
from ir.plain.overlapped_tiles import OWN, TILE, WIDE, Kept, TileArrays
from ir.plain.pieces import Overlap, step
from ir.plain.scalars import both, call, convert, flat, index, number, plus, times
from ir.plain.values import Given, Point, Values
from ir.plain.windows import Windows, windows_of

_SEVERAL = 3  # tiles along each axis, from which on some leave the grid nowhere


def overlapped_kernel(values: Values, overlap: Overlap) -> PlainKernel:
    """The steps of a loop over tiles of a size. Raises ProgramError where there are none."""
    windows = windows_of(values.program)
    if windows is None:
        raise ProgramError(f"{values.program.name}: no loop whose steps need near points alone")
    return _Overlapped(values, windows, overlap).kernel()


class _Overlapped(TileArrays):
    """Writes the kernel."""

    def __init__(self, values: Values, windows: Windows, overlap: Overlap) -> None:
        super().__init__(values, windows, overlap)
        self.round = Name(values.names.fresh("round"))
        self.block = Block(values.names)
        self.buffers = dict(zip(self.befores, map(self._buffer, self.befores), strict=True))

    # --- arrays -----------------------------------------------------------------------------------

    def _buffer(self, before: int) -> TensorSpec | None:
        """Where a state waits for the next round, twice."""
        if self.rounds == 1:
            return None
        shape = self.program.scope.shape(self.axes_of(before))
        return self.values.part(2, shape, self.kept[before].array.dtype, "between", partly=True)

    # --- the kernel -------------------------------------------------------------------------------

    def kernel(self) -> PlainKernel:
        for axis, base in self.base.items():
            side = self.sides[axis]
            first = plus(times(self.number[axis], side.own), index(-side.first))
            self.block.add(Let(base, first))
            wide, extent = self.wide(axis), self.program.axes[axis]
            begin = Call("max", (Call("sub", (index(0), base), "i64"), index(0)), "i64")
            end = Call("min", (Call("sub", (index(extent), base), "i64"), index(wide)), "i64")
            for name, value in zip(self.edges[axis], (begin, end), strict=True):
                self.block.add(Let(name, convert(value, "i32")))
        self._inside()
        axes = [(self.number[axis], self.sides[axis].count) for axis in self.windows.axes]
        points = self.values.shared_out(self.points, tuple(axes))
        kernel = step(self.values, self.block, points, True)
        if self.rounds == 1:
            return kernel
        return replace(kernel, rounds=(self.round, self.rounds))

    def _inside(self) -> None:
        """What a tile is about: without questions where none of it lies beyond the grid."""
        within: Scalar | None = None
        for axis, (first, last) in zip(self.windows.axes, self.windows.ends, strict=True):
            end = index(self.program.axes[axis] - last - self.wide(axis))
            within = both(within, Call("le", (index(first), self.base[axis]), "bool"))
            within = both(within, Call("le", (self.base[axis], end), "bool"))
        if within is None or min(side.count for side in self.sides.values()) < _SEVERAL:
            self._round(self.block)
            return
        self.edged, middle = False, self.block.inner()
        self._round(middle)
        self.edged, edge = True, self.block.inner()
        self._round(edge)
        self.block.add(If(within, middle.body, edge.body))

    def _round(self, block: Block) -> None:
        """What is done with a tile in a round."""
        self._bring(block)
        self._steps(block)

    def _steps(self, block: Block) -> None:
        """All steps of a round but the last one, whose states go to memory."""
        if self.steps > 1:
            k, inner = Name(self.values.names.fresh("k")), block.inner()
            self._step(inner, k)
            often = self.steps - 1
            first: Scalar = index(0)
            if self.skipped:
                left = Call("sub", (index(self.skipped), times(self.round, self.steps)), "i64")
                first = Call("max", (left, index(0)), "i64")
            block.add(Between(k, first, index(self.steps - 1), inner.body, often))
        self._step(block, index(self.steps - 1), last=True)

    def _at(self, k: Scalar) -> Scalar:
        """The number of a step of the loop."""
        before = times(self.round, self.steps) if self.rounds > 1 else index(0)
        return plus(plus(before, k), index(-self.skipped))

    # --- what a round begins with -----------------------------------------------------------------

    def _bring(self, block: Block) -> None:
        """States at the tile and its margin, and something at all else that is read."""
        half: Scalar = index(0)
        if self.skipped:
            first = Call("eq", (self.round, index(0)), "bool")
            other = index(self.skipped % 2)
            half = block.named(Call("where", (first, other, index(0)), "i64"), "half")
        for before in self.befores:
            kept = self.kept[before]

            def bring(inner: Block, there: Point, before: int = before, kept: Kept = kept) -> None:
                value = self._first(inner, before, there)
                place = flat([self.local(there, a) for a in kept.own], kept.shape)
                size = prod(kept.shape)
                inner.add(Write(kept.array.name, plus(times(half, size), place), value))
                other = plus(times(Call("sub", (index(1), half), "i64"), size), place)
                inner.add(Write(kept.array.name, other, number(0, value.dtype)))

            self.spread(block, kept, bring, WIDE)
        for position in self.plan.kept:
            kept = self.kept[position]

            def clear(inner: Block, there: Point, kept: Kept = kept) -> None:
                place = flat([self.local(there, a) for a in kept.own], kept.shape)
                inner.add(Write(kept.array.name, place, number(0, compute_dtype(kept.array.dtype))))

            self.spread(block, kept, clear, WIDE)

    def _first(self, block: Block, before: int, at: Point) -> Scalar:
        """A state as a round finds it: as it begins, or as the round before left it."""
        kept, node = self.kept[before], self.program.nodes[before]
        dtype = self.values.dtype(before)
        found = block.let(number(kept.fill or 0, dtype), "first")
        at = self.seen(block, at, rings=True)
        there, begin = block.inner(), block.inner()
        begin.assign(found, self.values.value(begin, node.args[0], at))
        spec = self.buffers[before]
        if spec is None:
            there.statements.extend(begin.statements)
        else:
            axes = self.axes_of(before)
            shape = self.program.scope.shape(axes)
            own = flat([at[axis] for axis in axes], shape)
            half = times(Call("mod", (self.round, index(2)), "i64"), prod(shape))
            later = there.inner()
            later.assign(found, Element(spec.name, plus(half, own), dtype))
            new = Call("eq", (self.round, index(0)), "bool")
            there.add(If(new, begin.body, later.body))
        condition = self.within(at, kept.own)
        if condition is None:
            block.statements.extend(there.statements)
        else:
            block.branch(condition, there)
        return found

    # --- steps ------------------------------------------------------------------------------------

    def _step(self, block: Block, k: Scalar, last: bool = False) -> None:
        """One step: what is kept, one after the other, and the new states."""
        half = Call("mod", (k, index(2)), "i64") if isinstance(k, Name) else index(_number(k) % 2)
        old = block.named(half, "half")
        given = dict(self.values.given)
        self.values.given |= self.known()
        for before in self.befores:
            self.values.given[before] = self.element(before, old)
        self._fills(self.befores, old)
        time = self._at(k)
        for position in self.plan.kept:
            self._stage(block, [(position, position)], time, None)
            self.values.given[position] = self.element(position, None)
            self._fills([position], None)
        new = (
            Call("sub", (index(1), old), "i64")
            if isinstance(old, Name)
            else index(1 - _number(old))
        )
        for together in self.plan.together:
            made = [
                (self.program.nodes[after].args[1], before) for before, after in together.states
            ]
            self._stage(block, made, time, new, together.histories, last)
        self.values.given = given

    def _fills(self, positions: Sequence[int], half: Scalar | None) -> None:
        """Reads of values that are in arrays beyond the grid, too, or lie evenly in them."""
        for position in positions:
            filled = self.kept[position].fill is not None
            for user in self.program.users(position):
                inside = user in self.loop.inside
                if not inside or not isinstance(self.program.nodes[user].op, Read):
                    continue
                if filled or self.is_even(user, position):
                    self.values.given[user] = self.shifted(user, position, half)

    def _stage(
        self, block: Block, made: Sequence[tuple[int, int]], time: Scalar, half: Scalar | None,
        histories: Sequence[int] = (), last: bool = False,
    ) -> None:  # fmt: skip
        """Values, and outputs of a step, at all points of the tile: in arrays, or at last, where
        they are right, in memory."""
        like = made[0][1] if made else None
        kept = self.kept[like] if like is not None else self._history(histories[0])
        writes: list[Callable[[], None]] = []
        region = OWN if last and self.single else TILE

        def compute(inner: Block, there: Point) -> None:
            at = {**there, self.loop.axis: time}
            found = [inner.let(self.values.value(inner, source, at)) for source, _ in made]
            if last or histories:
                writes.append(lambda: self._leave(inner, made, found, at, histories, last))
            if not last:
                kept_values = [self._filled(inner, p, v, at) for (_, p), v in
                               zip(made, found, strict=True)]  # fmt: skip
                writes.append(lambda: self._keep(inner, made, kept_values, at, half))

        self.spread(block, kept, compute, region, writes)

    def _history(self, store: int) -> Kept:
        """The points of an output of a step, as if it had an array."""
        own = self.plan.group(self.program.nodes[store].axes)
        shape = tuple(self.wide(axis) for axis in own)
        nothing = Array("", "f32", 0, GROUP)
        return Kept(nothing, own, shape, False, None)

    def _filled(self, block: Block, position: int, value: Scalar, at: Point) -> Scalar:
        """A value, or beyond the grid what reads find there."""
        kept = self.kept[position]
        within = self.within(at, kept.own)
        if kept.fill is None or within is None:
            return value
        found = call("where", within, value, number(kept.fill, value.dtype))
        return block.let(found)

    def _keep(
        self, block: Block, made: Sequence[tuple[int, int]], found: Sequence[Scalar], at: Point,
        half: Scalar | None,
    ) -> None:  # fmt: skip
        for (_, position), value in zip(made, found, strict=True):
            kept = self.kept[position]
            place = flat([self.local(at, axis) for axis in kept.own], kept.shape)
            if kept.halves and half is not None:
                place = plus(times(half, prod(kept.shape)), place)
            block.add(Write(kept.array.name, place, value))

    def _leave(
        self, block: Block, made: Sequence[tuple[int, int]], found: Sequence[Scalar], at: Point,
        histories: Sequence[int], last: bool,
    ) -> None:  # fmt: skip
        """Outputs of a step, and what the last step of a round leaves, at the tile's own points."""
        there = block.inner()
        for position in histories:
            self.values.store(there, position, at)
        if last and made:
            self._results(there, made, found, at)
        own = self.is_own(at, last and self.single)
        if own is None:
            block.statements.extend(there.statements)
        else:
            block.branch(own, there)

    def _results(
        self, block: Block, made: Sequence[tuple[int, int]], found: Sequence[Scalar], at: Point
    ) -> None:
        """States for the next round, or what is made of the last ones."""
        final, later = block.inner(), block.inner()
        here = {axis: value for axis, value in at.items() if axis != self.loop.axis}
        after = dict(self.loop.states)
        behind = [after[before] for _, before in made]
        for (_, before), value in zip(made, found, strict=True):
            self.values.given[after[before]] = _constant(value)
        for position in self._finals(behind):
            self.values.store(final, position, here)
        if self.rounds == 1:
            block.statements.extend(final.statements)
            return
        for (_, before), value in zip(made, found, strict=True):
            spec, axes = self.buffers[before], self.axes_of(before)
            assert spec is not None
            shape = self.program.scope.shape(axes)
            own = flat([here[axis] for axis in axes], shape)
            other = Call("mod", (plus(self.round, index(1)), index(2)), "i64")
            later.add(Write(spec.name, plus(times(other, prod(shape)), own), value))
        ends = Call("eq", (self.round, index(self.rounds - 1)), "bool")
        block.add(If(ends, final.body, later.body, often=1.0))

    def _finals(self, behind: Sequence[int]) -> list[int]:
        """Outputs that are made of states at the end."""
        return [p for p in self.values.behind(behind) if p not in self.plan.histories]


def _number(scalar: Scalar) -> int:
    assert isinstance(scalar, Number)
    return int(scalar.value)


def _constant(value: Scalar) -> Given:
    return lambda _, at: value
