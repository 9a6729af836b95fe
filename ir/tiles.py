"""Tiles while a program is built: they behave like numbers, and operators apply by axis name.

Knows a graph only as what its tiles are added to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeGuard

from ir.axes import Axis, IndexExpression, as_index, axis_names, described
from ir.dtypes import compute_dtype, dtype_of, is_float, whole_range
from ir.errors import ProgramError
from ir.given import given_number
from ir.ops.base import TensorSpec
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Map
from ir.ops.read import Read
from ir.packs import read_packed
from ir.scalar import scalar_function

if TYPE_CHECKING:
    from ir.builder import Graph

Number = int | float


class Tile:
    """A tile value of a graph under construction; operators apply elementwise, by axis name."""

    __slots__ = ("graph", "position")

    def __init__(self, graph: Graph, position: int) -> None:
        self.graph = graph
        self.position = position

    @property
    def dtype(self) -> str:
        return self.graph.type_of(self).dtype

    @property
    def axes(self) -> tuple[str, ...]:
        return self.graph.type_of(self).axes

    def __add__(self, other: Operand) -> Tile:
        return apply("add", self, other)

    def __radd__(self, other: Operand) -> Tile:
        return apply("add", other, self)

    def __sub__(self, other: Operand) -> Tile:
        return apply("sub", self, other)

    def __rsub__(self, other: Operand) -> Tile:
        return apply("sub", other, self)

    def __mul__(self, other: Operand) -> Tile:
        return apply("mul", self, other)

    def __rmul__(self, other: Operand) -> Tile:
        return apply("mul", other, self)

    def __truediv__(self, other: Operand) -> Tile:
        return apply("div", self, other)

    def __rtruediv__(self, other: Operand) -> Tile:
        return apply("div", other, self)

    def __neg__(self) -> Tile:
        return apply("neg", self)

    def __pow__(self, exponent: int) -> Tile:
        if not (_is_number(exponent) and exponent >= 1 and exponent % 1 == 0):
            said = f"tile ** {described(exponent)}: only positive whole exponents"
            raise ProgramError(said + _instead_of(exponent))
        result = self
        for _ in range(int(exponent) - 1):
            result = result * self
        return result

    def __rpow__(self, base: object) -> Tile:
        write = f"; write exp(tile * math.log({base}))" if _is_number(base) and base > 0 else ""
        raise ProgramError(f"{described(base)} ** tile: only whole numbers are exponents{write}")

    def __lt__(self, other: Operand) -> Tile:
        return apply("lt", self, other)

    def __le__(self, other: Operand) -> Tile:
        return apply("le", self, other)

    def __gt__(self, other: Operand) -> Tile:
        return apply("lt", other, self)

    def __ge__(self, other: Operand) -> Tile:
        return apply("le", other, self)

    def __mod__(self, other: Operand) -> Tile:
        return remainder(self, other)

    def __rmod__(self, other: Operand) -> Tile:
        return remainder(other, self)

    def __floordiv__(self, other: Operand) -> Tile:
        return quotient(self, other)

    def __rfloordiv__(self, other: Operand) -> Tile:
        return quotient(other, self)

    def __lshift__(self, other: Operand) -> Tile:
        return apply("shl", self, other)

    def __rlshift__(self, other: Operand) -> Tile:
        return apply("shl", other, self)

    def __rshift__(self, other: Operand) -> Tile:
        return apply("shr", self, other)

    def __rrshift__(self, other: Operand) -> Tile:
        return apply("shr", other, self)

    def __and__(self, other: Operand) -> Tile:
        return _joined("and", "bitand", self, other)

    __rand__ = __and__

    def __or__(self, other: Operand) -> Tile:
        return _joined("or", "bitor", self, other)

    __ror__ = __or__

    def __xor__(self, other: Operand) -> Tile:
        return apply("xor", self, other)

    __rxor__ = __xor__

    def __invert__(self) -> Tile:
        return apply("not", self) if self.dtype == "bool" else apply("xor", self, -1)

    def __abs__(self) -> Tile:
        return apply("abs", self)

    def __round__(self, digits: None = None) -> Tile:
        if digits is not None:
            raise ProgramError(f"{self.graph.name}: round(tile, {digits}): to whole numbers only")
        return apply("round", self)

    def __floor__(self) -> Tile:
        return apply("floor", self)

    def __ceil__(self) -> Tile:
        return apply("ceil", self)

    def __trunc__(self) -> Tile:
        return apply("trunc", self)

    def __eq__(self, other: Operand) -> Tile:  # type: ignore[override]
        return apply("eq", self, other)

    def __ne__(self, other: Operand) -> Tile:  # type: ignore[override]
        return ~apply("eq", self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise ProgramError(
            f"{self.graph.name}: a tile is neither true nor false while the program is built; "
            "where(condition, yes, no) chooses, and & | ~ join conditions"
        )

    def __getitem__(self, subscripts: Any) -> Tile:
        raise ProgramError(
            f"{self.graph.name}: a computed tile has no subscripts; it is read by its axes, as in "
            "tile.at(i=i + 1, fill=0)"
        )

    def at(
        self, by_axis: Mapping[Axis, Operand] | None = None, *, fill: float | None = None,
        **places: Operand,
    ) -> Tile:  # fmt: skip
        """The tile read elsewhere: `x.at(t=t - 1, fill=0)`, `x.at(i=j)`, `x.at(row=index_tile)`.

        An axis that is not named is read at itself. `fill` is the value outside; without it every
        index has to be inside. `x.at({i: j})` is for axes whose names the caller does not know.
        """
        if by_axis is not None:
            places = _places(by_axis, places)
        index: list[Index] = []
        tiles: list[Tile] = []
        for axis in places:
            if axis not in self.axes:
                have = ", ".join(self.axes) or "none"
                raise ProgramError(
                    f"{self.graph.name}: read at {axis}: no axis of the tile, whose axes are {have}"
                )
        for axis in self.axes:
            place = places.get(axis)
            if isinstance(place, Tile):
                index.append(Index(gather=1 + len(tiles)))
                tiles.append(place)
            elif place is None:
                index.append(Index(((axis, 1),)))
            else:
                expression = as_index(place)  # type: ignore[arg-type]
                index.append(Index(expression.terms, expression.constant))
        if fill is not None:
            fill = given_number(f"{self.graph.name}: read: fill", fill, self.dtype)
        read, tensor = Read(tuple(index), fill), self.graph.whole_input(self)
        if tensor is None:
            return self.graph.add(read, self, *tiles)
        self.graph.inferred(read, self, *tiles)  # says what is wrong in the words of tiles
        loads = (one if one.gather is None else Index(gather=one.gather - 1) for one in index)
        return self.graph.add(Load(tensor, tuple(loads), fill), *tiles)


Operand = Tile | Number | Axis | IndexExpression


def _places(by_axis: Mapping[Axis, Operand], named: Mapping[str, Operand]) -> dict[str, Operand]:
    """Where each axis is read, of axes given as such and by name."""
    if not isinstance(by_axis, Mapping):
        raise ProgramError(f"read at {described(by_axis)}: x.at(i=place), or x.at({{axis: place}})")
    found = dict(zip(axis_names("read at", tuple(by_axis)), by_axis.values(), strict=True))
    twice = sorted(found.keys() & named.keys())
    if twice:
        raise ProgramError(f"read at {twice[0]}: the axis is given twice")
    return {**found, **named}


class TensorHandle:
    """An input tensor that is read by subscripts: `x[n, h + r, w + s, c]`."""

    __slots__ = ("fill", "graph", "spec")

    def __init__(self, graph: Graph, spec: TensorSpec, fill: float | None) -> None:
        self.graph = graph
        self.spec = spec
        self.fill = fill

    def __getitem__(self, subscripts: Any) -> Tile:
        parts = subscripts if isinstance(subscripts, tuple) else (subscripts,)
        if self.spec.packs:
            plain = [part if isinstance(part, Tile) else as_index(part) for part in parts]
            return read_packed(self.graph, self.spec, plain, self.fill)
        index: list[Index] = []
        tiles: list[Tile] = []
        for part in parts:
            if isinstance(part, Tile):
                index.append(Index(gather=len(tiles)))
                tiles.append(part)
            else:
                expression = as_index(part)
                index.append(Index(expression.terms, expression.constant))
        return self.graph.add(Load(self.spec.name, tuple(index), self.fill), *tiles)


def _lift(graph: Graph, value: Operand, dtype: str) -> Tile:
    if isinstance(value, Tile):
        return value
    if isinstance(value, (Axis, IndexExpression)):
        return graph.coordinate(as_index(value))
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ProgramError(
            f"{graph.name}: {described(value)} is no operand; tiles, axes and numbers are, and "
            "conditions are comparisons of tiles, as in g.iota(i) < 3"
        )
    if is_float(dtype):
        return graph.constant(value, dtype)
    if isinstance(value, float):
        return graph.constant(value, "f32")
    for wide in (dtype, "i64"):
        low, high = whole_range(wide)
        if low <= value <= high:
            return graph.constant(value, wide)
    raise ProgramError(f"{graph.name}: {described(value)} has no room in i64, the widest integer")


LOGICAL = {"max": "or", "min": "and"}  # what functions and merges of truth values alone are
_COUNTED = "add sub mul neg abs floor ceil trunc round"
ARITHMETIC = frozenset(_COUNTED.split())


def counted(value: Tile) -> Tile:
    """Truth values as 0 and 1; others as they are."""
    return value.graph.add(Cast("i32"), value) if value.dtype == "bool" else value


def apply(function: str, *operands: Operand) -> Tile:
    """Apply a scalar function to tiles, axes (their coordinate) and numbers."""
    tiles = [value for value in operands if isinstance(value, Tile)]
    if not tiles:
        raise ProgramError(
            f"{function}: no tile among the operands; g.coordinate(...) makes one of an index"
        )
    graph = tiles[0].graph
    if len(tiles) == len(operands) and all(tile.dtype == "bool" for tile in tiles):
        if function in LOGICAL:
            return graph.add(Map(LOGICAL[function]), *tiles)
        if function in ARITHMETIC:
            return graph.add(Map(function), *map(counted, tiles))
    kinds = [compute_dtype(tile.dtype) for tile in tiles if tile.dtype != "bool"]
    alone = "i32" if scalar_function(function).is_whole else "f32"
    dtype = max(kinds, key=lambda name: dtype_of(name).rank, default=alone)
    return graph.add(Map(function), *(_lift(graph, value, dtype) for value in operands))


def _joined(logical: str, bitwise: str, left: Tile, right: Operand) -> Tile:
    """Of two truth values one, of whole numbers their bits."""
    truth = all(isinstance(one, Tile) and one.dtype == "bool" for one in (left, right))
    return apply(logical if truth else bitwise, left, right)


def _is_number(value: object) -> TypeGuard[Number]:
    return isinstance(value, Real) and not isinstance(value, bool)


def _instead_of(exponent: object) -> str:
    """What says a power that is no product of a tile with itself."""
    if isinstance(exponent, Tile):
        return "; write exp(log(tile) * exponent)"
    if not _is_number(exponent) or not math.isfinite(exponent):
        return ""
    roots = {0.5: "sqrt(tile)", -0.5: "rsqrt(tile)", -1: "1 / tile", 0: "1"}
    whole = f"1 / tile ** {-exponent:g}" if exponent % 1 == 0 else f"exp(log(tile) * {exponent})"
    return f"; write {roots.get(exponent, whole)}"


def _power(value: Operand) -> int | None:
    """The exponent of a number that is a power of two."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        return None
    return value.bit_length() - 1 if value & (value - 1) == 0 else None


def remainder(value: Operand, divisor: Operand) -> Tile:
    """value % divisor of whole numbers, with the divisor's sign as in Python; 0 where that is 0."""
    if _power(divisor) is not None:
        return apply("bitand", value, divisor - 1)
    return apply("mod", value, divisor)


def quotient(value: Operand, divisor: Operand) -> Tile:
    """value // divisor of whole numbers, rounded down as in Python; 0 where the divisor is 0."""
    power = _power(divisor)
    return apply("floordiv", value, divisor) if power is None else apply("shr", value, power)
