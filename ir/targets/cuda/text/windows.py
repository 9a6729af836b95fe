"""Loads of windows: the elements that several points or several loads share, each read once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ir.bends import Bend, bends
from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.ops.map import Constant
from ir.targets.cuda.layouts.access import Access, Dimension
from ir.targets.cuda.layouts.frame import Digit
from ir.targets.cuda.layouts.windows import Side, Window, spans, width_of
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.registers import Fragment, Point, times

if TYPE_CHECKING:
    from ir.targets.cuda.text.transfers import Transfers


def load_window(e: Transfers, window: Window) -> dict[int, Fragment]:
    """Write the loads of a window; each load's points in its registers."""
    return _Window(e, window).load()


class _Window:
    def __init__(self, e: Transfers, window: Window) -> None:
        self.e, self.window = e, window
        self.node = e.nodes[window.loads[0]]
        self.access: Access = e.window_access(window.loads[0])
        self.width = width_of(window, self.access, e.frame, e.tiles)
        self.along, self.weights = window.weights()
        self.outer = {n: Digit(f"{n}", side.count, 0) for n, side in enumerate(window.sides[:-1])}
        self.name = ""
        self.bent = self._bent()

    def _bent(self) -> dict[int, Bend]:
        """The dimensions of which some thread reads what is outside elsewhere."""
        found = bends(self.e.program).get(self.window.loads[0], {})
        sides = list(zip(self.access.dimensions, self.window.sides, strict=True))
        ranges = {n: self._range(*sides[n], None) for n in found}
        return {
            n: bend for n, bend in found.items()
            if ranges[n][0] < 0 or ranges[n][1] >= sides[n][0].extent
        }  # fmt: skip

    def load(self) -> dict[int, Fragment]:
        e, window = self.e, self.window
        self.name = e.w.name(self.access.tensor)
        kind = scalars.register_type(self.node.dtype)
        e.w.line(f"{kind} {self.name}[{window.count}];")
        kept = [digit for side in window.sides for digit, _ in side.kept]
        rows = [digit for digit in self.outer.values() if digit.size > 1]
        with e.w.block(""):
            pointer = e.pointer(self._first(), "const ")
            if self.bent:
                with e.each(kept) as point:
                    self._load_bent(pointer, point, rows)
            else:
                with e.each([*kept, *rows]) as point:
                    self._take_all(pointer, point)
        digits = e.own(self.node.axes)
        weights = tuple(self.weights[digit] for digit in digits)
        return {p: Fragment(self.name, digits, 0, weights, window.start(p)) for p in window.loads}

    def _load_bent(self, pointer: str, part: Point, rows: list[Digit]) -> None:
        """One part of the thread's box, by whole words if all of it lies inside of the tensor."""
        e = self.e
        with e.w.block(f"if ({' && '.join(self._within(part))})"), e.each(rows) as point:
            self._take_all(pointer, Point({**part.digits, **point.digits}))
        with e.w.block("else"), e.each(rows) as point:
            for number in range(self.window.sides[-1].count):
                self._look_up(Point({**part.digits, **point.digits}), number)

    def _take_all(self, pointer: str, point: Point) -> None:
        for first, numbers in spans(self.window, self.width):
            self._take(pointer, point, first, numbers)

    def _first(self) -> Access:
        """The access of the box's least elements along all but its rows."""
        sides = zip(self.access.dimensions[:-1], self.window.sides[:-1], strict=True)
        outer = (replace(d, constant=side.least) for d, side in sides)
        row = replace(self.access.dimensions[-1], constant=0)
        return replace(self.access, dimensions=(*outer, row))

    def _take(self, pointer: str, point: Point, first: int, numbers: list[int]) -> None:
        """One access along a row."""
        op, dtype = self.node.op, self.node.dtype
        assert isinstance(op, Load)
        row = self.window.sides[-1]
        targets = [f"{self.name}[{self._register(point, n)}]" for n in numbers]
        outside = scalars.literal(op.fill or 0, dtype)
        condition = self._inside(point, first)
        offset = self._offset(point, first)
        if len(numbers) == 1:
            value = scalars.from_storage(f"{pointer}[{offset}]", dtype)
            text = f"({condition}) ? {value} : {outside}" if condition else value
            self.e.w.line(f"{targets[0]} = {text};")
            return
        size = self.width * dtype_of(dtype).bytes
        places = (row.least + number - first for number in numbers)
        value = f"tw_read_{size}({pointer} + ({offset}))"
        self.e.unpacked(
            dict(zip(places, targets, strict=True)), dtype, size, value, condition, outside
        )

    def _within(self, part: Point) -> Iterator[str]:
        """Conditions that no element of a part of the thread's box is read elsewhere."""
        for n in self.bent:
            d, side = self.access.dimensions[n], self.window.sides[n]
            moved, most = self._moved(n, side, part, 1), side.least + (side.count - 1) * side.unit
            yield f"{self._place(d, moved, side.least)} >= 0"
            yield f"{self._place(d, moved, most)} < {d.extent}"

    def _place(self, d: Dimension, moved: list[str], start: int) -> str:
        """An index along a dimension, so far from where the thread's digits are 0."""
        bases = ((self.e.base(axis), c) for axis, c in d.terms)
        parts = [times(base, c) for base, c in bases if base != "0"] + moved
        parts += [str(start)] if start or not parts else []
        return f"({' + '.join(parts)})"

    def _look_up(self, point: Point, number: int) -> None:
        """One element of a row, wherever it is read."""
        e, dtype, row = self.e, self.node.dtype, self.window.sides[-1]
        first = row.least + row.unit * number
        condition, parts = self._inside(point, first), []
        for n, (d, side) in enumerate(zip(self.access.dimensions, self.window.sides, strict=True)):
            start = first if n == len(self.window.sides) - 1 else side.least
            index = self._place(d, self._moved(n, side, point, 1), start)
            if n in self.bent:
                index = self._elsewhere(self.bent[n], d, index, self._range(d, side, None))
            parts.append(f"(i64){index} * {d.stride}")
        value = f"{e.w.pointer(self.access.tensor)}[{' + '.join(parts)}]"
        value = scalars.from_storage(value, dtype)
        text = f"({condition}) ? {value} : {scalars.literal(0, dtype)}" if condition else value
        e.w.line(f"{self.name}[{self._register(point, number)}] = {text};")

    def _elsewhere(self, bend: Bend, d: Dimension, index: str, ends: tuple[int, int]) -> str:
        """Where what an index names is read; inside the tensor for points that no axis has, too."""
        e, place = self.e, self.e.w.name("place")
        e.w.line(f"const i32 {place} = {index};")
        known: dict[int, str] = {}
        for part, many, more in bend.parts:
            known[part] = f"({times(place, many)} + {more})" if more else times(place, many)
        for position in e.program.behind([bend.node], lambda p: p in known):
            node = e.nodes[position]
            if isinstance(node.op, Constant):
                known.setdefault(position, scalars.literal(node.op.value, node.dtype))
            elif position not in known:
                known[position] = f"({e.applied(position, [known[arg] for arg in node.args])})"
        found = known[bend.node]
        if bend.leaves(e.program, *ends, d.extent):
            last = scalars.literal(d.extent - 1, "i32")
            found = scalars.apply("min", "i32", [found, last], "i32", False)
            found = scalars.apply("max", "i32", [found, "0"], "i32", False)
        bent = e.w.name("bent")
        e.w.line(f"const i32 {bent} = {found};")
        return bent

    def _register(self, point: Point, number: int) -> str:
        parts = [str(number)] if number else []
        for n, digit in self.outer.items():
            if point.digits.get(digit, "0") != "0":
                parts.append(times(point.digits[digit], self.along[n]))
        for side in self.window.sides:
            for digit, _ in side.kept:
                if point.digits[digit] != "0":
                    parts.append(times(point.digits[digit], self.weights[digit]))
        return " + ".join(parts) or "0"

    def _offset(self, point: Point, first: int) -> str:
        """Elements from the pointer to an access that begins at `first` of the rows."""
        parts = [str(first)] if first else []
        for n, (d, side) in enumerate(zip(self.access.dimensions, self.window.sides, strict=True)):
            for text in self._moved(n, side, point, d.stride):
                parts.append(text)
        return " + ".join(parts) or "0"

    def _moved(self, number: int, side: Side, point: Point, stride: int) -> list[str]:
        """What digits and the place in the box add to an index, times a stride."""
        found = [
            times(point.digits[digit], step * stride)
            for digit, step in side.kept
            if point.digits[digit] != "0"
        ]
        outer = self.outer.get(number)
        if outer is not None and point.digits.get(outer, "0") != "0":
            found.append(times(point.digits[outer], side.unit * stride))
        return found

    def _inside(self, point: Point, first: int) -> str:
        """A condition that an access lies within the tensor; empty if it always does."""
        bounds = []
        for n, (d, side) in enumerate(zip(self.access.dimensions, self.window.sides, strict=True)):
            if n in self.bent:
                continue
            last = n == len(self.window.sides) - 1
            low, high = self._range(d, side, first if last else None)
            start = first if last else side.least
            index = self._place(d, self._moved(n, side, point, 1), start)
            if low < 0:
                bounds.append(f"{index} >= 0")
            if high >= d.extent:
                bounds.append(f"{index} < {d.extent}")
        return " && ".join(bounds)

    def _range(self, d: Dimension, side: Side, first: int | None) -> tuple[int, int]:
        """The least and the largest index along a dimension in any thread; of an access that begins
        at `first`, or of all the box."""
        e = self.e
        low = high = side.least if first is None else first
        high += 0 if first is not None else (side.count - 1) * side.unit
        for axis, c in d.terms:
            tile = e.tiles[axis]
            rounded = -(-e.program.axes[axis] // tile) * tile
            own = sum((digit.size - 1) * digit.stride for digit in e.frame.own((axis,)))
            reach = c * (rounded - 1 - own)
            low, high = low + min(reach, 0), high + max(reach, 0)
        for digit, step in side.kept:
            reach = (digit.size - 1) * step
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high
