"""How an author writes a program: the graph `g`, its axes, tiles that behave like numbers.

The surface that operators import. Knows no target.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ir.axes import Axis, IndexLike, as_index, axis_names, described
from ir.dtypes import dtype_of, promote
from ir.errors import ProgramError, UsageError
from ir.given import given_number, given_tile
from ir.loops import loops_of
from ir.ops.base import Op, Scope, TensorSpec, TileType
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota
from ir.ops.recur import Before, Recur
from ir.ops.reduce import Carry, Contract, Now, Prior, Reduce
from ir.ops.store import Store
from ir.pack_stores import packed_bytes
from ir.packs import packed_shape
from ir.program import Node, Pin, Program, known
from ir.tiles import LOGICAL, Number, Operand, TensorHandle, Tile, apply, counted
from ir.values import Values


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

    @property
    def extents(self) -> Mapping[str, int]:
        return self._axes

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
            if isinstance(extent, bool) or not isinstance(extent, int) or extent < 0:
                raise UsageError(
                    f"{self._name}: axis {name}={extent!r}; an extent is a whole number >= 0"
                )
            self._axes[name] = extent
        return tuple(Axis(name, extent) for name, extent in extents.items())

    def axis(self, name: str, extent: int) -> Axis:
        """Declare one axis."""
        if not isinstance(name, str):
            raise ProgramError(f"{self._name}: axis {described(name)}: its name is no text")
        return self.axes(**{name: extent})[0]

    def names(self, what: str, axes: Axis | Sequence[Axis]) -> tuple[str, ...]:
        """Names of the axes that `what` is given; raises ProgramError for others than its own."""
        found = axis_names(f"{self._name}: {what}", axes)
        for axis in axes if isinstance(axes, (tuple, list)) else (axes,):
            assert isinstance(axis, Axis)
            have = self._axes.get(axis.name)
            if have is None:
                raise ProgramError(f"{self._name}: {what}: unknown axis {axis.name!r}")
            if have != axis.extent:
                raise ProgramError(
                    f"{self._name}: {what}: axis {axis.name} of extent {axis.extent} is another "
                    f"graph's; here it has {have}"
                )
        return found

    def input(
        self, name: str, dims: tuple[Axis, ...], dtype: str, values: Values | None = None
    ) -> Tile:
        """An input tensor with one axis per dimension, read whole; `values`: what it may hold."""
        axes = self.names(f"input {name}", dims)
        shape = tuple(self._axes[axis] for axis in axes)
        indices = tuple(Axis(axis, self._axes[axis]) for axis in axes)
        return self.tensor(name, shape, dtype, values=values)[indices]

    def tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        fill: float | None = None,
        values: Values | None = None,
    ) -> TensorHandle:
        """An input tensor to be read by subscripts; `fill` is its value outside.

        Elements of less than a byte lie side by side in bytes along the last dimension.
        """
        spec = self._declare(name, shape, dtype, "input", values)
        if fill is not None:
            fill = given_number(f"{self._name}: input {name}: fill", fill, dtype)
        return TensorHandle(self, spec, fill)

    def _declare(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        role: str,
        values: Values | None = None,
    ) -> TensorSpec:
        if not isinstance(name, str):
            raise ProgramError(f"{self._name}: {role} {described(name)}: its name is no text")
        if name in self._tensors:
            raise ProgramError(
                f"{self._name}: tensor {name} declared twice; a tensor that is read again is kept, "
                "x = g.tensor(...), and has subscripts"
            )
        if not isinstance(shape, (tuple, list)):
            raise ProgramError(f"{self._name}: {role} {name}: shape {described(shape)} is no tuple")
        if any(isinstance(size, bool) or not isinstance(size, int) or size < 0 for size in shape):
            sizes = ", ".join(described(size) for size in shape)
            why = "extents are whole numbers >= 0"
            raise UsageError(f"{self._name}: {role} {name} has shape ({sizes}); {why}")
        try:
            spec = TensorSpec(name, tuple(shape), dtype_of(dtype).name, role, values)
            if dtype_of(dtype).per_byte > 1:
                spec = self._packed(spec)
            if values is not None and not isinstance(values, Values):
                raise ProgramError(f"values={described(values)}; uniform(0, 1) and its like are")
            if values is not None:
                values.check(spec)
        except ProgramError as error:
            raise ProgramError(f"{self._name}: {role} {name}: {error}") from None
        self._tensors[name] = spec
        return spec

    def _packed(self, spec: TensorSpec) -> TensorSpec:
        """The bytes that elements of a tensor share."""
        shape = packed_shape(f"{self._name}: {spec.role} {spec.name}", spec.shape, spec.dtype)
        return TensorSpec(spec.name, shape, "u8", spec.role, spec.values, spec.dtype)

    def output(
        self, name: str, value: Tile, dtype: str | None = None, dims: tuple[Axis, ...] | None = None
    ) -> None:
        """Store `value` (cast to dtype if given) with dimensions `dims` (default: its axes).

        Elements of less than a byte lie side by side in bytes along the last one.
        """
        value = given_tile(f"{self._name}: output {name}", value)
        dtype = dtype or value.dtype
        if value.dtype != dtype:
            value = cast(value, dtype)
        axes = value.axes if dims is None else self.names(f"output {name}", dims)
        self._declare(name, tuple(self._axes[axis] for axis in axes), dtype, "output")
        if dtype_of(dtype).per_byte > 1:
            value, octets = packed_bytes(self, value, dtype, axes[-1])
            axes = (*axes[:-1], octets)
        self.add(Store(name, axes), value)

    def iota(self, axis: Axis) -> Tile:
        """The coordinate along an axis."""
        names = self.names("iota", axis)
        if len(names) != 1:
            raise ProgramError(f"{self._name}: iota: {len(names)} axes; it takes one")
        return self.add(Iota(*names))

    def coordinate(self, index: IndexLike) -> Tile:
        """The value of an axis, a whole number or an affine index expression, as i32."""
        index = as_index(index)
        result: Tile | None = None
        for axis, coefficient in index.terms:
            term = self.add(Iota(axis))
            term = term if coefficient == 1 else term * coefficient
            result = term if result is None else result + term
        if result is None:
            return self.constant(index.constant, "i32")
        return result + index.constant if index.constant else result

    def constant(self, value: Number, dtype: str) -> Tile:
        """A number as a tile of no axes; ProgramError if the dtype has no room for it."""
        return self.add(Constant(given_number(f"{self._name}: constant", value, dtype), dtype))

    def pin(self, decision: str, value: str | int | bool) -> None:
        """Fix a decision of the schedule space by name; the search works in the rest."""
        if not isinstance(decision, str):
            raise ProgramError(f"{self._name}: pin {described(decision)}: its name is no text")
        self._pins[decision] = value

    def state(
        self, along: Axis, axes: tuple[Axis, ...], first: Tile | Number = 0.0, dtype: str = "f32"
    ) -> Tile:
        """A state over `axes`, before each step along an axis; `recur` says what a step does.

        `first` is what it is before the first step, a number or a tile over `axes`.
        """
        (name,) = self.names("state", (along,))
        over = self.names(f"state along {name}", axes)
        start = first if isinstance(first, Tile) else self.constant(first, dtype)
        self._states += 1
        op = Before(name, over, f"s{self._states}")
        return self.add(op, start)

    def node(self, tile: Tile) -> tuple[Op, tuple[int, ...]]:
        """The op that made a tile, and the positions of its arguments."""
        node = self._nodes[tile.position]
        return node.op, node.args

    def whole_input(self, tile: Tile) -> str | None:
        """The input that a tile is, each dimension along an axis of its own; None if it is not."""
        node = self._nodes[tile.position]
        plain = tuple(Index(((axis, 1),)) for axis in node.axes)
        if not isinstance(node.op, Load) or node.op.index != plain:
            return None
        spec, shape = self._tensors[node.op.tensor], tuple(self._axes[axis] for axis in node.axes)
        return spec.name if spec.shape == shape and not spec.packs else None

    def type_of(self, tile: Tile) -> TileType:
        """The dtype and the axes of a tile."""
        return self._nodes[tile.position].type

    def add(self, op: Op, *args: Tile) -> Tile:
        """Append an op; an identical earlier one is reused."""
        for arg in args:
            if given_tile(f"{self._name}: {op.name}", arg).graph is not self:
                raise ProgramError(
                    f"{self._name}: {op.name}: an operand is a tile of another graph, "
                    f"{arg.graph.name}"
                )
        positions = tuple(arg.position for arg in args)
        known = self._known.get((op, positions))
        if known is not None:
            return Tile(self, known)
        self._nodes.append(Node(op, positions, self.inferred(op, *args)))
        self._known[(op, positions)] = len(self._nodes) - 1
        return Tile(self, len(self._nodes) - 1)

    def inferred(self, op: Op, *args: Tile) -> TileType:
        """The dtype and the axes of what an op would make of tiles; raises ProgramError."""
        scope = Scope(self._axes, self._tensors)
        try:
            return op.infer([self.type_of(arg) for arg in args], scope)
        except ProgramError as error:
            raise ProgramError(f"{self._name}: {error}") from None

    def program(self) -> Program:
        """The finished, checked program."""
        if not any(spec.role == "output" for spec in self._tensors.values()):
            raise ProgramError(f"{self._name}: no output; end with g.output(...)")
        pins: tuple[Pin, ...] = tuple(self._pins.items())
        extents = tuple(self._axes.items())
        tensors = tuple(self._tensors.values())
        made = Program(self._name, extents, tensors, self._live(), pins, inferred=True)
        loops_of(made)  # which refuses states without a step
        return known(made)

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


def contract(
    left: Tile, right: Tile, over: Axis | tuple[Axis, ...], acc: str | None = None
) -> Tile:
    """Sum of products over `over`; accumulates in f32 (ints: i32) unless `acc` says otherwise."""
    left, right = given_tile("contract", left), given_tile("contract", right)
    acc = acc or promote((left.dtype, right.dtype))
    return left.graph.add(Contract(axis_names("contract", over), acc), left, right)


def reduce(kind: str, value: Tile, over: Axis | tuple[Axis, ...]) -> Tile:
    """Reduce a tile; `kind` is sum, prod, max or min. Truth values are counted, or all or one of
    them are true."""
    graph = given_tile(f"reduce {kind}", value).graph
    found = graph.add(Reduce(kind, axis_names(f"reduce {kind}", over)), counted(value))
    return cast(found, "bool") if value.dtype == "bool" and kind in LOGICAL else found


def carry(
    kind: str, value: Tile, over: Axis, factor: Tile | None = None, addend: Tile | None = None
) -> Tile:
    """A reduction carried along `over` whose value may read the running values of other carries.

    When these move, the state first becomes factor * state + addend (see `ir.ops.reduce.Carry`).
    """
    extra = [tile for tile in (factor, addend) if tile is not None]
    (axis,) = axis_names(f"carry {kind}", (over,))
    op = Carry(kind, axis, factor is not None, addend is not None)
    return given_tile(f"carry {kind}", value).graph.add(op, value, *extra)


def now(state: Tile) -> Tile:
    """The running value of a carry, the current block included."""
    return given_tile("now", state).graph.add(Now(), state)


def prior(state: Tile) -> Tile:
    """The running value of a carry before the current block."""
    return given_tile("prior", state).graph.add(Prior(), state)


def cast(value: Tile, dtype: str) -> Tile:
    """Convert to `dtype`."""
    value = given_tile("cast", value)
    return value if value.dtype == dtype else value.graph.add(Cast(dtype), value)


def where(condition: Tile, yes: Operand, no: Operand) -> Tile:
    """Elementwise choice."""
    return apply("where", condition, yes, no)


def iota(graph: Graph, axis: Axis) -> Tile:
    """The coordinate along an axis, as `Graph.iota` gives it."""
    return graph.iota(axis)


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
        from ir.outside import refuse_outside
        from ir.registry import checked_arguments

        graph = Graph(self.name)
        self.function(graph, **checked_arguments(self, arguments))
        return refuse_outside(graph.program())

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """The best known kernel for these arrays, on them; see `ir.calling`."""
        from ir.calling import call_operator

        return call_operator(self, arrays, named)


def operator(function: Callable[..., None]) -> Operator:
    """Decorator: make an operator of a function whose first argument is the graph."""
    name = getattr(function, "__name__", type(function).__name__)
    return Operator(name if name.isidentifier() else UNNAMED, function)
