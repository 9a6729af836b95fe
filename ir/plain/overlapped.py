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
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from ir.dtypes import compute_dtype
from ir.errors import ProgramError
from ir.loops import loops_of, widened
from ir.ops.base import TensorSpec
from ir.ops.load import Load
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
    Spread,
    Write,
)
from ir.plain.pieces import Overlap, step
from ir.plain.scalars import both, call, convert, flat, index, number, plus, times
from ir.plain.steps import steps_of
from ir.plain.values import Given, Point, Values
from ir.plain.windows import Windows, shift_of, windows_of
from ir.program import Program
from ir.ranges import integer_range, narrowest, state_ranges

_Made = Callable[[Block, Point], None]
_WIDE, _TILE, _OWN = "wide", "tile", "own"  # of an array: all, what steps compute, what is right
_SEVERAL = 3  # tiles along an axis, from which on some leave the grid nowhere


def overlapped_kernel(values: Values, overlap: Overlap) -> PlainKernel:
    """The steps of a loop over tiles of a size. Raises ProgramError where there are none."""
    windows = windows_of(values.program)
    if windows is None:
        raise ProgramError(f"{values.program.name}: no loop whose steps need near points alone")
    return _Overlapped(values, windows, overlap).kernel()


@dataclass(frozen=True, slots=True)
class _Kept:
    """A value in an array of the group: of the axes `own`, the tile's with a margin; `fill`: what
    it is outside of the grid, if all reads say the same."""

    array: Array
    own: tuple[str, ...]
    shape: tuple[int, ...]
    halves: bool
    fill: float | None


class _Overlapped:
    def __init__(self, values: Values, windows: Windows, overlap: Overlap) -> None:
        self.values, self.windows, self.overlap = values, windows, overlap
        self.program: Program = values.program
        self.loop = widened(self.program, loops_of(self.program)[0])
        self.plan = steps_of(self.program, self.loop)
        self.total = self.program.axes[self.loop.axis]
        self.steps = min(overlap.steps, self.total)
        self.rounds = -(-self.total // self.steps)
        self.skipped = self.rounds * self.steps - self.total  # steps that the first round has not
        self.sides = windows.sides(overlap.tile, self.steps)
        nodes = self.program.nodes
        first = nodes[self.loop.states[0][0]].axes
        self.points = values.points([axis for axis in first if axis in self.plan.points])
        names = values.names
        self.number = {axis: Name(names.fresh(f"tile_{axis}")) for axis in windows.axes}
        self.base = {axis: Name(names.fresh(f"base_{axis}")) for axis in windows.axes}
        self.edged = True  # whether what is written next is for tiles that leave the grid
        self.round = Name(names.fresh("round"))
        self.block = Block(names)
        self.befores = [before for before, _ in self.loop.states]
        self.ranges = state_ranges(self.program, self.loop)
        self.kept = {p: self._kept(p) for p in (*self.befores, *self.plan.kept)}
        self.buffers = dict(zip(self.befores, map(self._buffer, self.befores), strict=True))
        self.edges = {axis: self._edges(axis) for axis in windows.axes}

    def _loads(self) -> set[int]:
        """The tensors that a step reads, at coordinates that may lie beyond the grid."""
        nodes = self.program.nodes
        found, pending = set[int](), [*self.loop.inside]
        pending += [nodes[after].args[1] for _, after in self.loop.states]
        while pending:
            here = pending.pop()
            if here not in found and here not in self.befores:
                found.add(here)
                pending.extend(nodes[here].args)
        return {here for here in found if isinstance(nodes[here].op, Load)}

    def _clamped(self, position: int) -> Given:
        """A tensor's element, at the nearest point of the grid."""
        node = self.program.nodes[position]
        assert isinstance(node.op, Load)
        op = node.op

        def found(block: Block, at: Point) -> Scalar:
            there = {axis: self._near(block, axis, place) for axis, place in at.items()}
            return self.values.loaded(block, node, op, there)

        return found

    def _near(self, block: Block, axis: str, place: Scalar) -> Scalar:
        if not self.edged or axis not in self.sides or not isinstance(place, Call):
            return place
        known = block.find(("near", place))
        if known is None:
            low, high = self.edges[axis]
            last = Call("sub", (high, number(1, "i32")), "i32")
            local = convert(_without(place, self.base[axis]), "i32")
            there = Call("min", (Call("max", (local, low), "i32"), last), "i32")
            near = block.let(plus(self.base[axis], convert(there, "i64")), "near")
            known = block.keep(("near", place), near)
        return known

    # --- arrays -----------------------------------------------------------------------------------

    def _kept(self, position: int) -> _Kept:
        own = self.plan.group(self.program.nodes[position].axes)
        fill = self._fill(position)
        shape = tuple(self._wide(axis) for axis in own)
        halves = position in self.befores
        stored = narrowest(self.values.dtype(position), self._range(position, fill))
        array = self.values.array("tile", stored, (1 + halves) * prod(shape), GROUP)
        return _Kept(array, own, shape, halves, fill)

    def _range(self, position: int, fill: float | None) -> tuple[int, int] | None:
        found = integer_range(self.program, position, self.ranges)
        if found is None or fill is None:
            return found
        return min(found[0], int(fill)), max(found[1], int(fill))

    def _wide(self, axis: str) -> int:
        """Elements of an array along an axis."""
        return self.sides[axis].wide if axis in self.sides else self.program.axes[axis]

    def _fill(self, position: int) -> float | None:
        """What all reads of a value have outside of the grid, if they have the same."""
        nodes = self.program.nodes
        reads = [
            nodes[user].op
            for user in self.program.users(position)
            if user in self.loop.inside and isinstance(nodes[user].op, Read)
        ]
        fills = {op.fill for op in reads if isinstance(op, Read)}
        shifted = all(isinstance(op, Read) and self._is_shift(position, op) for op in reads)
        return next(iter(fills)) if len(fills) == 1 and shifted else None

    def _is_shift(self, position: int, op: Read) -> bool:
        """Whether a read is at its own point of what is no tile's."""
        pairs = zip(self.program.nodes[position].axes, op.index, strict=True)
        return all(
            place.terms == ((axis, 1),) and not place.constant and place.gather is None
            for axis, place in pairs
            if axis not in self.sides
        )

    def _axes(self, before: int) -> tuple[str, ...]:
        """The axes of a state between steps."""
        axes = self.program.nodes[before].axes
        return tuple(axis for axis in axes if axis != self.loop.axis)

    def _buffer(self, before: int) -> TensorSpec | None:
        """Where a state waits for the next round, twice."""
        if self.rounds == 1:
            return None
        shape = self.program.scope.shape(self._axes(before))
        return self.values.part(2, shape, self.kept[before].array.dtype, "between", partly=True)

    # --- the kernel -------------------------------------------------------------------------------

    def kernel(self) -> PlainKernel:
        for axis, base in self.base.items():
            side = self.sides[axis]
            first = plus(times(self.number[axis], side.own), index(-side.first))
            self.block.add(Let(base, first))
            wide, extent = self._wide(axis), self.program.axes[axis]
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
        for axis, (low, high) in self.edges.items():
            wide = number(self._wide(axis), "i32")
            within = both(within, Call("le", (low, number(0, "i32")), "bool"))
            within = both(within, Call("le", (wide, high), "bool"))
        if within is None or max(side.count for side in self.sides.values()) < _SEVERAL:
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
                if self.rounds == 1:
                    first = index(self.skipped)
            block.add(Between(k, first, index(self.steps - 1), inner.body, often))
        self._step(block, index(self.steps - 1), last=True)

    def _at(self, k: Scalar) -> Scalar:
        """The number of a step of the loop."""
        before = times(self.round, self.steps) if self.rounds > 1 else index(0)
        return plus(plus(before, k), index(-self.skipped))

    def _edges(self, axis: str) -> tuple[Name, Name]:
        """Names for where in an array the grid begins and where it ends along an axis."""
        names = self.values.names
        return Name(names.fresh(f"low_{axis}"), "i32"), Name(names.fresh(f"high_{axis}"), "i32")

    # --- what a round begins with -----------------------------------------------------------------

    def _bring(self, block: Block) -> None:
        """States at the tile and its margin, and something at all else that is read."""
        half: Scalar = index(0)
        if self.skipped:
            first = Call("eq", (self.round, index(0)), "bool")
            other = index(self.skipped % 2)
            half = Call("where", (first, other, index(0)), "i64") if self.rounds > 1 else other
            half = block.named(half, "half")
        for before in self.befores:
            kept = self.kept[before]

            def bring(inner: Block, there: Point, before: int = before, kept: _Kept = kept) -> None:
                value = self._first(inner, before, there)
                place = flat([self._local(there, a) for a in kept.own], kept.shape)
                size = prod(kept.shape)
                inner.add(Write(kept.array.name, plus(times(half, size), place), value))
                other = plus(times(Call("sub", (index(1), half), "i64"), size), place)
                inner.add(Write(kept.array.name, other, number(0, value.dtype)))

            self._spread(block, kept, bring, _WIDE)
        for position in self.plan.kept:
            kept = self.kept[position]

            def clear(inner: Block, there: Point, kept: _Kept = kept) -> None:
                place = flat([self._local(there, a) for a in kept.own], kept.shape)
                inner.add(Write(kept.array.name, place, number(0, compute_dtype(kept.array.dtype))))

            self._spread(block, kept, clear, _WIDE)

    def _first(self, block: Block, before: int, at: Point) -> Scalar:
        """A state as a round finds it: as it begins, or as the round before left it."""
        kept, node = self.kept[before], self.program.nodes[before]
        dtype = self.values.dtype(before)
        found = block.let(number(kept.fill or 0, dtype), "first")
        there, begin = block.inner(), block.inner()
        begin.assign(found, self.values.value(begin, node.args[0], at))
        spec = self.buffers[before]
        if spec is None:
            there.statements.extend(begin.statements)
        else:
            axes = self._axes(before)
            shape = self.program.scope.shape(axes)
            own = flat([at[axis] for axis in axes], shape)
            half = times(Call("mod", (self.round, index(2)), "i64"), prod(shape))
            later = there.inner()
            later.assign(found, Element(spec.name, plus(half, own), dtype))
            new = Call("eq", (self.round, index(0)), "bool")
            there.add(If(new, begin.body, later.body))
        condition = self._within(at, kept.own)
        if condition is None:
            block.statements.extend(there.statements)
        else:
            block.branch(condition, there)
        return found

    def _within(self, at: Point, axes: Sequence[str]) -> Scalar | None:
        """Whether a point of a tile is one of the grid."""
        found: Scalar | None = None
        for axis in axes if self.edged else ():
            if axis in self.sides:
                local = convert(self._local(at, axis), "i32")
                low, high = self.edges[axis]
                found = both(found, Call("le", (low, local), "bool"))
                found = both(found, Call("lt", (local, high), "bool"))
        return found

    # --- steps ------------------------------------------------------------------------------------

    def _step(self, block: Block, k: Scalar, last: bool = False) -> None:
        """One step: what is kept, one after the other, and the new states."""
        half = Call("mod", (k, index(2)), "i64") if isinstance(k, Name) else index(_number(k) % 2)
        old = block.named(half, "half")
        given = dict(self.values.given)
        for position in sorted(self._loads()):
            self.values.given[position] = self._clamped(position)
        for before in self.befores:
            self.values.given[before] = self._element(before, old)
        self._fills(self.befores, old)
        time = self._at(k)
        for position in self.plan.kept:
            self._stage(block, [(position, position)], time, None)
            self.values.given[position] = self._element(position, None)
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
        """Reads of values that are in arrays beyond the grid, too."""
        for position in positions:
            if self.kept[position].fill is None:
                continue
            for user in self.program.users(position):
                if user in self.loop.inside and isinstance(self.program.nodes[user].op, Read):
                    self.values.given[user] = self._shifted(user, position, half)

    def _shifted(self, read: int, position: int, half: Scalar | None) -> Given:
        shifts = dict(
            zip(self.windows.axes, shift_of(self.program, read, self.windows.axes), strict=True)
        )
        element = self._element(position, half)

        def found(block: Block, at: Point) -> Scalar:
            there = {a: plus(s, index(shifts[a])) if shifts.get(a) else s for a, s in at.items()}
            return element(block, there)

        return found

    def _element(self, position: int, half: Scalar | None) -> Given:
        kept, dtype = self.kept[position], self.values.dtype(position)

        def found(_: Block, at: Point) -> Scalar:
            place = flat([self._local(at, axis) for axis in kept.own], kept.shape)
            if half is not None:
                place = plus(times(half, prod(kept.shape)), place)
            return Element(kept.array.name, place, dtype)

        return found

    def _local(self, at: Point, axis: str) -> Scalar:
        """Where a coordinate is in an array."""
        if axis not in self.sides:
            return at[axis]
        return _without(at[axis], self.base[axis])

    def _stage(
        self, block: Block, made: Sequence[tuple[int, int]], time: Scalar, half: Scalar | None,
        histories: Sequence[int] = (), last: bool = False,
    ) -> None:  # fmt: skip
        """Values, and outputs of a step, at all points of the tile: in arrays, or at last, where
        they are right, in memory."""
        like = made[0][1] if made else None
        kept = self.kept[like] if like is not None else self._history(histories[0])
        writes: list[Callable[[], None]] = []
        single = self.overlap.rows == self.overlap.columns == 1
        region = _OWN if last and single else _TILE

        def compute(inner: Block, there: Point) -> None:
            at = {**there, self.loop.axis: time}
            found = [inner.let(self.values.value(inner, source, at)) for source, _ in made]
            if last or histories:
                writes.append(lambda: self._leave(inner, made, found, at, histories, last))
            if not last:
                kept_values = [self._filled(inner, p, v, at) for (_, p), v in
                               zip(made, found, strict=True)]  # fmt: skip
                writes.append(lambda: self._keep(inner, made, kept_values, at, half))

        self._spread(block, kept, compute, region, writes)

    def _history(self, store: int) -> _Kept:
        """The points of an output of a step, as if it had an array."""
        own = self.plan.group(self.program.nodes[store].axes)
        shape = tuple(self._wide(axis) for axis in own)
        nothing = Array("", "f32", 0, GROUP)
        return _Kept(nothing, own, shape, False, None)

    def _filled(self, block: Block, position: int, value: Scalar, at: Point) -> Scalar:
        """A value, or beyond the grid what reads find there."""
        kept = self.kept[position]
        within = self._within(at, kept.own)
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
            place = flat([self._local(at, axis) for axis in kept.own], kept.shape)
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
        single = self.overlap.rows == self.overlap.columns == 1
        own = self._own(at, last and single)
        if own is None:
            block.statements.extend(there.statements)
        else:
            block.branch(own, there)

    def _own(self, at: Point, known: bool) -> Scalar | None:
        """Whether a point is of the tile's own, if that is not `known`, and of the grid."""
        found: Scalar | None = None
        for axis, side in self.sides.items():
            local = convert(self._local(at, axis), "i32")
            if side.first > side.low and not known:
                found = both(found, Call("le", (number(side.first, "i32"), local), "bool"))
            if side.low + side.tile > side.first + side.own and not known:
                end = number(side.first + side.own, "i32")
                found = both(found, Call("lt", (local, end), "bool"))
            if self.edged and side.count * side.own > side.extent:
                found = both(found, Call("lt", (local, self.edges[axis][1]), "bool"))
        return found

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
            spec, axes = self.buffers[before], self._axes(before)
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

    # --- loops ------------------------------------------------------------------------------------

    def _spread(
        self, block: Block, kept: _Kept, make: _Made, region: str,
        writes: list[Callable[[], None]] | None = None,
    ) -> None:  # fmt: skip
        """What is done at all points of a region of an array. Several rows are one iteration's, all
        of which is computed before any of it is written."""
        inner = block.inner()
        several = self._several(kept) if region == _TILE else {}
        variables, places = list[tuple[Name, int]](), dict[str, Scalar]()
        for axis, whole in zip(kept.own, kept.shape, strict=True):
            extent = self._region(axis, region)[1] if axis in self.sides else whole
            extent //= several.get(axis, 1)
            name = block.variable(axis)
            if extent > 1:
                variables.append((name, extent))
            places[axis] = name if extent > 1 else index(0)
        along = [
            [self._place(inner, axis, plus(times(places[axis], count), index(one)), region)
             for one in range(count)]
            for axis, count in ((axis, several.get(axis, 1)) for axis in kept.own)
        ]  # fmt: skip
        for here in product(*along):
            make(inner, {**self.points, **dict(zip(kept.own, here, strict=True))})
        for write in writes or ():
            write()
        block.add(Spread(tuple(variables), inner.body))

    def _several(self, kept: _Kept) -> dict[str, int]:
        """Points of one iteration along axes: rows along the first, columns along the last."""
        if not kept.own:
            return {}
        found = {kept.own[-1]: self.overlap.columns}
        if len(kept.own) > 1:
            found[kept.own[0]] = self.overlap.rows
        return {
            axis: count
            for axis, count in found.items()
            if axis in self.sides and self.sides[axis].tile % count == 0
        }

    def _region(self, axis: str, region: str) -> tuple[int, int]:
        """Where a region begins in an array, and its elements."""
        side = self.sides[axis]
        begins = {_WIDE: (0, side.wide), _TILE: (side.low, side.tile), _OWN: (side.first, side.own)}
        return begins[region]

    def _place(self, block: Block, axis: str, place: Scalar, region: str) -> Scalar:
        """The coordinate of an element, of which only where it is in an array has a name."""
        if axis not in self.sides:
            return place
        local = plus(place, index(self._region(axis, region)[0]))
        return Call("add", (self.base[axis], block.named(local, "l")), "i64")


def _without(place: Scalar, base: Name) -> Scalar:
    """A coordinate less where the tile begins."""
    if isinstance(place, Call) and place.function == "add":
        left, right = place.args
        if left == base:
            return right
        if isinstance(right, Number):
            return plus(_without(left, base), right)
    return Call("sub", (place, base), "i64")


def _number(scalar: Scalar) -> int:
    assert isinstance(scalar, Number)
    return int(scalar.value)


def _constant(value: Scalar) -> Given:
    return lambda _, at: value
