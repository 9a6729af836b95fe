"""A scatter: each point of the axes that are sent to themselves owns its part of the output."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ir.errors import ProgramError
from ir.ops.load import Index
from ir.ops.scatter import Scatter, nothing_sent
from ir.ops.store import Store
from ir.plain.block import Block
from ir.plain.code import Call, Element, Loop, Name, Number, PlainKernel, Scalar, Write
from ir.plain.scalars import both, call, convert, flat, inside, number, plus, times
from ir.plain.values import Point, Values
from ir.scalar import COMBINES


@dataclass(frozen=True, slots=True)
class _Share:
    """What a point owns of an axis of the output: `length` coordinates from `first` on."""

    axis: str
    point: tuple[Name, int]
    first: Scalar
    length: int
    even: bool  # all shares are as long as that


def scatter_kernel(values: Values, group: list[int], owners: int = 1) -> PlainKernel:
    """Fills the owned part with what nothing sent makes, and sends element after element.

    Where the owned axes have fewer than `owners` points, the longest other axis is shared out: each
    point goes through all that is sent, and takes what belongs to its share.
    """
    op, output = _checked(values, group)
    own = [axis for axis in op.axes if axis in op.owned]
    points, block = values.points(own), Block(values.names)
    share = _shared_out(values, block, op, owners)
    maker = _Scattering(values, group[0], op, output, share)
    maker.fill(block, points)
    args = values.program.nodes[group[0]].args
    sources = op.sources([values.program.nodes[arg].type for arg in args])
    values.looped(block, [axis for axis in sources if axis not in own], points, maker.send)
    return values.kernel(points, block, more=() if share is None else (share.point,))


def _shared_out(values: Values, block: Block, op: Scatter, owners: int) -> _Share | None:
    extents = values.program.axes
    free = [axis for axis in op.axes if axis not in op.owned]
    wanted = owners // math.prod(extents[axis] for axis in op.owned)
    if not free or wanted < 2:
        return None
    axis = max(free, key=lambda name: extents[name])
    length = -(-extents[axis] // wanted)
    count = -(-extents[axis] // length)
    name = Name(values.names.fresh("share"))
    first = block.named(times(name, length), "first")
    return _Share(axis, (name, count), first, length, count * length == extents[axis])


@dataclass(frozen=True, slots=True)
class _Scattering:
    """Makes the statements of a scatter."""

    values: Values
    position: int
    op: Scatter
    output: Store
    share: _Share | None

    def fill(self, block: Block, points: Point) -> None:
        """Write what is where nothing is sent."""
        free = [axis for axis in self.output.axes if axis not in points]
        if self.share is None:
            self.values.looped(block, free, points, self._start)
            return
        share, inner = self.share, block.inner()
        free.remove(share.axis)
        variable = block.variable(share.axis)
        place = inner.named(plus(share.first, variable), "p")
        body = inner if share.even else inner.inner()
        self.values.looped(body, free, {**points, share.axis: place}, self._start)
        if not share.even:
            below = inside(place, self.values.program.axes[share.axis], low=False)
            assert below is not None
            inner.branch(below, body)
        block.add(Loop(variable, share.length, inner.body))

    def _start(self, block: Block, at: Point) -> None:
        start = _start(self.op.kind, self.values.dtype(self.position))
        block.add(Write(self.output.tensor, self._where(at), start))

    def _where(self, places: Point) -> Scalar:
        shape = self.values.program.scope.tensors[self.output.tensor].shape
        return flat([places[axis] for axis in self.output.axes], shape)

    def send(self, block: Block, at: Point) -> None:
        """Combine one element with what it meets, if it is sent inside."""
        args = self.values.program.nodes[self.position].args
        places: dict[str, Scalar] = {}
        within: Scalar | None = None
        for axis, index in zip(self.op.axes, self.op.index, strict=True):
            places[axis] = block.named(self.values.place(block, index, args, at), "p")
            within = both(within, self._inside(axis, index, places[axis]))
        inner = block.inner()
        where = inner.named(self._where(places), "p")
        dtype = self.values.dtype(self.position)
        value = convert(self.values.value(inner, args[0], at), dtype)
        function = "or" if self.op.kind == "or" else COMBINES[self.op.kind].function
        new = call(function, Element(self.output.tensor, where, dtype), value)
        inner.add(Write(self.output.tensor, where, new))
        if within is None:
            block.statements.extend(inner.statements)
        else:
            block.branch(within, inner)

    def _inside(self, axis: str, index: Index, place: Scalar) -> Scalar | None:
        """The condition under which a coordinate is inside, and of the share."""
        low, high = index.bounds(self.values.program.scope)
        unknown, extent = index.gather is not None, self.values.program.axes[axis]
        found = inside(place, extent, unknown or low < 0, unknown or high >= extent)
        if self.share is None or axis != self.share.axis:
            return found
        begins = Call("le", (self.share.first, place), "bool")
        ends = Call("lt", (place, plus(self.share.first, number(self.share.length, "i64"))), "bool")
        return both(found, both(begins, ends))


def _start(kind: str, dtype: str) -> Number:
    """What is where nothing was sent, as `ir.ops.scatter` says."""
    return number(nothing_sent(kind, dtype), dtype)


def _checked(values: Values, group: list[int]) -> tuple[Scatter, Store]:
    """The scatter and where it is stored: at once, in the type that it is combined in."""
    program = values.program
    ops = [program.nodes[position].op for position in group]
    op = ops[0]
    assert isinstance(op, Scatter)
    what = f"{program.name}: scatter {op.kind} to {', '.join(op.axes)}"
    if len(group) > 1:
        raise ProgramError(f"{what}: a plain kernel computes one scatter, here are {len(group)}")
    users = [program.nodes[user].op for user in program.users(group[0])]
    stores = [op for _, op in program.stores()]
    store = stores[0]
    if len(stores) > 1 or users != stores or len(op.axes) != len(store.axes):
        raise ProgramError(f"{what}: a plain kernel stores the scatter, once, and nothing else")
    spec = program.scope.tensors[store.tensor]
    if spec.dtype != program.nodes[group[0]].dtype:
        raise ProgramError(
            f"{what}: combined in {program.nodes[group[0]].dtype}, stored as {spec.dtype}: each "
            "element sent would be rounded; store it wide, and cast what is stored"
        )
    return op, store
