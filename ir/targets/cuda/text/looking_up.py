"""Loads at indices that a tile holds: element by element, by rows of neighbours where the indices
do not vary along them, and places of one row that several loads look up by one access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.ops.map import Map
from ir.targets.cuda.layouts.frame import Digit
from ir.targets.cuda.layouts.windows import places_of
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.registers import Fragment, Point

if TYPE_CHECKING:
    from ir.targets.cuda.text.transfers import Transfers


def look_up(e: Transfers, position: int) -> dict[int, Fragment]:
    """Write a load, and those of the same rows beside it; each one's values."""
    return _LookUp(e, position).load()


class _LookUp:
    def __init__(self, e: Transfers, position: int) -> None:
        self.e, self.position = e, position
        self.node, self.access = e.nodes[position], e.access(position)
        op = self.node.op
        assert isinstance(op, Load)
        self.fill, self.outside = op.fill, scalars.literal(op.fill or 0, self.node.dtype)
        self.together = tuple(filter(self._is_beside, next(
            (loads for loads in e.alike if position in loads), (position,)
        )))  # fmt: skip

    def _is_beside(self, other: int) -> bool:
        """Whether another load reads a constant place of the same row."""
        if other == self.position:
            return True
        if not self.access.dimensions or self.e.nodes[other].args != self.node.args:
            return False
        (*rows, last), (*others, place) = self.access.dimensions, self.e.access(other).dimensions
        constant = not (last.terms or place.terms) and last.gather is place.gather is None
        return constant and rows == others

    def load(self) -> dict[int, Fragment]:
        e, node, access = self.e, self.node, self.access
        for arg in node.args:
            e.fragment(arg)
        found = {p: e.new(access.tensor, node.axes, node.dtype) for p in self.together}
        digits = access.row_first(found[self.position].digits)
        width = self._row_width(digits) if len(found) == 1 else 1
        with e.each_vector(digits, width) as points:
            if len(found) > 1:
                self._take_places({p: e.element(f, points[0]) for p, f in found.items()}, points[0])
            else:
                fragment = found[self.position]
                self._take([e.element(fragment, point) for point in points], points[0])
        return found

    def _row_width(self, digits: tuple[Digit, ...]) -> int:
        """Neighbours of a row that are taken at a time."""
        e, access = self.e, self.access
        looked_up = {
            axis
            for d in access.dimensions
            if d.gather is not None
            for axis in e.nodes[self.node.args[d.gather]].axes
        }
        if not digits or digits[0].axis in looked_up:
            return 1
        width = access.vector(e.frame, digits, e.tiles, e.program.axes)
        size = dtype_of(access.dtype).bytes
        return width if size < 8 and width * size >= 4 else 1

    def _place(self, point: Point, dimensions: int | None = None) -> tuple[str, str]:
        """Elements from the tensor's first to where a point reads, by so many of its dimensions,
        and the condition that this is inside; empty if it always is."""
        e, node = self.e, self.node
        unsettled = [n for n, arg in enumerate(node.args) if self._unsettled(arg)]
        inside = e.inside(node.axes, point)
        parts, conditions = [], [inside] if inside else []
        for d in self.access.dimensions[:dimensions]:
            index = e.dimension_index(d.terms, d.constant, point)
            if d.gather is not None:
                index = f"({index} + {e.scalar(node.args[d.gather], point, {})})"
            wide = f"tw_index({index})" if d.gather in unsettled else f"(i64){index}"
            parts.append(f"{wide} * {d.stride}")
            if self.fill is not None:
                conditions += [f"{index} >= 0", f"{index} < {d.extent}"]
        return " + ".join(parts) or "0", " && ".join(conditions)

    def _unsettled(self, position: int) -> bool:
        """Whether a value may be one of two: what was loaded or chosen under a condition."""
        nodes = self.e.nodes
        found = (nodes[n].op for n in self.e.program.behind([position], lambda _: False))
        return any(
            isinstance(op, Load) or (isinstance(op, Map) and op.function == "where") for op in found
        )

    def _take(self, targets: Sequence[str], point: Point) -> None:
        """Neighbours in memory, or one element."""
        where, condition = self._place(point)
        if len(targets) > 1:
            self._take_words(dict(enumerate(targets)), len(targets), where, condition)
        else:
            self._take_one(targets[0], where, condition)

    def _take_one(self, target: str, where: str, condition: str) -> None:
        element = f"{self.e.w.pointer(self.access.tensor)}[{where}]"
        value = scalars.from_storage(element, self.node.dtype)
        text = f"({condition}) ? {value} : {self.outside}" if condition else value
        self.e.w.line(f"{target} = {text};")

    def _take_words(
        self, targets: Mapping[int, str], width: int, where: str, condition: str
    ) -> None:
        """Elements by their places among so many neighbours, of one access."""
        size = width * dtype_of(self.node.dtype).bytes
        kind, words = scalars.vector_type(size), self.e.w.name("w")
        value = f"tw_load_{size}({self.e.w.pointer(self.access.tensor)} + ({where}))"
        if condition:
            value = f"({condition}) ? {value} : {kind}{{}}"
        self.e.w.line(f"const {kind} {words} = {value};")
        for place, target in targets.items():
            value = scalars.element_of(words, size, place, self.node.dtype)
            if condition and self.outside not in ("0", "0.0f"):
                value = f"({condition}) ? {value} : {self.outside}"
            self.e.w.line(f"{target} = {value};")

    def _take_places(self, targets: Mapping[int, str], point: Point) -> None:
        """Places of one row, each once."""
        e = self.e
        accesses = {p: e.access(p) for p in targets}
        wanted = {p: access.dimensions[-1].constant for p, access in accesses.items()}
        where, condition = self._place(point, -1)
        row = e.w.name("row")
        e.w.line(f"const i64 {row} = {where};")
        for first, width in places_of(tuple(accesses.values())):
            here = {p: place - first for p, place in wanted.items() if 0 <= place - first < width}
            names = {place: targets[p] for p, place in here.items()}
            if width > 1:
                self._take_words(names, width, f"{row} + {first}", condition)
            else:
                self._take_one(names[0], f"{row} + {first}", condition)
