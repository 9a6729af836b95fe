"""A scatter in the order of where elements go: work grows with what is sent, whoever gets it.

What is sent along the axes that meet is a row each, numbered; the numbers are put in the order of
the places they go to (`ir.plain.ordering`). Then each place of the output, at some columns of the
row, combines its own rows one after the other. A place that gets very many is helped out: runs of
rows that all go to one place are combined by themselves before, and their results in order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ir.merges import NAMED, merge_of
from ir.ops.scatter import Scatter, nothing_sent
from ir.ops.store import Store
from ir.plain.block import Block
from ir.plain.code import (
    Accumulate,
    Between,
    Call,
    Element,
    If,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Write,
)
from ir.plain.ordering import Ordering, first_not
from ir.plain.pieces import step
from ir.plain.scalars import both, call, convert, flat, index, inside, number, plus, times
from ir.plain.values import Point, Values
from ir.program import Program
from ir.scalar import COMBINES

_COLUMNS = ((8, 512), (4, 64))
"""Columns of a row that a point combines at a time, and of how many at least: several loads are
under way, and what a point is there for is more than finding its rows."""
_SHORTEST, _LONGEST = 64, 1024  # rows of a run


@dataclass(frozen=True, slots=True)
class Plan:
    """Axes of the output that tell rows apart (`places`), those along a row (`columns`), and those
    of the sources along which rows are numbered (`rows`)."""

    places: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[str, ...]

    def counts(self, program: Program) -> tuple[int, int]:
        """Places and rows."""
        places, rows = (
            math.prod(program.axes[axis] for axis in axes) for axes in (self.places, self.rows)
        )
        return places, rows


def plan_of(program: Program, position: int) -> Plan | None:
    """How a scatter may be put in order; None where no rows meet, or are too many to be numbered
    in 32 bits."""
    node = program.nodes[position]
    op = node.op
    assert isinstance(op, Scatter)
    free = [axis for axis in op.axes if axis not in op.owned]
    if not free:
        return None
    sources = op.sources([program.nodes[arg].type for arg in node.args])
    tells = set(free)
    for axis, place in zip(op.axes, op.index, strict=True):
        if axis in free:
            tells |= {name for name, _ in place.terms}
            if place.gather is not None:
                tells |= set(program.nodes[node.args[place.gather]].axes)
    columns = tuple(axis for axis in op.axes if axis in op.owned and axis not in tells)
    places = tuple(axis for axis in op.axes if axis not in columns)
    rows = tuple(axis for axis in sources if axis not in columns)
    plan = Plan(places, columns, rows)
    return plan if max(plan.counts(program)) < 2**31 - 1 else None


class Ordered:
    """The kernels of one scatter in order."""

    def __init__(self, values: Values, position: int, op: Scatter, output: Store | None) -> None:
        self.values, self.position, self.op, self.output = values, position, op, output
        self.program = program = values.program
        self.axes = next(store.axes for _, store in program.stores())
        self.dtype = values.dtype(position)
        plan = plan_of(program, position)
        assert plan is not None
        self.plan = plan
        self.places, self.rows = plan.counts(program)
        self.order = Ordering(
            values, self.rows, self.places, lambda block, _, row: self._key(block, row)
        )
        self.starts = values.part(1, (self.places + 1,), "i32", "starts")
        root = math.isqrt(self.rows)
        self.run = min(max(1 << root.bit_length(), _SHORTEST), _LONGEST)
        self.runs = self.rows // self.run
        shape = program.scope.shape(plan.columns)
        self.width = math.prod(shape)
        self.parts = values.part(self.runs, shape, self.dtype, partly=True) if self.runs else None

    def kernels(self) -> tuple[PlainKernel, ...]:
        runs = () if self.parts is None else (self._of_runs(),)
        return (*self.order.kernels(), self._bounded(), *runs, self._combined())

    # --- rows -------------------------------------------------------------------------------------

    def _at(self, block: Block, row: Scalar) -> dict[str, Scalar]:
        """The coordinates of a row."""
        wide = [axis for axis in self.plan.rows if self.program.axes[axis] > 1]
        found: dict[str, Scalar] = dict.fromkeys(self.plan.rows, index(0))
        if len(wide) == 1:
            return found | {wide[0]: row}
        rest = block.named(convert(row, "i32"), "row")
        for axis in reversed(wide):
            extent = Number(self.program.axes[axis], "i32")
            last = axis == wide[0]
            own = rest if last else Call("mod", (rest, extent), "i32")
            found[axis] = block.named(convert(own, "i64"), "p")
            if not last:
                rest = block.named(Call("floordiv", (rest, extent), "i32"), "row")
        return found

    def _key(self, block: Block, row: Scalar) -> Scalar:
        """The place that a row goes to, or one more than there are."""
        at = self._at(block, row)
        args = self.program.nodes[self.position].args
        places: list[Scalar] = []
        within: Scalar | None = None
        for axis, where in zip(self.op.axes, self.op.index, strict=True):
            if axis not in self.plan.places:
                continue
            place = block.named(self.values.place(block, where, args, at), "p")
            low, high = where.bounds(self.program.scope)
            unknown, extent = where.gather is not None, self.program.axes[axis]
            more = inside(place, extent, unknown or low < 0, unknown or high >= extent)
            within = both(within, more)
            places.append(place)
        found = convert(flat(places, self.program.scope.shape(self.plan.places)), "i32")
        if within is None:
            return found
        return Call("where", (within, found, Number(self.places, "i32")), "i32")

    def _values(
        self, block: Block, place: Scalar, columns: list[dict[str, Scalar]]
    ) -> list[Scalar]:
        """What the row at a place of the order has at some columns."""
        at = self._at(block, block.let(self.order.ordered(place), "row"))
        (arg, *_) = self.program.nodes[self.position].args
        return [
            convert(self.values.value(block, arg, {**at, **some}), self.dtype) for some in columns
        ]

    # --- kernels ----------------------------------------------------------------------------------

    def _bounded(self) -> PlainKernel:
        """Where the rows of each place begin in the order."""
        block, place = Block(self.values.names), Name(self.values.names.fresh("place"))

        def before(at: Scalar) -> Scalar:
            return Call("lt", (self.order.ordered_key(at), convert(place, "i32")), "bool")

        found = first_not(block, self.rows, before)
        block.add(Write(self.starts.name, place, convert(found, "i32")))
        return step(self.values, block, ((place, self.places + 1),))

    def _of_runs(self) -> PlainKernel:
        """What the rows of a run make, where they all go to one place."""
        assert self.parts is not None
        names, extents = self.values.names, self.program.axes
        block, run, own = Block(names), Name(names.fresh("run")), Name(names.fresh("own"))
        at = {axis: Name(names.fresh(f"i_{axis}")) for axis in self.plan.columns}
        first = block.named(times(run, self.run), "first")
        here, there = (
            block.let(self.order.ordered_key(plus(first, index(place))), "key")
            for place in (0, self.run - 1)
        )
        alike, body = block.inner(), block.inner()
        (value,) = self._values(body, plus(first, own), [dict(at)])
        total = Name(names.fresh("total"), self.dtype)
        how = merge_of(NAMED[self.op.kind])
        alike.add(Accumulate(own, self.run, False, body.body, (value,), (total,), how))
        column = flat(list(at.values()), self.program.scope.shape(self.plan.columns))
        alike.add(Write(self.parts.name, plus(times(run, self.width), column), total))
        one = both(
            Call("eq", (here, there), "bool"),
            Call("lt", (here, Number(self.places, "i32")), "bool"),
        )
        assert one is not None
        block.add(If(one, alike.body, often=min(1.0, self.runs / self.places)))
        points = [(run, self.runs), *((name, extents[axis]) for axis, name in at.items())]
        return step(self.values, block, points)

    def _combined(self) -> PlainKernel:
        """Each place combines its rows: up to the first whole run, the runs, and what is left."""
        extents, block = self.program.axes, Block(self.values.names)
        at = self.values.points(self.op.axes)
        points = {axis: (name, extents[axis]) for axis, name in at.items()}
        axis = next((axis for axis in reversed(self.axes) if axis in self.plan.columns), None)
        own: dict[str, Scalar] = {axis: at[axis] for axis in self.plan.columns}
        columns = [own]
        together = 1 if axis is None else self._together(axis)
        if axis is not None and together > 1:
            apart = -(-extents[axis] // together)
            points[axis] = (at[axis], apart)
            columns = [
                {**own, axis: block.named(plus(at[axis], index(n * apart)), "p")}
                for n in range(together)
            ]
        read = [self._clamped(block, some, axis) for some in columns]
        place = flat([at[name] for name in self.plan.places],
                     self.program.scope.shape(self.plan.places))  # fmt: skip
        self._walked(block, block.named(place, "place"), read, columns, at, axis)
        return step(self.values, block, points.values())

    def _clamped(
        self, block: Block, columns: dict[str, Scalar], axis: str | None
    ) -> dict[str, Scalar]:
        """Columns that there are: those of the last point may be beyond the end."""
        if axis is None or self._fits(axis):
            return columns
        last = index(self.program.axes[axis] - 1)
        inner = block.let(Call("min", (columns[axis], last), "i64"), "p")
        return {**columns, axis: inner}

    def _together(self, axis: str) -> int:
        extent = self.program.axes[axis]
        return next((count for count, least in _COLUMNS if extent >= least), 1)

    def _fits(self, axis: str) -> bool:
        return self.program.axes[axis] % self._together(axis) == 0

    def _walked(
        self, block: Block, place: Scalar, read: list[dict[str, Scalar]],
        columns: list[dict[str, Scalar]], at: Point, axis: str | None,
    ) -> None:  # fmt: skip
        first, end = (
            block.let(convert(Element(self.starts.name, plus(place, index(n)), "i32"), "i64"), stem)
            for n, stem in ((0, "first"), (1, "end"))
        )
        start = number(nothing_sent(self.op.kind, self.dtype), self.dtype)
        totals = [block.let(start, "total") for _ in columns]
        often = -(-self.rows // self.places)
        if self.parts is None:
            self._rows(block, first, end, read, totals, often)
        else:
            begin, stop = self._whole_runs(block, first, end)
            some = Call("lt", (begin, stop), "bool")
            head = block.let(Call("where", (some, times(begin, self.run), end), "i64"), "head")
            tail = block.let(Call("where", (some, times(stop, self.run), end), "i64"), "tail")
            self._rows(block, first, head, read, totals, often)
            self._runs(block, begin, stop, read, totals)
            self._rows(block, tail, end, read, totals, 1)
        for some_columns, total in zip(columns, totals, strict=True):
            here = {**at, **some_columns}
            inner = block.inner()
            self._stored(inner, here, total)
            if axis is None or self._fits(axis):
                block.statements.extend(inner.statements)
                continue
            last = index(self.program.axes[axis])
            block.branch(Call("lt", (some_columns[axis], last), "bool"), inner)

    def _stored(self, block: Block, at: Point, total: Name) -> None:
        """What a place has, or what is made of it."""
        if self.output is not None:
            where = flat([at[axis] for axis in self.axes], self.program.scope.shape(self.axes))
            block.add(Write(self.output.tensor, where, total))
            return
        self.values.given[self.position] = lambda inner, there: total
        for position, _ in self.program.stores():
            self.values.write(block, position, at)

    def _whole_runs(self, block: Block, first: Name, end: Name) -> tuple[Name, Name]:
        """The first run that begins behind `first`, and the first that ends behind `end`."""
        bits = Number(self.run.bit_length() - 1, "i64")
        up = plus(first, index(self.run - 1))
        begin = block.let(Call("shr", (up, bits), "i64"), "begin")
        return begin, block.let(Call("shr", (end, bits), "i64"), "stop")

    def _rows(
        self, block: Block, first: Scalar, end: Scalar, columns: list[dict[str, Scalar]],
        totals: list[Name], often: int,
    ) -> None:  # fmt: skip
        row, body = block.variable("row"), block.inner()
        found = self._values(body, row, columns)
        self._joined(body, totals, found)
        block.add(Between(row, first, end, body.body, often))

    def _runs(
        self, block: Block, first: Scalar, end: Scalar, columns: list[dict[str, Scalar]],
        totals: list[Name],
    ) -> None:  # fmt: skip
        assert self.parts is not None
        run, body = block.variable("run"), block.inner()
        shape = self.program.scope.shape(self.plan.columns)
        found: list[Scalar] = [
            Element(
                self.parts.name,
                plus(times(run, self.width), flat([some[a] for a in self.plan.columns], shape)),
                self.dtype,
            )
            for some in columns
        ]
        self._joined(body, totals, found)
        block.add(Between(run, first, end, body.body, self.runs // self.places))

    def _joined(self, block: Block, totals: list[Name], found: list[Scalar]) -> None:
        kind = self.op.kind
        function = "or" if kind == "or" else COMBINES[kind].function
        held = [block.named(value, "x") for value in found]  # all loads before what waits for one
        for total, value in zip(totals, held, strict=True):
            block.assign(total, call(function, total, value))
