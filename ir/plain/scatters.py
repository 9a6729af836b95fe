"""A scatter: each point of the axes that are sent to themselves owns its part of the output."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ir.errors import ProgramError
from ir.merges import NAMED, merge_of
from ir.ops.load import Index
from ir.ops.scatter import Scatter, nothing_sent
from ir.ops.store import Store
from ir.plain.block import Block
from ir.plain.code import (
    Accumulate,
    Call,
    Combine,
    Element,
    Loop,
    Name,
    Number,
    PlainKernel,
    Scalar,
    Spread,
    Write,
)
from ir.plain.gathered import Gathered, fits_a_group, under, workers_of
from ir.plain.ordered import Ordered, plan_of
from ir.plain.pieces import Choices, Piece, Ways, step
from ir.plain.scalars import both, call, convert, flat, inside, number, plus, times
from ir.plain.values import Point, Values
from ir.program import Program
from ir.scalar import COMBINES


@dataclass(frozen=True, slots=True)
class _Share:
    """What a point owns of an axis of the output; `owned`: of one that is sent to itself."""

    piece: Piece
    first: Scalar
    owned: bool

    @property
    def point(self) -> tuple[Name, int]:
        return self.piece.point


def scatter_kernels(values: Values, group: list[int], ways: Ways) -> tuple[PlainKernel, ...]:
    """Fills what is owned with what nothing sent makes, and sends element after element.

    Ordered, elements are sorted by where they go before. In pieces, each fills and sends to a part
    of its own, and what the parts hold is merged in order, by a kernel behind. Atomic, all elements
    are sent at once, behind a kernel that fills; or shared, to what groups combine by themselves.
    Private, each of a group's workers combines by itself.
    """
    op, output = _checked(values, group)
    if ways.ordered and plan_of(values.program, group[0]) is not None:
        return Ordered(values, group[0], op, output).kernels()
    if output is None:
        return _behind(values, group[0], op, ways)
    return _kernels(values, group, op, output, ways)


def _behind(values: Values, position: int, op: Scatter, ways: Ways) -> tuple[PlainKernel, ...]:
    """The kernels of a scatter to a tensor of its own, and of what is elementwise behind it."""
    program, dtype = values.program, values.dtype(position)
    axes = next(store.axes for _, store in program.stores())
    sums = values.part(1, program.scope.shape(axes), dtype, "sums")
    kernels = _kernels(values, [position], op, Store(sums.name, axes), ways)
    block, at = Block(values.names), values.points(axes)
    where = flat([at[axis] for axis in axes], sums.shape[1:])
    values.given[position] = lambda inner, there: Element(sums.name, where, dtype)
    for store, _ in program.stores():
        values.write(block, store, at)
    points = [(name, program.axes[axis]) for axis, name in at.items()]
    return (*kernels, step(values, block, points))


def _kernels(
    values: Values, group: list[int], op: Scatter, output: Store, ways: Ways
) -> tuple[PlainKernel, ...]:
    """The kernels of a scatter that is stored as it is."""
    args = values.program.nodes[group[0]].args
    sources = op.sources([values.program.nodes[arg].type for arg in args])
    piece, axis = _pieces(values, op, sources, ways), cut_axis(values.program, op, sources)
    maker = Scattering(values, group[0], op, output, None if ways.shared else piece)
    workers = workers_of(values.program, group[0])
    if ways.private and workers and axis is not None:
        return (Gathered(maker, piece, axis).in_order(workers), *maker.merged())
    if ways.atomic:
        if ways.shared and axis is not None and fits_a_group(values.program, group[0]):
            return (maker.filled(), Gathered(maker, piece, axis).at_once())
        return (maker.filled(), maker.combined(sources), *maker.merged())
    inner = _inner_axis(op, output, sources) if ways.inner else None
    own = [] if ways.inner else [axis for axis in op.axes if axis in op.owned]
    points, block = values.points(own), Block(values.names)
    maker.share_out(block, ways.owners, own, inner)
    maker.fill(block, points)
    maker.sent(block, [axis for axis in sources if axis not in own], points, inner)
    more = () if maker.share is None else (maker.share.point,)
    if maker.piece is None and not values.parts:
        return (values.kernel(points, block, more=more),)
    parts = () if maker.piece is None else (maker.piece.point,)
    where = (*parts, *values.shared_out(points, more))
    return (step(values, block, where), *maker.merged())


def scatter_choices(program: Program, group: list[int]) -> Choices:
    """How a scatter may be cut."""
    node = program.nodes[group[0]]
    assert isinstance(node.op, Scatter)
    op, extents = node.op, program.axes
    sources = op.sources([program.nodes[arg].type for arg in node.args])
    axis = cut_axis(program, op, sources)
    if axis is None:
        return Choices()
    behind = sources[sources.index(axis) :]
    inner = any(other in op.owned and extents[other] > 1 for other in behind)
    ordered = plan_of(program, group[0]) is not None
    shared = fits_a_group(program, group[0])
    private = workers_of(program, group[0]) > 0
    return Choices(extents[axis], True, True, inner, ordered, shared, private)


def cut_axis(program: Program, op: Scatter, sources: Sequence[str]) -> str | None:
    """The axis that is cut into pieces: the longest along which elements meet."""
    free = [axis for axis in sources if axis not in op.owned]
    return max(free, key=lambda axis: program.axes[axis], default=None)


def _pieces(values: Values, op: Scatter, sources: Sequence[str], ways: Ways) -> Piece | None:
    axis = cut_axis(values.program, op, sources)
    if axis is None or ways.pieces < 2 or values.program.axes[axis] < 2:
        return None
    return Piece.of(values, axis, ways.pieces)


def _inner_axis(op: Scatter, output: Store, sources: Sequence[str]) -> str | None:
    """The axis that is sent to itself and varies fastest in what is sent and in the output."""
    last = sources[-1] if sources else None
    return last if last in op.owned and output.axes[-1] == last else None


class Scattering:
    """Makes the statements of a scatter, to the output or to the parts of pieces of it."""

    def __init__(
        self, values: Values, position: int, op: Scatter, output: Store, piece: Piece | None
    ) -> None:
        self.values, self.position, self.op, self.output = values, position, op, output
        self.dtype = values.dtype(position)
        self.shape = values.program.scope.shape(output.axes)
        self.piece = piece
        self.target = output.tensor
        if piece is not None:
            self.target = values.part(piece.count, self.shape, self.dtype).name
        self.share: _Share | None = None

    def share_out(self, block: Block, owners: int, own: Sequence[str], inner: str | None) -> None:
        """Where the owned axes have fewer points than wanted, the longest other axis is shared out:
        each point goes through all that is sent, and takes what belongs to its share."""
        extents = self.values.program.axes
        free = [axis for axis in self.op.axes if axis not in own]
        wanted = owners // math.prod(extents[axis] for axis in own)
        if not free or wanted < 2:
            return
        axis = max(free, key=lambda name: extents[name])
        if inner is not None and extents[inner] >= wanted:
            axis = inner  # of which each goes through its own part alone
        piece = Piece.of(self.values, axis, wanted, "share")
        self.share = _Share(piece, block.named(piece.first, "first"), axis in self.op.owned)

    # --- statements -------------------------------------------------------------------------------

    def fill(self, block: Block, points: Point) -> None:
        """Write what is where nothing is sent."""
        free = [axis for axis in self.output.axes if axis not in points]
        self._looped(block, free, points, self._start, None)

    def _start(self, block: Block, at: Point) -> None:
        block.add(Write(self.target, self.where(at), _start(self.op.kind, self.dtype)))

    def sent(self, block: Block, axes: Sequence[str], at: Point, inner: str | None) -> None:
        """Loops over all that a point goes through; iterations of `inner` do not meet."""
        self._looped(block, axes, at, self.send, inner)

    def _looped(
        self, block: Block, axes: Sequence[str], at: Point,
        make: Callable[[Block, Point], None], inner: str | None,
    ) -> None:  # fmt: skip
        """Loops over axes in order, of those that are cut over what belongs to the point."""
        if not axes:
            make(block, at)
            return
        axis, rest = axes[0], axes[1:]
        if axis == inner and not rest and self._aims_once(axis):
            self._send_row(block, at, axis)
            return
        piece = self._cut(axis, make == self.send)

        def go_on(within: Block, place: Scalar) -> None:
            self._looped(within, rest, {**at, axis: place}, make, inner)

        if piece is not None:
            piece.looped(block, go_on, axis == inner)
        elif self.values.program.axes[axis] == 1:
            go_on(block, number(0, "i64"))
        else:
            variable, within = block.variable(axis), block.inner()
            go_on(within, variable)
            extent = self.values.program.axes[axis]
            if axis == inner:
                block.add(Spread(((variable, extent),), within.body))
            else:
                block.add(Loop(variable, extent, within.body))

    def _cut(self, axis: str, sends: bool) -> Piece | None:
        """The part of an axis that is the point's own: of what is sent, or of the output."""
        if sends and self.piece is not None and axis == self.piece.axis:
            return self.piece
        if self.share is not None and axis == self.share.piece.axis:
            return self.share.piece if self.share.owned or not sends else None
        return None

    def where(self, places: Point) -> Scalar:
        """The flat index of an element of the target."""
        where = flat([places[axis] for axis in self.output.axes], self.shape)
        if self.piece is None:
            return where
        return plus(times(self.piece.variable, math.prod(self.shape)), where)

    def send(self, block: Block, at: Point, atomic: bool = False) -> None:
        """Combine one element with what it meets, if it is sent inside."""
        places, within = self.aimed(block, at, self.op.axes)
        inner = block.inner()
        self._combine(inner, places, at, atomic)
        under(block, within, inner)

    def aimed(
        self, block: Block, at: Point, axes: Sequence[str]
    ) -> tuple[dict[str, Scalar], Scalar | None]:
        """Where an element is sent along some axes, and the condition that this is inside."""
        args = self.values.program.nodes[self.position].args
        places: dict[str, Scalar] = {}
        within: Scalar | None = None
        for axis, index in zip(self.op.axes, self.op.index, strict=True):
            if axis in axes:
                places[axis] = block.named(self.values.place(block, index, args, at), "p")
                within = both(within, self._inside(axis, index, places[axis]))
        return places, within

    def _combine(self, block: Block, places: Point, at: Point, atomic: bool) -> None:
        where = block.named(self.where(places), "p")
        (arg, *_) = self.values.program.nodes[self.position].args
        value = convert(self.values.value(block, arg, at), self.dtype)
        if atomic:
            block.add(Combine(self.op.kind, self.target, where, value))
            return
        new = call(_combining(self.op.kind), Element(self.target, where, self.dtype), value)
        block.add(Write(self.target, where, new))

    def _aims_once(self, inner: str) -> bool:
        """Whether elements along an axis that is sent to itself are sent alike along all others."""
        nodes = self.values.program.nodes
        args = nodes[self.position].args
        return not any(
            inner in [name for name, _ in index.terms]
            or (index.gather is not None and inner in nodes[args[index.gather]].axes)
            for axis, index in zip(self.op.axes, self.op.index, strict=True)
            if axis != inner
        )

    def _send_row(self, block: Block, at: Point, axis: str) -> None:
        """Combine all elements along an axis that is sent to itself."""
        places, within = self.aimed(block, at, [other for other in self.op.axes if other != axis])
        row = block.inner()

        def combine(inner: Block, place: Scalar) -> None:
            self._combine(inner, {**places, axis: place}, {**at, axis: place}, False)

        piece, extent = self._cut(axis, True), self.values.program.axes[axis]
        if piece is not None:
            piece.looped(row, combine, True)
        else:
            variable, inner = row.variable(axis), row.inner()
            combine(inner, variable)
            row.add(Spread(((variable, extent),), inner.body))
        under(block, within, row)

    def _inside(self, axis: str, index: Index, place: Scalar) -> Scalar | None:
        """The condition under which a coordinate is inside, and of the share."""
        low, high = index.bounds(self.values.program.scope)
        unknown, extent = index.gather is not None, self.values.program.axes[axis]
        found = inside(place, extent, unknown or low < 0, unknown or high >= extent)
        if self.share is None or axis != self.share.piece.axis or self.share.owned:
            return found
        end = plus(self.share.first, number(self.share.piece.length, "i64"))
        begins = Call("le", (self.share.first, place), "bool")
        return both(found, both(begins, Call("lt", (place, end), "bool")))

    # --- kernels of several -----------------------------------------------------------------------

    def filled(self) -> PlainKernel:
        """Every element becomes what it is where nothing is sent."""
        block, at = Block(self.values.names), Name(self.values.names.fresh("at"))
        block.add(Write(self.target, at, _start(self.op.kind, self.dtype)))
        count = math.prod(self.shape) * (1 if self.piece is None else self.piece.count)
        return step(self.values, block, ((at, count),))

    def combined(self, sources: Sequence[str]) -> PlainKernel:
        """Every element is sent by a point of its own."""
        block = Block(self.values.names)
        points, places = [], dict[str, Scalar]()
        within: Scalar | None = None
        for axis in sources:
            variable, extent = block.variable(axis), self.values.program.axes[axis]
            places[axis] = variable
            if self.piece is None or axis != self.piece.axis:
                points.append((variable, extent))
                continue
            points += [self.piece.point, (variable, self.piece.length)]
            places[axis] = block.named(plus(self.piece.first, variable), "p")
            within = inside(places[axis], extent, False, self.piece.last < self.piece.length)
        inner = block.inner()
        self.send(inner, places, True)
        under(block, within, inner)
        return step(self.values, block, points)

    def merged(self) -> tuple[PlainKernel, ...]:
        """The parts of all pieces, in order; nothing where there are none."""
        if self.piece is None:
            return ()
        at = self.values.points(self.output.axes)
        extents = self.values.program.axes
        number_of, state = self.values.names.fresh("piece"), self.values.names.fresh("state")
        piece, total = Name(number_of), Name(state, self.dtype)
        block = Block(self.values.names)
        where = block.named(flat([at[axis] for axis in self.output.axes], self.shape), "p")
        here = plus(times(piece, math.prod(self.shape)), where)
        part = Element(self.target, here, self.dtype)
        how = merge_of(NAMED[self.op.kind])
        block.add(Accumulate(piece, self.piece.count, False, (), (part,), (total,), how))
        block.add(Write(self.output.tensor, where, total))
        return (step(self.values, block, [(name, extents[axis]) for axis, name in at.items()]),)


def _combining(kind: str) -> str:
    return "or" if kind == "or" else COMBINES[kind].function


def _start(kind: str, dtype: str) -> Number:
    """What is where nothing was sent, as `ir.ops.scatter` says."""
    return number(nothing_sent(kind, dtype), dtype)


def _checked(values: Values, group: list[int]) -> tuple[Scatter, Store | None]:
    """The scatter, and where it is stored as it is; None: what is made of it is stored."""
    program = values.program
    ops = [program.nodes[position].op for position in group]
    op = ops[0]
    assert isinstance(op, Scatter)
    what = f"{program.name}: scatter {op.kind} to {', '.join(op.axes)}"
    if len(group) > 1:
        raise ProgramError(f"{what}: a plain kernel computes one scatter, here are {len(group)}")
    stores = [store for _, store in program.stores()]
    if any(set(store.axes) != set(op.axes) for store in stores):
        raise ProgramError(f"{what}: a plain kernel stores what has its axes, and nothing else")
    users = [program.nodes[user].op for user in program.users(group[0])]
    spec = program.scope.tensors[stores[0].tensor]
    if users == stores and len(stores) == 1 and spec.dtype == program.nodes[group[0]].dtype:
        return op, stores[0]
    behind = set(values.behind(group))
    if {position for position, _ in program.stores()} != behind:
        raise ProgramError(f"{what}: a plain kernel stores what is made of it, and nothing else")
    return op, None
