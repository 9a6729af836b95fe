"""Splits a reduced axis over workers: partial results per part, merged by the streaming algebra.

Axis k becomes `k_part` (one step per part) and `k_in`. A reduction becomes partial results over
k_in and a merge over k_part. Where a partial result was computed with its part's own value of an
earlier reduction (its own maximum, its own mean), the merge rescales it from that value to the
merged one: the very ratio or shift by which a single pass corrects its state.
"""

from __future__ import annotations

from ir.builder import Tile, apply
from ir.errors import UsageError
from ir.ops.load import Index, Load
from ir.ops.map import Iota
from ir.ops.reduce import Contract, Reduce
from ir.program import Node, Program
from ir.rewrite.analysis import Analysis, reduction_axis
from ir.rewrite.graft import graft
from ir.rewrite.streaming import Rebuild
from ir.scalar import LOWEST


def split(program: Program, axis: str, parts: int) -> Program:
    """`program` with its reductions over `axis` split into `parts` equal parts.

    Raises UsageError when the parts are not equal, when the axis is also kept somewhere, or when a
    reduction along it depends on another in a way that cannot be corrected.
    """
    extent = program.axes.get(axis)
    if extent is None or parts < 2 or extent % parts:
        raise UsageError(
            f"{program.name}: axis {axis} of extent {extent} has no {parts} equal parts"
        )
    analysis = Analysis(program).run()
    for position, node in enumerate(program.nodes):
        over = node.op.over if isinstance(node.op, (Reduce, Contract)) else ()
        if node.op.name == "store" and axis in node.axes:
            raise UsageError(f"{program.name}: axis {axis} is stored, not only reduced")
        if axis in over and reduction_axis(node) != axis:
            raise UsageError(f"{program.name}: {axis} is reduced together with other axes")
        if position in analysis.refused and reduction_axis(node) == axis:
            raise UsageError(
                f"{program.name}: {axis} cannot be split: {analysis.refused[position]}"
            )
    return _Split(program, analysis, axis, parts).run()


class _Split(Rebuild):
    """Views: "prior" is a part's own value (it varies over the parts), "now" the merged one."""

    body_view = "prior"

    def __init__(self, program: Program, analysis: Analysis, axis: str, parts: int) -> None:
        super().__init__(program, analysis)
        self.axis, self.parts = axis, parts
        self.inner = program.axes[axis] // parts
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
            if reduction_axis(node) == axis
        }
        self.partial: dict[int, Tile] = {}
        self.graph_partial: dict[int, Tile] = {}  # merged value -> its partial values

    def _build(self, position: int, view: str, axis: str) -> Tile:
        node = self.nodes[position]
        if axis == "" and self.axis in node.axes and not node.args:
            return self._leaf(node)
        return super()._build(position, view, axis)

    def _leaf(self, node: Node) -> Tile:
        """A load or coordinate along the split axis."""
        if isinstance(node.op, Iota):
            part = self.graph.add(Iota(self.part_axis)) * self.inner
            return part + self.graph.add(Iota(self.in_axis))
        assert isinstance(node.op, Load)
        return self.graph.add(
            Load(node.op.tensor, tuple(self._index(i) for i in node.op.index), node.op.fill)
        )

    def _index(self, index: Index) -> Index:
        terms: list[tuple[str, int]] = []
        for name, coefficient in index.terms:
            if name == self.axis:
                terms += [(self.part_axis, coefficient * self.inner), (self.in_axis, coefficient)]
            else:
                terms.append((name, coefficient))
        return Index(tuple(terms), index.constant, index.gather)

    def _running(self, position: int, view: str) -> Tile:
        if view == "now":
            return self.result(position)
        self.state(position)
        value = self._finite(self.partial[position], self.nodes[position])
        for function, factor in self._hoisted(position):
            value = apply(function, value, self.view(factor, view, self.axis))
        return value

    def _finite(self, value: Tile, node: Node) -> Tile:
        """A part that is wholly masked has no extreme; differences with it must still exist."""
        kind = node.op.kind if isinstance(node.op, Reduce) else "sum"
        if kind == "max":
            return apply("max", value, LOWEST)
        return apply("min", value, -LOWEST) if kind == "min" else value

    def _prior(self, state: Tile) -> Tile:
        return self.graph_partial[state.position]

    def _carry(
        self, kind: str, axis: str, body: Tile, factor: Tile | None, addend: Tile | None
    ) -> Tile:
        """Partial results over the part's own points, corrected, then merged."""
        partial = self.graph.add(Reduce(kind, (self.in_axis,)), body)
        value = partial
        if factor is not None:
            value = apply("mul", value, factor)
        if addend is not None:
            value = apply("add", value, addend)
        merged = self.graph.add(Reduce(kind, (self.part_axis,)), value)
        self.graph_partial[merged.position] = partial
        return merged

    def state(self, position: int) -> Tile:
        merged = super().state(position)
        self.partial.setdefault(position, self.graph_partial[merged.position])
        return merged

    def _product_state(self, position: int, axis: str) -> Tile | None:
        """Independent products keep the form of a contraction over the part's points."""
        node = self.nodes[position]
        if not isinstance(node.op, Contract):
            return None
        left, right = (self.final(arg) for arg in node.args)
        partial = self.graph.add(Contract((self.in_axis,), node.op.acc), left, right)
        merged = self.graph.add(Reduce("sum", (self.part_axis,)), partial)
        self.graph_partial[merged.position] = partial
        return merged

    def scale_to_whole(self, axis: str, domain: tuple[str, ...], view: str) -> Tile | float:
        return float(self.parts) if view == "prior" else 1.0

    def count(self, axis: str, axes: tuple[str, ...]) -> Tile:
        """A part has `inner` points: a constant that stands for its partial count."""
        if (axis, axes) not in self.counts:
            points = self.graph.constant(float(self.inner), "f32")
            self.graph_partial[points.position] = points
            self.counts[axis, axes] = points
        return self.counts[axis, axes]
