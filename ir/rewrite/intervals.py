"""Interval arithmetic: the least and the most of whole-numbered expressions in blocks of points.

Along some axes points are taken in blocks; of what is read there the least and the most of a block
are found by reductions, of a coordinate they are known, and functions are applied to both ends
(Moore, 1966). A truth value lies between `least`, which says that it holds at every point of a
block, and `most`, which says that it may. Numbers are f64, in which sums and products of 32 bits
are exact; what would not fit the expression's own type may be any number of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce as folded

from ir.axes import Axis
from ir.builder import Graph, cast, reduce, where
from ir.dtypes import dtype_of, whole_range
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.program import Program
from ir.tiles import Tile, apply

NUMBER = "f64"
_FAR = 2.0**40  # beyond all numbers of 32 bits
READ = "i32"  # the type in which the least and the most of what is read are found


@dataclass(frozen=True, slots=True)
class Blocks:
    """An axis in blocks: which block, and which point of it, are axes of their own."""

    outer: Axis
    inner: Axis
    extent: int

    @property
    def length(self) -> int:
        return self.inner.extent

    @property
    def is_ragged(self) -> bool:
        return self.outer.extent * self.length > self.extent

    @property
    def terms(self) -> tuple[tuple[str, int], ...]:
        """The point, of both axes."""
        return ((self.outer.name, self.length), (self.inner.name, 1))


@dataclass(frozen=True, slots=True)
class Interval:
    """Two numbers, or two truth values: none of the second holds where the first does not."""

    least: Tile
    most: Tile


class Intervals:
    """Intervals of a program's values, in `graph`, where `made` are the values themselves."""

    def __init__(
        self, program: Program, graph: Graph, made: Mapping[int, Tile], blocks: Mapping[str, Blocks]
    ) -> None:
        self.program, self.graph, self.made, self.blocks = program, graph, made, blocks
        self._known: dict[int, Interval | None] = {}

    def of(self, position: int) -> Interval | None:
        """That of a node; None where nothing is known."""
        if position not in self._known:
            self._known[position] = self._of(position)
        return self._known[position]

    def _of(self, position: int) -> Interval | None:
        node = self.program.nodes[position]
        if not _is_whole(node.dtype):
            return None
        if not self.blocks.keys() & set(node.axes):
            same = self._number(self.made[position])
            return Interval(same, same)
        if isinstance(node.op, Iota):
            return self._coordinate(self.blocks[node.op.axis])
        if isinstance(node.op, Load):
            return self._read(node.op) if not node.args else None
        if isinstance(node.op, Cast):
            return self._fitting(self.of(node.args[0]), node.dtype)
        if not isinstance(node.op, Map):
            return None
        if node.op.function == "shr":
            return self._shifted(node.args[0], node.args[1], node.dtype)
        return self._mapped(node.op.function, [self.of(arg) for arg in node.args], node.dtype)

    def _shifted(self, position: int, by: int, dtype: str) -> Interval | None:
        """Of what is shifted by a number: its quotient by a power of two."""
        found, op = self.of(position), self.program.nodes[by].op
        if found is None or not isinstance(op, Constant) or not 0 <= op.value < 31:
            return None
        divisor = self.graph.constant(2.0**op.value, NUMBER)
        return self._fitting(_quotient(found, Interval(divisor, divisor)), dtype)

    def _number(self, tile: Tile) -> Tile:
        return tile if tile.dtype == "bool" else cast(tile, NUMBER)

    def _coordinate(self, blocks: Blocks) -> Interval:
        first = self.graph.iota(blocks.outer) * blocks.length
        last = apply("min", first + (blocks.length - 1), blocks.extent - 1)
        return Interval(cast(first, NUMBER), cast(last, NUMBER))

    def _read(self, op: Load) -> Interval:
        """The least and the most of what is read in a block."""
        index = tuple(self._in_blocks(one) for one in op.index)
        within = [b for axis, b in self.blocks.items() if _varies(op, axis)]
        ragged = [blocks for blocks in within if blocks.is_ragged]
        fill = 0.0 if ragged and op.fill is None else op.fill
        value = self.graph.add(Load(op.tensor, index, fill))
        truth, value = value.dtype == "bool", cast(value, READ)
        ends = []
        for kind, neutral in zip(("min", "max"), reversed(whole_range(READ)), strict=True):
            here = value
            for blocks in ragged:
                here = where(self._is_inside(blocks), here, neutral)
            end = reduce(kind, here, tuple(blocks.inner for blocks in within))
            ends.append(end > 0 if truth else cast(end, NUMBER))
        return Interval(*ends)

    def _is_inside(self, blocks: Blocks) -> Tile:
        first = self.graph.iota(blocks.outer) * blocks.length
        return first + self.graph.iota(blocks.inner) < blocks.extent

    def _in_blocks(self, index: Index) -> Index:
        terms: dict[str, int] = {}
        for axis, factor in index.terms:
            blocks = self.blocks.get(axis)
            for name, step in blocks.terms if blocks else ((axis, 1),):
                terms[name] = terms.get(name, 0) + step * factor
        return Index(tuple(terms.items()), index.constant)

    def _mapped(
        self, function: str, args: Sequence[Interval | None], dtype: str
    ) -> Interval | None:
        if function in ("and", "or"):
            return self._joined(function, args)
        known = [arg for arg in args if arg is not None]
        if len(known) < len(args) or function not in _FUNCTIONS:
            return None
        found = _FUNCTIONS[function](*known)
        return found if dtype == "bool" else self._fitting(found, dtype)

    def _joined(self, function: str, args: Sequence[Interval | None]) -> Interval:
        """Of two truth values, of which nothing may be known of one or both."""
        no, yes = (self.graph.constant(truth, "bool") for truth in (0, 1))
        ends = [(no, yes) if arg is None else (arg.least, arg.most) for arg in args]
        return Interval(*(apply(function, left, right) for left, right in zip(*ends, strict=True)))

    def _fitting(self, found: Interval | None, dtype: str) -> Interval | None:
        """An interval of numbers as one of a type's: where they do not fit, of all of them."""
        if found is None or dtype == "bool" or found.least.dtype == "bool":
            return None
        low, high = whole_range(dtype)
        fits = (found.least >= float(low)) & (found.most <= float(high))
        return Interval(where(fits, found.least, float(low)), where(fits, found.most, float(high)))


def _varies(op: Load, axis: str) -> bool:
    return any(axis == name for index in op.index for name, _ in index.terms)


def _is_whole(dtype: str) -> bool:
    """Whether a type is of whole numbers of which i32 holds all, or of truth values."""
    row = dtype_of(dtype)
    return row.kind == "bool" or (row.kind in ("int", "uint") and _fits(dtype))


def _fits(dtype: str) -> bool:
    (low, high), (least, most) = whole_range(dtype), whole_range(READ)
    return least <= low and high <= most


def _least(*tiles: Tile) -> Tile:
    return folded(lambda left, right: apply("min", left, right), tiles)


def _most(*tiles: Tile) -> Tile:
    return folded(lambda left, right: apply("max", left, right), tiles)


def _product(a: Interval, b: Interval) -> Interval:
    ends = [x * y for x in (a.least, a.most) for y in (b.least, b.most)]
    return Interval(_least(*ends), _most(*ends))


def _equal(a: Interval, b: Interval) -> Interval:
    same = (a.least == a.most) & (b.least == b.most) & (a.least == b.least)
    return Interval(same, (a.least <= b.most) & (b.least <= a.most))


def _not(a: Interval) -> Interval:
    return Interval(~a.most, ~a.least)


def _chosen(condition: Interval, a: Interval, b: Interval) -> Interval:
    return Interval(_least(a.least, b.least), _most(a.most, b.most))


def _quotient(a: Interval, b: Interval) -> Interval:
    """Rounded down; of a divisor that may be 0 or less, any number."""
    divisor = Interval(apply("max", b.least, 1.0), apply("max", b.most, 1.0))
    ends = [
        apply("floor", x / y)
        for x in (a.least, a.most)
        for y in (divisor.least, divisor.most)
    ]  # fmt: skip
    known = b.least > 0.0
    return Interval(where(known, _least(*ends), -_FAR), where(known, _most(*ends), _FAR))


def _remainder(a: Interval, b: Interval) -> Interval:
    """What a known divisor leaves, of numbers between two of its multiples."""
    divisor = apply("max", b.least, 1.0)
    first, last = apply("floor", a.least / divisor), apply("floor", a.most / divisor)
    known = (b.least > 0.0) & (b.least == b.most)
    same = known & (first == last)
    least = where(same, a.least - first * divisor, where(known, 0.0, -_FAR))
    most = where(same, a.most - first * divisor, where(known, divisor - 1.0, _FAR))
    return Interval(least, most)


def _magnitude(a: Interval) -> Interval:
    beyond = _most(a.least, -a.most)
    return Interval(_most(beyond, beyond * 0.0), _most(-a.least, a.most))


_FUNCTIONS: Mapping[str, Callable[..., Interval]] = {
    "add": lambda a, b: Interval(a.least + b.least, a.most + b.most),
    "sub": lambda a, b: Interval(a.least - b.most, a.most - b.least),
    "mul": _product,
    "floordiv": _quotient,
    "mod": _remainder,
    "neg": lambda a: Interval(-a.most, -a.least),
    "abs": _magnitude,
    "min": lambda a, b: Interval(_least(a.least, b.least), _least(a.most, b.most)),
    "max": lambda a, b: Interval(_most(a.least, b.least), _most(a.most, b.most)),
    "where": _chosen,
    "lt": lambda a, b: Interval(a.most < b.least, a.least < b.most),
    "le": lambda a, b: Interval(a.most <= b.least, a.least <= b.most),
    "eq": _equal,
    "ne": lambda a, b: _not(_equal(a, b)),
    "not": _not,
}
