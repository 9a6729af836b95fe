"""Values of a program's nodes at a point: what is elementwise is computed where it is read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ir.dtypes import compute_dtype, is_float, whole_range
from ir.errors import ProgramError
from ir.ops.base import TensorSpec
from ir.ops.fold import Fold
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.reduce import Contract, Reduce
from ir.ops.store import Store
from ir.plain.block import Block, Names
from ir.plain.code import (
    Array,
    Element,
    Loop,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Write,
)
from ir.plain.scalars import (
    both,
    call,
    cast,
    convert,
    flat,
    index,
    inside,
    merged,
    number,
    plus,
    special,
    times,
)
from ir.program import Node, Program
from ir.scalar import COMBINES

Point = Mapping[str, Scalar]  # axis -> coordinate
Given = Callable[[Block, Point], Scalar]


class Values:
    """Evaluates nodes at points. `given` says where nodes are that something else computes."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names = Names(spec.name for spec in program.tensors)
        self.given: dict[int, Given] = {}
        self.arrays = [
            Array(spec.name, spec.dtype, math.prod(spec.shape)) for spec in program.tensors
        ]
        self.parts: list[TensorSpec] = []  # tensors between the kernels of one step
        self._uses = Counter(arg for node in program.nodes for arg in node.args)

    def array(self, stem: str, dtype: str, size: int, place: str) -> Array:
        """A new array that is no tensor."""
        found = Array(self.names.fresh(stem), dtype, size, place)
        self.arrays.append(found)
        return found

    def part(
        self, count: int, shape: Sequence[int], dtype: str, stem: str = "parts",
        partly: bool = False,
    ) -> TensorSpec:  # fmt: skip
        """A new tensor of `count` parts of a shape; `partly`: not all of it is written."""
        found = TensorSpec(self.names.fresh(stem), (count, *shape), dtype, "output")
        self.parts.append(found)
        size = math.prod(found.shape)
        self.arrays.append(Array(found.name, dtype, size, partly=partly))
        return found

    def dtype(self, position: int) -> str:
        """The compute type of a node."""
        return compute_dtype(self.program.nodes[position].dtype)

    def value(self, block: Block, position: int, at: Point) -> Scalar:
        """A node's element at a point, computed in the block; of a compute type."""
        pending = [position]
        while pending:
            last = pending[-1]
            key = self._key(last, at)
            if block.find(key) is not None:
                pending.pop()
                continue
            missing = [a for a in self._alike(last) if block.find(self._key(a, at)) is None]
            if missing:
                pending.extend(missing)
                continue
            made = self._made(block, last, at)
            block.keep(key, block.named(made, often=self._uses[last] > 1))
        found = block.find(self._key(position, at))
        assert found is not None
        return found

    def _key(self, position: int, at: Point) -> tuple[int, tuple[Scalar, ...]]:
        node = self.program.nodes[position]
        for axis in node.axes:
            if axis not in at:
                raise ProgramError(
                    f"{self.program.name}: {_described(node)} is read where {axis} has no "
                    "coordinate; store it first, and read what is stored"
                )
        return position, tuple(at[axis] for axis in node.axes)

    def _alike(self, position: int) -> tuple[int, ...]:
        """The arguments that are read at the node's own point."""
        node = self.program.nodes[position]
        if position in self.given or not isinstance(node.op, Map | Cast):
            return ()
        return node.args

    def _made(self, block: Block, position: int, at: Point) -> Scalar:
        node = self.program.nodes[position]
        op = node.op
        if position in self.given:
            return self.given[position](block, at)
        if isinstance(op, Map):
            args = [self.value(block, arg, at) for arg in node.args]
            if op.dtype is not None:
                return special(op, args[0], self.program.nodes[node.args[0]].dtype)
            return call(op.function, *args)
        if isinstance(op, Cast):
            (arg,) = node.args
            return cast(self.value(block, arg, at), self.program.nodes[arg].dtype, op.dtype)
        if isinstance(op, Constant):
            return number(op.value, compute_dtype(op.dtype))
        if isinstance(op, Iota):
            return convert(at[op.axis], "i32")
        if isinstance(op, Load):
            return self.loaded(block, node, op, at)
        if isinstance(op, Read):
            return self._read(block, node, op, at)
        if isinstance(op, Contract | Reduce):
            return self._reduced(block, node, op, at)
        if isinstance(op, Fold) and not op.keep:
            return self._folded(block, node, op, at)
        raise ProgramError(
            f"{self.program.name}: a plain kernel computes no {_described(node)} where it is read; "
            "store it, and read what is stored"
        )

    # --- reads ------------------------------------------------------------------------------------

    def loaded(self, block: Block, node: Node, op: Load, at: Point) -> Scalar:
        """A tensor's element at a point."""
        spec = self.program.scope.tensors[op.tensor]
        places, within = self._places(block, node, op, spec.shape, at)
        dtype = compute_dtype(spec.dtype)
        element = Element(op.tensor, flat(places, spec.shape), dtype)
        return _guarded(block, within, op.fill, dtype, lambda _: element)

    def _read(self, block: Block, node: Node, op: Read, at: Point) -> Scalar:
        source = self.program.nodes[node.args[0]]
        shape = self.program.scope.shape(source.axes)
        places, within = self._places(block, node, op, shape, at)
        there = dict(zip(source.axes, places, strict=True))

        def element(inner: Block) -> Scalar:
            return self.value(inner, node.args[0], there)

        return _guarded(block, within, op.fill, compute_dtype(node.dtype), element)

    def _places(
        self, block: Block, node: Node, op: Load | Read, shape: Sequence[int], at: Point
    ) -> tuple[list[Scalar], Scalar | None]:
        """The index of each dimension, and the condition under which all are inside."""
        places: list[Scalar] = []
        within: Scalar | None = None
        for place, extent in zip(op.index, shape, strict=True):
            found = self.place(block, place, node.args, at)
            low, high = place.bounds(self.program.scope)
            unknown = place.gather is not None
            below, above = unknown or low < 0, unknown or high >= extent
            if op.fill is not None and (below or above):
                found = block.named(found, "p")
                within = both(within, inside(found, extent, below, above))
            places.append(found)
        return places, within

    def place(self, block: Block, place: Index, args: Sequence[int], at: Point) -> Scalar:
        """An index at a point."""
        found: Scalar = index(0)
        for axis, coefficient in place.terms:
            found = plus(found, times(at[axis], coefficient))
        if place.gather is not None:
            tile = self.value(block, args[place.gather], at)
            found = plus(found, convert(tile, "i64"))
        return plus(found, index(place.constant))

    # --- loops ------------------------------------------------------------------------------------

    def _reduced(self, block: Block, node: Node, op: Contract | Reduce, at: Point) -> Scalar:
        """One term after the other, in the type that the op accumulates in."""
        kind = "sum" if isinstance(op, Contract) else op.kind
        total = block.let(identity(kind, compute_dtype(node.dtype)), "sum")

        def term(inner: Block, there: Point) -> None:
            factors = [convert(self.value(inner, arg, there), total.dtype) for arg in node.args]
            more = factors[0] if len(factors) == 1 else call("mul", *factors)
            inner.assign(total, call(COMBINES[kind].function, total, more))

        self.looped(block, op.over, at, term)
        return total

    def _folded(self, block: Block, node: Node, op: Fold, at: Point) -> Scalar:
        """A fold among other things, of which other parts may be read at the same point."""
        key = (replace(op, part=0), node.args, tuple(at[axis] for axis in node.axes))
        known = block.find((key, op.part))
        if known is not None:
            return known
        states = self._merged(block, node, op, at)
        for part, state in enumerate(states):
            block.keep((key, part), state)
        return states[op.part]

    def _merged(self, block: Block, node: Node, op: Fold, at: Point) -> list[Name]:
        """The first elements, and with these one after the other."""
        rest = self.program.axes[op.axis] - 1
        first = {**at, op.axis: index(rest if op.backward else 0)}
        states = [block.let(self.value(block, arg, first), "state") for arg in node.args]
        if not rest:
            return states
        variable, inner = block.variable(op.axis), block.inner()
        there = {**at, op.axis: variable if op.backward else plus(variable, index(1))}
        right = [inner.named(self.value(inner, arg, there)) for arg in node.args]
        new = [inner.let(scalar, "new") for scalar in merged(op.how, states, right)]
        for state, scalar in zip(states, new, strict=True):
            inner.assign(state, scalar)
        block.add(Loop(variable, rest, inner.body, op.backward))
        return states

    def looped(
        self, block: Block, axes: Sequence[str], at: Point, make: Callable[[Block, Point], None]
    ) -> None:
        """Loops over axes in order, with what `make` puts into the innermost block."""
        if not axes:
            make(block, at)
            return
        axis, extent = axes[0], self.program.axes[axes[0]]
        if extent == 1:
            self.looped(block, axes[1:], {**at, axis: index(0)}, make)
            return
        variable, inner = block.variable(axis), block.inner()
        self.looped(inner, axes[1:], {**at, axis: variable}, make)
        block.add(Loop(variable, extent, inner.body))

    # --- results ----------------------------------------------------------------------------------

    def store(self, block: Block, position: int, at: Point) -> None:
        """Write an output's elements at a point, along all axes that the point leaves open."""
        op = self.program.nodes[position].op
        assert isinstance(op, Store)
        absent = [axis for axis in at if axis not in op.axes and self.program.axes[axis] > 1]
        if absent:
            raise ProgramError(
                f"{self.program.name}: store {op.tensor}: every point along {absent[0]} writes the "
                "same elements; compute it in a phase of its own"
            )
        open_axes = [axis for axis in op.axes if axis not in at]
        self.looped(block, open_axes, at, lambda b, there: self.write(b, position, there))

    def write(self, block: Block, position: int, at: Point) -> None:
        """Write an output's element at a point."""
        node = self.program.nodes[position]
        assert isinstance(node.op, Store)
        spec = self.program.scope.tensors[node.op.tensor]
        value = self.value(block, node.args[0], at)
        where = flat([at[axis] for axis in node.op.axes], spec.shape)
        block.add(Write(spec.name, where, convert(value, compute_dtype(spec.dtype))))

    def behind(self, group: Sequence[int]) -> list[int]:
        """The outputs that are made of some nodes."""
        found = set(group)
        for position, node in enumerate(self.program.nodes):
            if found & set(node.args):
                found.add(position)
        return [position for position, _ in self.program.stores() if position in found]

    def points(self, axes: Sequence[str]) -> dict[str, Name]:
        """Variables for independent points along axes, in the order of the first output."""
        first = next((op.axes for _, op in self.program.stores()), ())
        order = dict.fromkeys([*(axis for axis in first if axis in axes), *axes])
        return {axis: Name(self.names.fresh(f"i_{axis}")) for axis in order}

    def kernel(
        self,
        points: Mapping[str, Name],
        block: Block,
        cooperative: bool = False,
        more: tuple[tuple[Name, int], ...] = (),
    ) -> PlainKernel:
        """The kernel that runs a block at each point, of axes and of what has no axis (`more`)."""
        program, arrays = self.program, tuple(self.arrays)
        where = self.shared_out(points, more)
        return PlainKernel(program.name, program.tensors, arrays, where, block.body, cooperative)

    def shared_out(
        self, points: Mapping[str, Name], more: tuple[tuple[Name, int], ...]
    ) -> tuple[tuple[Name, int], ...]:
        """Points of axes and of what has no axis, the last axis last: neighbours are along it."""
        axes = [(name, self.program.axes[axis]) for axis, name in points.items()]
        return (*axes[:-1], *more, *axes[-1:])


def refuse_behind(program: Program, group: Sequence[int]) -> None:
    """Raises ProgramError where what is made of a group's results is not elementwise."""
    behind = set(group)
    for position, node in enumerate(program.nodes):
        if position in behind or behind.isdisjoint(node.args):
            continue
        if not isinstance(node.op, Map | Cast | Load | Store):
            raise ProgramError(
                f"{program.name}: {_described(node)} behind {program.nodes[group[0]].op.name}: a "
                "plain kernel computes what is elementwise there; store it, and go on from what "
                "is stored"
            )
        behind.add(position)


def _guarded(
    block: Block,
    within: Scalar | None,
    fill: float | None,
    dtype: str,
    element: Callable[[Block], Scalar],
) -> Scalar:
    """An element that is read under a condition only, and is `fill` elsewhere."""
    if within is None:
        return element(block)
    assert fill is not None
    found = block.let(number(fill, dtype))
    inner = block.inner()
    inner.assign(found, element(inner))
    block.branch(within, inner)
    return found


def identity(kind: str, dtype: str) -> Number:
    """What a reduction of nothing is, in a compute type."""
    value = COMBINES[kind].identity
    if dtype == "bool":
        return number(kind in ("prod", "min"), dtype)
    if math.isinf(value) and not is_float(dtype):
        return number(whole_range(dtype)[0 if value < 0 else 1], dtype)
    return number(value, dtype)


def _described(node: Node) -> str:
    """An op and its axes, for messages."""
    over = ", ".join(node.axes) or "no axis"
    return f"{node.op.name} over {over}"
