"""Axes of products laid end to end, though masks and tables tell them apart.

The rows and the columns of a window lie behind one another in queries, keys and what comes of them:
products could take both as one axis, and a tensor map has five dimensions. But a bias is read by
how far two points are apart along either, and a mask asks for one of them. What has only one of two
axes then has both, and finds the one in the other's place by a quotient or a remainder:

    bias[iy - jy, ix - jx]  =  bias[i // w - j // w, i % w - j % w]    of i = w iy + ix
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from ir.builder import Graph
from ir.ops.load import Index, Load
from ir.ops.map import Iota
from ir.ops.reduce import Contract, Reduce
from ir.ops.store import Store
from ir.program import Node, Program
from ir.rewrite.joining import KNOWN, Pair, joined_axes
from ir.tiles import Tile

_MOST = 2**31 - 1  # points of an axis whose coordinates are i32


@lru_cache(maxsize=256)
def with_fewer_axes(program: Program) -> tuple[Program, ...]:
    """With axes as one that always go together, and then those that masks tell apart, each of
    fewer; nothing where there are none."""
    joined = joined_axes(program)
    return (*((joined,) if joined != program else ()), *flattened(joined))


def flattened(program: Program) -> Iterator[Program]:
    """The program with one pair of a product's axes joined, with two, and so on; the innermost that
    products share first. Nothing where none goes together."""
    while True:
        pairs = (_Told(program, *pair) for pair in _pairs(program))
        found = next((pair for pair in pairs if pair.joins()), None)
        if found is None:
            return
        program = joined_axes(found.program_joined())
        yield program


@lru_cache(maxsize=256)
def laid_flat(program: Program) -> tuple[Program, ...]:
    """The program with axes of contractions as one that their operands have apart, so that these
    have to be written anew: those that are summed, where one operand has them so (the taps and
    channels of a filter, which the image has apart), and then rows, columns and batches as well
    (the windows of an image as it lies). Nothing where there are none."""
    found: list[Program] = []
    for kind, of in ((_Summed, _sums), (_Apart, _sides)):
        joined = program
        while pair := next((p for two in of(joined) if (p := kind(joined, *two)).joins()), None):
            joined = pair.program_joined()
        if joined not in (program, *found):
            found.append(joined)
    return tuple(found)


def _sums(program: Program) -> Iterator[tuple[str, str]]:
    """Neighbours among what contractions sum."""
    for node in program.nodes:
        if isinstance(node.op, Contract):
            yield from pairwise(a for a in node.op.over if program.axes[a] > 1)


def _sides(program: Program) -> Iterator[tuple[str, str]]:
    """Neighbours among what contractions sum, their rows, columns and batches."""
    yield from _sums(program)
    for node in program.nodes:
        if isinstance(node.op, Contract):
            left, right = (program.nodes[arg].axes for arg in node.args)
            kept = [a for a in node.axes if program.axes[a] > 1]
            for side in ((True, False), (False, True), (True, True)):
                yield from pairwise(a for a in kept if (a in left, a in right) == side)


def _pairs(program: Program) -> Iterator[tuple[str, str]]:
    """Neighbours in operands of contractions, the innermost first."""
    seen: set[tuple[str, str]] = set()
    for node in program.nodes:
        for arg in node.args if isinstance(node.op, Contract) else ():
            op = program.nodes[arg].op
            dims = op.index if isinstance(op, Load) else ()
            plain = [one.terms[0][0] if len(one.terms) == 1 else "" for one in dims]
            for outer, inner in reversed([*pairwise(plain)]):
                long = outer and inner and min(program.axes[outer], program.axes[inner]) > 1
                if long and (outer, inner) not in seen:
                    seen.add((outer, inner))
                    yield outer, inner


class _Told(Pair):
    """Two axes, of which what has one alone is told by the place along both."""

    def joins(self) -> bool:
        return self.program.axes[self.outer] * self.length <= _MOST and super().joins()

    def _alike(self) -> bool:
        """Whether all that has both in a tensor has them as neighbours, and some of it does."""
        together: dict[str, set[bool]] = {}
        for node in self.program.nodes:
            if isinstance(node.op, (Load, Store)):
                alone = isinstance(node.op, Load) and self._is_told(node.op)
                together.setdefault(node.op.tensor, set()).add(alone)
        return all(len(kinds) == 1 for kinds in together.values()) and super()._alike()

    def _goes_together(self, node: Node) -> bool:
        op = node.op
        if isinstance(op, Contract) and not self._suits(self._operands(node)):
            return False
        if isinstance(op, (Contract, Reduce)):
            args = [self.program.nodes[arg].axes for arg in node.args]
            alike = all((self.outer in axes) == (self.inner in axes) for axes in args)
            return alike and super()._goes_together(node)
        if isinstance(op, Load):
            return self._is_told(op) or super()._goes_together(node)
        return isinstance(op, (*KNOWN, Iota)) or super()._goes_together(node)

    def _operands(self, node: Node) -> list[bool]:
        """Of loads that a contraction multiplies: whether they are told."""
        ops = (self.program.nodes[arg].op for arg in node.args)
        return [self._is_told(op) for op in ops if isinstance(op, Load)]

    def _is_told(self, op: Load) -> bool:
        """Whether a load has one of the axes, or both where they are no neighbours."""
        axes = {axis for one in op.index for axis, _ in one.terms}
        mine = axes & {self.outer, self.inner}
        return bool(mine) and (len(mine) == 1 or self._places(op.tensor, op.index) is None)

    def _suits(self, told: list[bool]) -> bool:
        """Whether a contraction takes its operands so: it wants them as they lie."""
        return not any(told)

    def _made(self, graph: Graph, node: Node, args: list[Tile]) -> Tile:
        op = node.op
        if isinstance(op, Iota) and op.axis in (self.outer, self.inner):
            return self._digit(graph, op.axis)
        if isinstance(op, Load) and self._is_told(op):
            tiles: dict[Tile, int] = {}
            index = []
            for one in op.index:
                rest, tile = self._at(graph, one, args)
                gather = None if tile is None else tiles.setdefault(tile, len(tiles))
                index.append(replace(rest, gather=gather))
            return graph.add(replace(op, index=tuple(index)), *tiles)
        return super()._made(graph, node, args)

    def _at(self, graph: Graph, one: Index, args: list[Tile]) -> tuple[Index, Tile | None]:
        """What of an index goes along other axes, and a tile of the rest where there is some."""
        own = [(axis, step) for axis, step in one.terms if axis in (self.outer, self.inner)]
        rest = Index(tuple(term for term in one.terms if term not in own), one.constant)
        tile = None if one.gather is None else args[one.gather]
        for axis, step in own:
            digit = self._digit(graph, axis)
            digit = digit if step == 1 else digit * step
            tile = digit if tile is None else tile + digit
        return rest, tile

    def _digit(self, graph: Graph, axis: str) -> Tile:
        both = graph.add(Iota(self.outer))
        return both // self.length if axis == self.outer else both % self.length


class _Summed(_Told):
    """Two axes that a contraction sums, told where one of its operands is read."""

    def _suits(self, told: list[bool]) -> bool:
        return not all(told)


class _Apart(_Told):
    """Two axes that go together, wherever operands of contractions have them."""

    def _suits(self, told: list[bool]) -> bool:
        return True
