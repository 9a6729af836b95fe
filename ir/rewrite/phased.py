"""Sums of which every so many terms count, by a residue of coordinates: each phase sums its own.

Where terms are 0 unless (y + 1 - r) mod 2 = 0, as in the gradient of a strided convolution or in a
transposed one, y is 2 y' + p, and of the taps r phase p meets r = p + 1 - 2 r' alone:

    sum over r of where((y + 1 - r) mod 2 = 0, x[(y + 1 - r) / 2] w[r], 0)
        =  sum over r' of x[y' + r'] w[p + 1 - 2 r']

What is read then is a line of each axis, and half of the products are never formed. Taps that a
phase has not are read as 0 where that is what lies outside of their tensor, and are masked
elsewhere; what is multiplied with zeros is taken to be finite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd

from ir.builder import Graph, where
from ir.errors import ProgramError
from ir.ops.load import Index, Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Contract, Reduce
from ir.program import Program
from ir.rewrite.digits import Sum, divisor_of, plain, sums_of, tile_of
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.guarded import Without, conditions, terms_of
from ir.rewrite.parting import cut
from ir.tiles import Tile, remainder

NAME = "phased"
WHY = "of terms that count at one residue of coordinates, each phase sums its own"
ROUNDING = "terms that are zero are not added"
_MOST = 64  # phases of an axis


@dataclass(frozen=True, slots=True)
class _Phases:
    """The first sum of which terms count where `of` is a multiple of `step`, and that condition;
    `axis` is the one of its axes by which those terms are found."""

    position: int
    condition: int
    of: Sum
    step: int
    axis: str

    def others(self) -> Iterator[str]:
        """The axes beside, of whose points the residue is made."""
        for axis, factor in self.of.terms.items():
            if axis != self.axis and factor % self.step:
                yield axis


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program with the terms of phases alone, and the first sum's node; None without such."""
    first: int | None = None
    program = _with_rests(program)
    while (made := _next(program)) is not None:
        first, program = made[0] if first is None else first, made[1]
    return None if first is None else (first, program)


def _next(program: Program) -> tuple[int, Program] | None:
    """The program with the phases of one residue."""
    for found in _all(program):
        try:
            made = _in_phases(program, found)
        except ProgramError:  # an op takes an axis whole
            continue
        if made is not None:
            return found.position, made
    return None


def _in_phases(program: Program, found: _Phases) -> Program | None:
    """The program with axes cut into phases, and with each phase's terms alone."""
    for axis in found.others():
        extent = program.axes[axis]
        if extent == found.step:
            continue
        if extent % found.step or not {f"{axis}_part", f"{axis}_in"}.isdisjoint(program.axes):
            return None
        own = plain(cut(program, axis, extent // found.step))
        again = next(_all(own), None)
        return None if again is None else _in_phases(own, again)
    return _Made(program, found).program()


def _all(program: Program) -> Iterator[_Phases]:
    """Every residue that terms of a sum count at, with an axis that is summed there alone."""
    sums = sums_of(program)
    for position in range(len(program.nodes)):
        for arg in terms_of(program, position):
            for condition in conditions(program, arg):
                residue = _residue(program, condition, sums)
                if residue is not None:
                    yield from _along(program, position, condition, *residue)


def _residue(program: Program, condition: int, sums: Mapping[int, Sum]) -> tuple[Sum, int] | None:
    """The sum of axes that a condition wants to be a multiple of a number, and that."""
    node = program.nodes[condition]
    if node.op != Map("eq"):
        return None
    for left, right in (node.args, node.args[::-1]):
        rest, number = program.nodes[left], program.nodes[right].op
        if not isinstance(rest.op, Map) or rest.op.function not in ("mod", "bitand"):
            continue
        step, of = divisor_of(program, left), sums.get(rest.args[0])
        if of is None or not isinstance(number, Constant) or not 1 < step <= _MOST:
            continue
        if 0 <= number.value < step:
            return of.plus(Sum({}, -int(number.value))), step
    return None


def _with_rests(program: Program) -> Program:
    """The program with sums that are compared with multiples of their quotients as sums whose rest
    is compared with 0."""
    sums = sums_of(program)
    multiples = {
        position: found
        for position, node in enumerate(program.nodes)
        if node.op == Map("eq")
        for left, right in (node.args, node.args[::-1])
        if (found := _multiple(program, left, right, sums)) is not None
    }
    if not multiples:
        return program
    graph = graft(program)
    made: dict[int, Tile] = {}
    for position, node in enumerate(program.nodes):
        if position in multiples:
            of, step = multiples[position]
            made[position] = remainder(tile_of(graph, of), step) == 0
        else:
            made[position] = copy_node(graph, program, position, [made[arg] for arg in node.args])
    return graph.program()


def _multiple(
    program: Program, left: int, right: int, sums: Mapping[int, Sum]
) -> tuple[Sum, int] | None:
    """Of `left`, the quotient of a sum times what it was divided by, that is the sum `right`."""
    product, of = program.nodes[left], sums.get(right)
    if product.op not in (Map("mul"), Map("shl")) or of is None:
        return None
    for quotient, by in (product.args, product.args[::-1]):
        divided, number = program.nodes[quotient], program.nodes[by].op
        step = divisor_of(program, quotient)
        if not isinstance(divided.op, Map) or divided.op.function not in ("floordiv", "shr"):
            continue
        if isinstance(number, Constant) and step and sums.get(divided.args[0]) == of:
            times = int(number.value)
            if step == (times if product.op == Map("mul") else 1 << times):
                return of, step
    return None


def _along(
    program: Program, position: int, condition: int, of: Sum, step: int
) -> Iterator[_Phases]:
    op = program.nodes[position].op
    assert isinstance(op, Contract | Reduce)
    for axis in op.over:
        known = axis in of.terms and gcd(of.terms[axis], step) == 1
        if known and all(
            _suits(program, other, axis, condition) for other in _having(program, axis)
        ):
            yield _Phases(position, condition, of, step, axis)


def _having(program: Program, axis: str) -> Iterator[int]:
    """The nodes that vary along an axis, or end there."""
    for position, node in enumerate(program.nodes):
        if axis in node.axes or any(axis in program.nodes[arg].axes for arg in node.args):
            yield position


def _suits(program: Program, position: int, axis: str, condition: int) -> bool:
    """Whether a node has points of the axis one by one, or sums what counts at the residue."""
    node = program.nodes[position]
    if axis in node.axes:
        return isinstance(node.op, Iota | Constant | Map | Cast | Load)
    terms = terms_of(program, position)
    return any(condition in conditions(program, arg) for arg in terms)


class _Made:
    """A program in which an axis has the points that one phase meets."""

    def __init__(self, program: Program, found: _Phases) -> None:
        self.old, self.found = program, found
        self.extent = program.axes[found.axis]
        self.place, self.count = self._places()

    def _places(self) -> tuple[Sum, int]:
        """Where the points that a phase meets are along the axis, and how many phases have."""
        step, axis = self.found.step, self.found.axis
        back = -pow(self.found.of.terms[axis], -1, step)
        terms = {
            other: _near(back * factor, step)
            for other, factor in self.found.of.terms.items()
            if other != axis and factor % step
        }
        base = Sum(terms, _near(back * self.found.of.constant, step))
        low, high = base.bounds(self.old.axes)
        first = -(high // step)  # times the step, from which on the highest base is in the axis
        last = (self.extent - 1 - low) // step
        return base.plus(Sum({axis: step}, first * step)), last - first + 1

    def program(self) -> Program | None:
        """None where no terms are saved."""
        old, found = self.old, self.found
        if not 0 < self.count < self.extent:
            return None
        graph = graft(old, extents={**old.axes, found.axis: self.count})
        made: dict[int, Tile] = {}
        for position, node in enumerate(old.nodes):
            args = [made[arg] for arg in node.args]
            over = node.op.over if isinstance(node.op, Contract | Reduce) else ()
            if found.axis in over:
                made[position] = self._sum(graph, position, made)
            elif node.op == Iota(found.axis):
                made[position] = tile_of(graph, self.place)
            elif isinstance(node.op, Load):
                made[position] = graph.add(self._load(node.op), *args)
            else:
                made[position] = copy_node(graph, old, position, args)
        return plain(graph.program())

    def _sum(self, graph: Graph, position: int, made: Mapping[int, Tile]) -> Tile:
        node = self.old.nodes[position]
        without = Without(self.old, graph, made, self.found.condition)
        factors = terms_of(self.old, position)
        one = without.product((), node.dtype)
        tiles = [one if (tile := without.at(arg)) is None else tile for arg in factors]
        if not any(map(self._ends, factors)):
            at = tile_of(graph, self.place)
            tiles[0] = where((at >= 0) & (at < self.extent), tiles[0], 0)
        return graph.add(node.op, *tiles)

    def _ends(self, position: int) -> bool:
        """Whether a factor is 0 at points that the axis has not."""
        node = self.old.nodes[position]
        if isinstance(node.op, Cast):
            return self._ends(node.args[0])
        alone = Index(((self.found.axis, 1),))
        if not isinstance(node.op, Load):
            return False
        shape = self.old.scope.tensors[node.op.tensor].shape
        own = any(
            one == alone and extent == self.extent
            for one, extent in zip(node.op.index, shape, strict=True)
        )
        return own and not node.op.fill

    def _load(self, op: Load) -> Load:
        """What reads along the axis reads where a phase's points are, and 0 beyond the tensor."""
        index = tuple(map(self._index, op.index))
        if index == op.index:
            return op
        return replace(op, index=index, fill=0.0 if op.fill is None else op.fill)

    def _index(self, index: Index) -> Index:
        own = Sum(dict(index.terms), index.constant)
        factor = own.terms.get(self.found.axis, 0)
        if not factor:
            return index
        made = own.plus(Sum({self.found.axis: -factor})).plus(self.place, factor)
        return replace(index, terms=tuple(made.terms.items()), constant=made.constant)


def _near(number: int, step: int) -> int:
    """The same residue next to 0."""
    rest = number % step
    return rest - step if 2 * rest > step else rest
