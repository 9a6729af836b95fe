"""Splits a reduced axis over workers: partial results per part, merged by the streaming algebra.

Axis k becomes `k_part` (one step per part) and `k_in`. A reduction becomes partial results over
k_in and a merge over k_part. Where a partial result was computed with its part's own value of an
earlier reduction (its own maximum, its own mean), the merge corrects it from that value to the
merged one: the very ratio or amounts by which a single pass corrects its state. Parts that reach
beyond the axis (when it has no equal parts) contribute identities there.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ir.builder import cast
from ir.dtypes import compute_dtype, dtype_of, is_float
from ir.errors import UsageError
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Iota, Map
from ir.ops.reduce import Carry, Contract, Reduce
from ir.program import Node, Program
from ir.rewrite.analysis import Analysis, combined_axes
from ir.rewrite.graft import graft
from ir.rewrite.streaming import Rebuild
from ir.scalar import COMBINES, lowest
from ir.tiles import Tile, apply


def split(program: Program, axis: str, parts: int, unit: int = 1) -> Program:
    """`program` with its reductions over `axis` split into `parts` parts of whole `unit`s, the
    last ones shorter where they are not equal.

    Raises UsageError when there are not as many points, when the axis is also kept somewhere, or
    when a reduction along it depends on another in a way that cannot be corrected.
    """
    extent = program.axes.get(axis)
    if extent is None:
        known = ", ".join(program.axes)
        raise UsageError(f"{program.name}: no axis {axis}; its axes are {known}")
    if not 2 <= parts <= extent:
        raise UsageError(f"{program.name}: axis {axis} of extent {extent} has no {parts} parts")
    analysis = Analysis(program, joint=_together(program, axis)).run()
    for position, node in enumerate(program.nodes):
        if node.op.name == "store" and axis in node.axes:
            raise UsageError(f"{program.name}: axis {axis} is stored, not only reduced")
        if axis in combined_axes(node) and isinstance(node.op, Carry):
            raise UsageError(f"{program.name}: {axis} is carried; split it before streaming")
        if position in analysis.refused and axis in combined_axes(node):
            raise UsageError(
                f"{program.name}: {axis} cannot be split: {analysis.refused[position]}"
            )
    return _Split(program, analysis, axis, parts, unit).run()


def _together(program: Program, axis: str) -> tuple[str, ...]:
    """The axes that every reduction over `axis` goes along, this one last, if there are others."""
    over = [combined_axes(node) for node in program.nodes if axis in combined_axes(node)]
    if len({frozenset(axes) for axes in over}) != 1 or len(over[0]) == 1:
        return ()
    return (*(name for name in over[0] if name != axis), axis)


class _Split(Rebuild):
    """Views: "prior" is a part's own value (it varies over the parts), "now" the merged one."""

    body_view = "prior"

    def __init__(
        self, program: Program, analysis: Analysis, axis: str, parts: int, unit: int
    ) -> None:
        super().__init__(program, analysis)
        self.axis, self.parts_count = axis, parts
        self.extent = program.axes[axis]
        self.inner = -(-self.extent // (parts * unit)) * unit
        self.ragged = self.inner * parts != self.extent
        self.part_axis, self.in_axis = f"{axis}_part", f"{axis}_in"
        extents: dict[str, int] = {}
        for name, extent in program.axes.items():
            if name == axis:
                extents.update({self.part_axis: parts, self.in_axis: self.inner})
            else:
                extents[name] = extent
        self.graph = graft(program, extents=extents)
        analysis.carried = {
            position: axis
            for position, node in enumerate(program.nodes)
            if axis in combined_axes(node)
        }
        self.partial: dict[int, Tile] = {}  # position of a merged value -> its partial values

    # -- reading along the split axis

    def _build(self, position: int, view: str, axis: str) -> Tile:
        op = self.nodes[position].op
        if isinstance(op, Iota) and op.axis == self.axis:
            return self._coordinate()
        if isinstance(op, Load) and any(self.axis in dict(index.terms) for index in op.index):
            args = [self.view(arg, view, axis) for arg in self.nodes[position].args]
            return self.graph.add(self._load(op), *args)
        return super()._build(position, view, axis)

    def _coordinate(self) -> Tile:
        part = self.graph.add(Iota(self.part_axis)) * self.inner
        return part + self.graph.add(Iota(self.in_axis))

    def _load(self, op: Load) -> Load:
        fill = op.fill
        if self.ragged and fill is None:
            fill = 0.0 if is_float(self.program.scope.tensors[op.tensor].dtype) else 0
        return Load(op.tensor, tuple(self._index(i) for i in op.index), fill)

    def _index(self, index: Index) -> Index:
        terms: list[tuple[str, int]] = []
        for name, coefficient in index.terms:
            if name == self.axis:
                terms += [(self.part_axis, coefficient * self.inner), (self.in_axis, coefficient)]
            else:
                terms.append((name, coefficient))
        return Index(tuple(terms), index.constant, index.gather)

    def _inside(self, body: Tile, kind: str) -> Tile:
        """The body, or the identity at points beyond the axis."""
        if not self.ragged:
            return body
        identity = COMBINES[kind].identity
        if not is_float(body.dtype):
            body = cast(body, compute_dtype(body.dtype))
            bound = 2.0 ** (dtype_of(body.dtype).bits - 1)
            identity = int(min(max(identity, -bound), bound - 1))
        return apply("where", apply("lt", self._coordinate(), self.extent), body, identity)

    # -- views and states

    def running(self, position: int, view: str) -> Tile:
        if view == "now":
            return self.result(position)
        node = self.nodes[position]
        return self.combined(position, lambda state: self._finite(self.prior(state), node), view)

    def _finite(self, value: Tile, node: Node) -> Tile:
        """A part that is wholly masked has no extreme; differences with it must still exist."""
        kind = node.op.kind if isinstance(node.op, Reduce) else "sum"
        if kind not in ("max", "min") or not is_float(value.dtype):
            return value
        least = lowest(value.dtype)
        return apply("max", value, least) if kind == "max" else apply("min", value, -least)

    def prior(self, state: Tile) -> Tile:
        return self.partial[state.position]

    def carry(
        self, kind: str, axis: str, body: Tile, factor: Tile | None, addend: Tile | None
    ) -> Tile:
        """Partial results over the part's own points, corrected, then merged."""
        partial = self._summed(kind, body)
        value = partial
        if factor is not None:
            value = apply("mul", value, factor)
            if self.ragged and kind != "sum":  # a part without points has nothing to scale
                value = apply("where", apply("lt", 0.0, self._points()), value, partial)
        if addend is not None:
            value = apply("add", value, addend)
        return self._merged(kind, partial, value)

    def _summed(self, kind: str, body: Tile) -> Tile:
        """A part's own result; a sum of products of floats keeps the form of a contraction."""
        over = (*self.a.over(self.axis)[:-1], self.in_axis)
        op, args = self.graph.node(body)
        product = kind == "sum" and op == Map("mul") and is_float(body.dtype)
        factors = [Tile(self.graph, arg) for arg in args]
        if product and all({*over} <= {*one.axes} for one in factors):
            return self.graph.add(Contract(over, body.dtype), *map(self._within, factors))
        return self.graph.add(Reduce(kind, over), self._inside(body, kind))

    def _within(self, factor: Tile) -> Tile:
        """A factor that is 0 beyond the axis, as what is read there is."""
        op, args = self.graph.node(factor)
        if (isinstance(op, Load) and op.fill == 0) or not self.ragged:
            return factor
        if isinstance(op, Cast):
            return self.graph.add(op, self._within(Tile(self.graph, args[0])))
        return self._inside(factor, "sum")

    def _merged(self, kind: str, partial: Tile, value: Tile) -> Tile:
        merged = self.graph.add(Reduce(kind, (self.part_axis,)), value)
        self.partial[merged.position] = partial
        return merged

    def independent(self, position: int) -> Tile:
        """The same op over the part's points: a product keeps the form of a contraction."""
        op = self.nodes[position].op
        assert isinstance(op, (Contract, Reduce))
        kind = op.kind if isinstance(op, Reduce) else "sum"
        over = tuple(self.in_axis if name == self.axis else name for name in op.over)
        args = [self.final(arg) for arg in self.nodes[position].args]
        given = self.nodes[position].args
        zero = isinstance(op, Contract) and any(self._ends(a) for a in given)
        args = [
            tile if self.in_axis not in tile.axes or (zero and self._is_number(arg))
            else self._inside(tile, kind)
            for arg, tile in zip(given, args, strict=True)
        ]  # fmt: skip
        partial = self.graph.add(replace(op, over=over), *args)
        return self._merged(kind, partial, partial)

    def _loaded(self, position: int) -> bool:
        """A tensor's numbers as they are: beyond the axis 0, while 1 / 0 would be no identity."""
        op = self.nodes[position].op
        return isinstance(op, Load) and op.fill in (None, 0)

    def _is_number(self, position: int) -> bool:
        """Whether an operand is loaded numbers, or made of such as end where the axis does."""
        return self._loaded(position) or self._ends(position)

    def _ends(self, position: int) -> bool:
        """Whether an operand is a tensor that ends where the axis does, so that it reads 0 beyond,
        or a product of loaded numbers with one that does."""
        op, args = self.nodes[position].op, self.nodes[position].args
        if isinstance(op, Cast) and is_float(op.dtype):
            return self._ends(args[0])
        if op == Map("mul"):
            return any(map(self._ends, args)) and all(map(self._is_number, args))
        if not isinstance(op, Load):
            return False
        shape = self.program.scope.tensors[op.tensor].shape
        own = Index(((self.axis, 1),))
        return op.fill in (None, 0) and any(
            index == own and extent == self.extent
            for index, extent in zip(op.index, shape, strict=True)
        )

    def spread(self, value: Tile | float, axes: tuple[str, ...]) -> Tile:
        """A partial sum only has to vary over the part's points; merges broadcast the rest."""
        return super().spread(value, (self.part_axis, self.in_axis))

    def scale_to_whole(self, axis: str, domain: tuple[str, ...], view: str) -> Tile | float:
        if view == "now":
            return 1.0
        if not self.ragged:
            return float(self.parts_count)
        points = self.prior(self.count(axis, domain))
        return float(self.extent * self._beside) / apply("max", points, 1.0)

    def count(self, axis: str, axes: tuple[str, ...]) -> Tile:
        """The points of a part, as a value that stands for its partial count."""
        if (axis, axes) not in self.counts:
            points = self._points()
            self.partial[points.position] = points
            self.counts[axis, axes] = points
        return self.counts[axis, axes]

    def _points(self) -> Tile:
        if not self.ragged:
            return self.graph.constant(float(self.inner * self._beside), "f32")
        left = self.extent - self.graph.add(Iota(self.part_axis)) * self.inner
        points = cast(apply("max", apply("min", left, self.inner), 0), "f32")
        return points * float(self._beside) if self._beside > 1 else points

    @property
    def _beside(self) -> int:
        """Points of the axes that go along with the one that is split."""
        return prod(self.program.axes[name] for name in self.a.over(self.axis)[:-1])
