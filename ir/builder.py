"""How an author writes a program: the graph `g`, its axes, tiles that behave like numbers.

The surface that operators import. Knows no target.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from ir.axes import Axis, IndexExpression, as_index, axis_names, described
from ir.dtypes import compute_dtype, dtype_of, is_float, promote
from ir.errors import ProgramError, UsageError
from ir.ops.base import Op, Scope, TensorSpec, TileType
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.recur import Before, Recur
from ir.ops.reduce import Carry, Contract, Now, Prior, Reduce
from ir.ops.store import Store
from ir.program import Node, Pin, Program
from ir.values import Values

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
        if not isinstance(exponent, Real):
            raise ProgramError(f"tile ** {described(exponent)}: only positive whole exponents")
        if exponent < 1 or int(exponent) != exponent:
            raise ProgramError(f"tile ** {exponent}: only positive whole exponents")
        result = self
        for _ in range(int(exponent) - 1):
            result = result * self
        return result

    def __lt__(self, other: Operand) -> Tile:
        return apply("lt", self, other)

    def __le__(self, other: Operand) -> Tile:
        return apply("le", self, other)

    def __gt__(self, other: Operand) -> Tile:
        return apply("lt", other, self)

    def __ge__(self, other: Operand) -> Tile:
        return apply("le", other, self)

    def __and__(self, other: Operand) -> Tile:
        return apply("and", self, other)

    def __or__(self, other: Operand) -> Tile:
        return apply("or", self, other)

    def __invert__(self) -> Tile:
        return apply("not", self)

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
        if by_axis:
            places.update(zip(axis_names("read at", tuple(by_axis)), by_axis.values(), strict=True))
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
            fill = float(fill) if is_float(self.dtype) else int(fill)
        return self.graph.add(Read(tuple(index), fill), self, *tiles)


Operand = Tile | Number | Axis | IndexExpression


class TensorHandle:
    """An input tensor that is read by subscripts: `x[n, h + r, w + s, c]`."""

    __slots__ = ("fill", "graph", "spec")

    def __init__(self, graph: Graph, spec: TensorSpec, fill: float | None) -> None:
        self.graph = graph
        self.spec = spec
        self.fill = fill

    def __getitem__(self, subscripts: Any) -> Tile:
        parts = subscripts if isinstance(subscripts, tuple) else (subscripts,)
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


class Graph:
    """A program under construction."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._axes: dict[str, int] = {}
        self._tensors: dict[str, TensorSpec] = {}
        self._nodes: list[Node] = []
        self._known: dict[tuple[Op, tuple[int, ...]], int] = {}
        self._pins: dict[str, str | int | bool] = {}
        self._states = 0

    @property
    def name(self) -> str:
        return self._name

    @classmethod
    def like(
        cls,
        name: str,
        extents: Mapping[str, int],
        tensors: tuple[TensorSpec, ...],
        pins: tuple[Pin, ...],
    ) -> Graph:
        """A graph without nodes that has these axes, tensors and pins: what rewrites fill."""
        graph = cls(name)
        graph._axes = dict(extents)
        graph._tensors = {spec.name: spec for spec in tensors}
        graph._pins = dict(pins)
        return graph

    def axes(self, **extents: int) -> tuple[Axis, ...]:
        """Declare axes; returns them in order."""
        for name, extent in extents.items():
            if name in self._axes:
                raise ProgramError(f"{self._name}: axis {name} declared twice")
            if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
                raise UsageError(
                    f"{self._name}: axis {name}={extent!r}; an extent is a whole number >= 1"
                )
            self._axes[name] = extent
        return tuple(Axis(name, extent) for name, extent in extents.items())

    def axis(self, name: str, extent: int) -> Axis:
        """Declare one axis."""
        return self.axes(**{name: extent})[0]

    def input(
        self, name: str, dims: tuple[Axis, ...], dtype: str, values: Values | None = None
    ) -> Tile:
        """An input tensor with one axis per dimension, read whole; `values`: what it may hold."""
        axis_names(f"{self.name}: input {name}", dims)
        shape = tuple(axis.extent for axis in dims)
        return self.tensor(name, shape, dtype, values=values)[tuple(dims)]

    def tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        fill: float | None = None,
        values: Values | None = None,
    ) -> TensorHandle:
        """An input tensor to be read by subscripts; `fill` is its value outside."""
        spec = self._declare(name, shape, dtype, "input", values)
        if fill is not None:
            fill = float(fill) if is_float(dtype) else int(fill)
        return TensorHandle(self, spec, fill)

    def _declare(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        role: str,
        values: Values | None = None,
    ) -> TensorSpec:
        if name in self._tensors:
            raise ProgramError(f"{self._name}: tensor {name} declared twice")
        if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in shape):
            sizes = ", ".join(described(size) for size in shape)
            why = "extents are whole numbers >= 1"
            raise UsageError(f"{self._name}: {role} {name} has shape ({sizes}); {why}")
        try:
            spec = TensorSpec(name, tuple(shape), dtype_of(dtype).name, role, values)
            if values is not None:
                values.check(spec)
        except ProgramError as error:
            raise ProgramError(f"{self._name}: {role} {name}: {error}") from None
        self._tensors[name] = spec
        return spec

    def output(
        self, name: str, value: Tile, dtype: str | None = None, dims: tuple[Axis, ...] | None = None
    ) -> None:
        """Store `value` (cast to dtype if given) with dimensions `dims` (default: its axes)."""
        dtype = dtype or value.dtype
        if value.dtype != dtype:
            value = cast(value, dtype)
        axes = value.axes if dims is None else axis_names(f"{self.name}: output {name}", dims)
        self._declare(name, tuple(self._axes[axis] for axis in axes), dtype, "output")
        self.add(Store(name, axes), value)

    def iota(self, axis: Axis) -> Tile:
        """The coordinate along an axis."""
        return self.add(Iota(*axis_names("iota", axis)))

    def coordinate(self, index: IndexExpression) -> Tile:
        """The value of an affine index expression, as i32."""
        result: Tile | None = None
        for axis, coefficient in index.terms:
            term = self.add(Iota(axis))
            term = term if coefficient == 1 else term * coefficient
            result = term if result is None else result + term
        if result is None:
            return self.constant(index.constant, "i32")
        return result + index.constant if index.constant else result

    def constant(self, value: Number, dtype: str) -> Tile:
        return self.add(Constant(float(value) if is_float(dtype) else int(value), dtype))

    def pin(self, decision: str, value: str | int | bool) -> None:
        """Fix a decision of the schedule space by name; the search works in the rest."""
        self._pins[decision] = value

    def state(
        self, along: Axis, axes: tuple[Axis, ...], first: Tile | Number = 0.0, dtype: str = "f32"
    ) -> Tile:
        """A state over `axes`, before each step along an axis; `recur` says what a step does.

        `first` is what it is before the first step, a number or a tile over `axes`.
        """
        (name,) = axis_names("state", (along,))
        start = first if isinstance(first, Tile) else self.constant(first, dtype)
        self._states += 1
        op = Before(name, axis_names("state", axes), f"s{self._states}")
        return self.add(op, start)

    def node(self, tile: Tile) -> tuple[Op, tuple[int, ...]]:
        """The op that made a tile, and the positions of its arguments."""
        node = self._nodes[tile.position]
        return node.op, node.args

    def type_of(self, tile: Tile) -> TileType:
        return self._nodes[tile.position].type

    def add(self, op: Op, *args: Tile) -> Tile:
        """Append an op; an identical earlier one is reused."""
        positions = tuple(arg.position for arg in args)
        if any(arg.graph is not self for arg in args):
            raise ProgramError(f"{op.name}: a tile of another graph")
        known = self._known.get((op, positions))
        if known is not None:
            return Tile(self, known)
        scope = Scope(self._axes, self._tensors)
        try:
            result = op.infer([self._nodes[p].type for p in positions], scope)
        except ProgramError as error:
            raise ProgramError(f"{self._name}: {error}") from None
        self._nodes.append(Node(op, positions, result))
        self._known[(op, positions)] = len(self._nodes) - 1
        return Tile(self, len(self._nodes) - 1)

    def program(self) -> Program:
        """The finished, checked program."""
        if not any(spec.role == "output" for spec in self._tensors.values()):
            raise ProgramError(f"{self._name}: no output; end with g.output(...)")
        pins: tuple[Pin, ...] = tuple(self._pins.items())
        extents = tuple(self._axes.items())
        return Program(self._name, extents, tuple(self._tensors.values()), self._live(), pins)

    def _live(self) -> tuple[Node, ...]:
        """The nodes that an output depends on, steps of its states among them, renumbered."""
        steps: dict[int, list[int]] = {}
        pending: list[int] = []
        for position, node in enumerate(self._nodes):
            if isinstance(node.op, Recur):
                steps.setdefault(node.args[0], []).append(position)
            elif isinstance(node.op, Store):
                pending.append(position)
        needed: set[int] = set()
        while pending:
            position = pending.pop()
            if position not in needed:
                needed.add(position)
                pending.extend((*self._nodes[position].args, *steps.get(position, ())))
        new = {old: position for position, old in enumerate(sorted(needed))}
        kept = (self._nodes[old] for old in new)
        return tuple(Node(n.op, tuple(new[arg] for arg in n.args), n.type) for n in kept)


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
    if isinstance(value, float) and not is_float(dtype):
        dtype = "f32"
    return graph.constant(value, dtype)


def apply(function: str, *operands: Operand) -> Tile:
    """Apply a scalar function to tiles, axes (their coordinate) and numbers."""
    tiles = [value for value in operands if isinstance(value, Tile)]
    if not tiles:
        raise ProgramError(f"{function}: no tile among the operands")
    graph = tiles[0].graph
    kinds = [compute_dtype(tile.dtype) for tile in tiles if tile.dtype != "bool"]
    dtype = max(kinds, key=lambda name: dtype_of(name).rank, default="f32")
    return graph.add(Map(function), *(_lift(graph, value, dtype) for value in operands))


def contract(
    left: Tile, right: Tile, over: Axis | tuple[Axis, ...], acc: str | None = None
) -> Tile:
    """Sum of products over `over`; accumulates in f32 (ints: i32) unless `acc` says otherwise."""
    acc = acc or promote((left.dtype, right.dtype))
    return left.graph.add(Contract(axis_names("contract", over), acc), left, right)


def reduce(kind: str, value: Tile, over: Axis | tuple[Axis, ...]) -> Tile:
    """Reduce a tile; `kind` is sum, prod, max or min."""
    return value.graph.add(Reduce(kind, axis_names(f"reduce {kind}", over)), value)


def carry(
    kind: str, value: Tile, over: Axis, factor: Tile | None = None, addend: Tile | None = None
) -> Tile:
    """A reduction carried along `over` whose value may read the running values of other carries.

    When these move, the state first becomes factor * state + addend (see `ir.ops.reduce.Carry`).
    """
    extra = [tile for tile in (factor, addend) if tile is not None]
    (axis,) = axis_names(f"carry {kind}", (over,))
    op = Carry(kind, axis, factor is not None, addend is not None)
    return value.graph.add(op, value, *extra)


def now(state: Tile) -> Tile:
    """The running value of a carry, the current block included."""
    return state.graph.add(Now(), state)


def prior(state: Tile) -> Tile:
    """The running value of a carry before the current block."""
    return state.graph.add(Prior(), state)


def cast(value: Tile, dtype: str) -> Tile:
    """Convert to `dtype`."""
    return value if value.dtype == dtype else value.graph.add(Cast(dtype), value)


def where(condition: Tile, yes: Operand, no: Operand) -> Tile:
    """Elementwise choice."""
    return apply("where", condition, yes, no)


def iota(graph: Graph, axis: Axis) -> Tile:
    return graph.iota(axis)


def maximum(left: Operand, right: Operand) -> Tile:
    return apply("max", left, right)


def minimum(left: Operand, right: Operand) -> Tile:
    return apply("min", left, right)


def _unary(function: str) -> Callable[[Tile], Tile]:
    def call(value: Tile) -> Tile:
        return apply(function, value)

    call.__name__ = function
    call.__doc__ = f"Elementwise {function}."
    return call


exp, log, sqrt, rsqrt = _unary("exp"), _unary("log"), _unary("sqrt"), _unary("rsqrt")
tanh, sigmoid, erf, absolute = _unary("tanh"), _unary("sigmoid"), _unary("erf"), _unary("abs")


def relu(value: Tile) -> Tile:
    return maximum(value, 0.0)


def silu(value: Tile) -> Tile:
    return value * sigmoid(value)


def gelu(value: Tile) -> Tile:
    """The exact GELU: x / 2 * (1 + erf(x / sqrt 2))."""
    return value * 0.5 * (1.0 + erf(value * 0.7071067811865476))


UNNAMED = "unnamed"  # what a lambda is called


@dataclass(frozen=True)
class Operator:
    """A named function that builds programs."""

    name: str
    function: Callable[..., None]

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """What the operator takes, after the graph itself."""
        return dict(list(inspect.signature(self.function).parameters.items())[1:])

    def build(self, **arguments: Any) -> Program:
        """Build the program; raises UsageError for unknown or missing arguments."""
        from ir.registry import checked_arguments

        graph = Graph(self.name)
        self.function(graph, **checked_arguments(self, arguments))
        return graph.program()


def operator(function: Callable[..., None]) -> Operator:
    """Decorator: make an operator of a function whose first argument is the graph."""
    name = getattr(function, "__name__", type(function).__name__)
    return Operator(name if name.isidentifier() else UNNAMED, function)
