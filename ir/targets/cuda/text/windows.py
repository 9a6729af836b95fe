"""Loads of windows: the elements that several points or several loads share, each read once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.ops.load import Load
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

    def load(self) -> dict[int, Fragment]:
        e, window = self.e, self.window
        self.name = e.w.name(self.access.tensor)
        kind = scalars.register_type(self.node.dtype)
        e.w.line(f"{kind} {self.name}[{window.count}];")
        kept = [digit for side in window.sides for digit, _ in side.kept]
        with e.w.block(""):
            pointer = e.pointer(self._first(), "const ")
            with e.each([*kept, *(d for d in self.outer.values() if d.size > 1)]) as point:
                for first, numbers in spans(window, self.width):
                    self._take(pointer, point, first, numbers)
        digits = e.own(self.node.axes)
        weights = tuple(self.weights[digit] for digit in digits)
        return {p: Fragment(self.name, digits, 0, weights, window.start(p)) for p in window.loads}

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
            last = n == len(self.window.sides) - 1
            low, high = self._range(d, side, first if last else None)
            start = first if last else side.least
            parts = [times(self.e.base(axis), c) for axis, c in d.terms if self.e.base(axis) != "0"]
            parts += self._moved(n, side, point, 1)
            parts += [str(start)] if start or not parts else []
            index = f"({' + '.join(parts)})"
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
