"""Axes that memory is read along by their digits are as many axes.

Where `%3 = load(%2, tensor=scale, index=[n, [0]])` was at `%2 = map(%0, %1, shr)`, 7 bits of
`%0 = iota(axis=k)`, there is `load(tensor=scale, index=[n, k_part])`, and k is `128 k_part + k_in`:
what elements share (a scale, a byte, a head of keys) is read once for all of them, at plain
indices, which copies and vectors take.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from ir.builder import Graph
from ir.errors import ProgramError
from ir.ops.base import Op, Scope
from ir.ops.load import Index, Load
from ir.ops.map import Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.scatter import Scatter
from ir.program import Node, Program
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.parting import cut
from ir.tiles import Tile, quotient, remainder

NAME = "digits"
WHY = "an axis that indices have digits of is as many axes"
ROUNDING = "the same roundings in the same order"
_BITS = 31  # of a whole number, by fewer of which it is shifted
_MOST = 2**31  # of a whole number that is computed
_QUOTIENTS = ("floordiv", "shr")
_WHOLE = (*_QUOTIENTS, "add", "sub", "mul", "mod", "bitand")


@dataclass(frozen=True)
class Sum:
    """A whole number as multiples of axes' coordinates, and a number."""

    terms: Mapping[str, int]
    constant: int = 0

    def plus(self, other: Sum, times: int = 1) -> Sum:
        terms = dict(self.terms)
        for axis, factor in other.terms.items():
            terms[axis] = terms.get(axis, 0) + times * factor
        kept = {axis: factor for axis, factor in terms.items() if factor}
        return Sum(kept, self.constant + times * other.constant)

    def times(self, factor: int) -> Sum:
        return Sum({}).plus(self, factor)

    def parts(self, divisor: int) -> tuple[Sum, Sum]:
        """Quotient and rest of each term and of the number, apart."""
        whole = {axis: factor // divisor for axis, factor in self.terms.items()}
        rest = {axis: factor % divisor for axis, factor in self.terms.items()}
        quotient, left = divmod(self.constant, divisor)
        return Sum({}).plus(Sum(whole, quotient)), Sum({}).plus(Sum(rest, left))

    def bounds(self, extents: Mapping[str, int]) -> tuple[int, int]:
        """Its least and largest value."""
        return Index(tuple(self.terms.items()), self.constant).bounds(Scope(extents, {}))


def digits(program: Program) -> Program:
    """The same program with an axis for each digit that an index is made of, and no index computed
    that is a sum of axes; the same one where no index is so made."""
    if not any(is_computed(program, position) for position in range(len(program.nodes))):
        return program
    program = plain(program)
    while (found := next(_apart(program), None)) is not None:
        program = found
    return program


def is_computed(program: Program, position: int) -> bool:
    """Whether a value is read, or sent, by an index that is computed of nothing but coordinates."""
    return not _of_coordinates(program).isdisjoint(_indices(program.nodes[position]))


def _indices(node: Node) -> tuple[int, ...]:
    """The computed indices of what reads a tensor or a value, or sends one."""
    op = node.op
    if isinstance(op, Load | Read | Scatter):
        return tuple(node.args[one.gather] for one in op.index if one.gather is not None)
    return ()


@lru_cache(maxsize=1024)
def _of_coordinates(program: Program) -> frozenset[int]:
    """The nodes that are made of coordinates and numbers alone."""
    found = set[int]()
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Iota | Constant) or (
            isinstance(node.op, Map) and found.issuperset(node.args)
        ):
            found.add(position)
    return frozenset(found)


def _apart(program: Program) -> Iterator[Program]:
    """The program with one axis as two, for each that an index asks for and that all ops let be."""
    sums = sums_of(program)
    for axis, count in dict.fromkeys(_asked(program, sums)):
        extent, free = program.axes[axis], {f"{axis}_part", f"{axis}_in"}.isdisjoint(program.axes)
        if free and 1 < count < extent and extent % count == 0:
            with suppress(ProgramError):
                yield plain(cut(program, axis, extent // count))


def _asked(program: Program, sums: Mapping[int, Sum]) -> Iterator[tuple[str, int]]:
    """Axes by whose digits indices are computed, and how many points the last digit has."""
    pending = [index for node in program.nodes for index in _indices(node)]
    seen = set[int]()
    while pending:
        position = pending.pop()
        node = program.nodes[position]
        if position in seen or not _is_whole(node):
            continue
        seen.add(position)
        pending.extend(node.args)
        divisor = divisor_of(program, position)
        of = sums.get(node.args[0]) if divisor else None
        if of is not None and [*of.terms.values()] == [1] and not of.constant % divisor:
            yield next(iter(of.terms)), divisor


def _is_whole(node: Node) -> bool:
    return isinstance(node.op, Map) and node.op.function in _WHOLE


def divisor_of(program: Program, position: int) -> int:
    """By what a quotient or a rest is taken, where that is a number; else 0."""
    node = program.nodes[position]
    op = node.op
    if not isinstance(op, Map) or len(node.args) != 2:
        return 0
    by = program.nodes[node.args[1]].op
    if not isinstance(by, Constant) or by.value != int(by.value) or by.value < 1:
        return 0
    value = int(by.value)
    if op.function == "bitand":
        return value + 1 if value & (value + 1) == 0 else 0
    if op.function == "shr":
        return 1 << value if value < _BITS else 0
    return value if op.function in ("floordiv", "mod") else 0


def sums_of(program: Program) -> dict[int, Sum]:
    """The nodes that are sums of axes, as such."""
    found: dict[int, Sum] = {}
    for position in range(len(program.nodes)):
        made = _sum(program, position, found)
        if made is not None:
            low, high = made.bounds(program.axes)
            if low >= -_MOST and high < _MOST:
                found[position] = made
    return found


def _sum(program: Program, position: int, known: Mapping[int, Sum]) -> Sum | None:
    node = program.nodes[position]
    op = node.op
    if isinstance(op, Iota):
        return Sum({op.axis: 1})
    if isinstance(op, Constant):
        whole = node.dtype == "i32" and op.value == int(op.value)
        return Sum({}, int(op.value)) if whole else None
    if not _is_whole(node) or node.dtype != "i32" or any(arg not in known for arg in node.args):
        return None
    assert isinstance(op, Map)
    left, right = (known[arg] for arg in node.args)
    if op.function in ("add", "sub"):
        return left.plus(right, 1 if op.function == "add" else -1)
    if op.function == "mul":
        if not left.terms:
            return right.times(left.constant)
        return left.times(right.constant) if not right.terms else None
    divisor = divisor_of(program, position)
    return _divided(left, divisor, op.function, program.axes) if divisor else None


def _divided(value: Sum, divisor: int, function: str, extents: Mapping[str, int]) -> Sum | None:
    """The quotient or the rest of a sum, if it is a sum."""
    left = _left(value, divisor, function, extents)
    if left.inner.bounds(extents)[1] >= left.divisor:
        return None
    return left.outside if function in _QUOTIENTS else left.outside.plus(left.inner, left.times)


@dataclass(frozen=True)
class _Left:
    """A quotient or a rest as `outside`, and `times` that of `inner` by `divisor`."""

    outside: Sum
    times: int
    inner: Sum
    divisor: int


def _left(value: Sum, divisor: int, function: str, extents: Mapping[str, int]) -> _Left:
    """What is to be divided yet: not multiples of the divisor, nor what is too little to carry to
    other terms, whose factors have a divisor in common with it."""
    quotient = function in _QUOTIENTS
    whole, rest = value.parts(divisor)
    outside, times = (whole if quotient else Sum({})), 1
    steps = {factor for factor in rest.terms.values() if factor > 1 and divisor % factor == 0}
    for step in sorted(steps, reverse=True):
        upper = Sum({axis: f // step for axis, f in rest.terms.items() if f % step == 0})
        lower = rest.plus(upper, -step)
        if lower.bounds(extents)[1] < step:
            inner = _left(upper, divisor // step, function, extents)
            if quotient:
                return replace(inner, outside=outside.plus(inner.outside))
            return replace(inner, outside=lower.plus(inner.outside, step), times=step * inner.times)
    return _Left(outside, times, rest, divisor)


def plain(program: Program) -> Program:
    """The program with sums of axes as such: added up anew, as terms where they are indices, and
    taken out of quotients and rests as far as they are multiples."""
    sums = sums_of(program)
    carried = _carried(program, sums)
    indices = any(arg in sums for node in program.nodes for arg in _indices(node))
    if not indices and not carried and not any(map(partial(divisor_of, program), sums)):
        return program
    graph = graft(program)
    made: dict[int, Tile] = {}
    for position, node in enumerate(program.nodes):
        if position in sums and isinstance(node.op, Map):
            made[position] = tile_of(graph, sums[position])
        elif position in carried:
            made[position] = _computed(graph, node.op, carried[position])
        elif isinstance(node.op, Load | Read | Scatter):
            op, args = _indexed(node.op, node, sums)
            made[position] = graph.add(op, *(made[arg] for arg in args))
        else:
            made[position] = copy_node(graph, program, position, [made[arg] for arg in node.args])
    return graph.program()


def _carried(program: Program, sums: Mapping[int, Sum]) -> dict[int, _Left]:
    """Quotients and rests of sums that are none themselves, and are of smaller ones."""
    found: dict[int, _Left] = {}
    for position, node in enumerate(program.nodes):
        divisor = divisor_of(program, position)
        of = sums.get(node.args[0]) if divisor and position not in sums else None
        if of is None:
            continue
        assert isinstance(node.op, Map)
        left = _left(of, divisor, node.op.function, program.axes)
        if left.inner != of or left.divisor != divisor:
            found[position] = left
    return found


def _computed(graph: Graph, op: Op, left: _Left) -> Tile:
    """A quotient or a rest of what is left to be divided, and the rest of it."""
    assert isinstance(op, Map)
    divide = quotient if op.function in _QUOTIENTS else remainder
    made = divide(tile_of(graph, left.inner), left.divisor)
    if left.times != 1:
        made = graph.add(Map("mul"), made, graph.add(Constant(left.times, "i32")))
    if left.outside == Sum({}):
        return made
    return graph.add(Map("add"), tile_of(graph, left.outside), made)


def _indexed(
    op: Load | Read | Scatter, node: Node, sums: Mapping[int, Sum]
) -> tuple[Op, tuple[int, ...]]:
    """What reads or sends, with sums among its computed indices as terms."""
    first = 0 if isinstance(op, Load) else 1  # of the arguments that are indices
    places = range(first, len(node.args))
    kept = (*range(first), *(number for number in places if node.args[number] not in sums))
    index = []
    for one in op.index:
        if one.gather is None:
            index.append(one)
        elif one.gather in kept:
            index.append(replace(one, gather=kept.index(one.gather)))
        else:
            own = Sum(dict(one.terms), one.constant).plus(sums[node.args[one.gather]])
            index.append(Index(tuple(own.terms.items()), own.constant))
    return replace(op, index=tuple(index)), tuple(node.args[number] for number in kept)


def tile_of(graph: Graph, value: Sum) -> Tile:
    """A sum, computed."""
    found: Tile | None = None
    for axis, factor in value.terms.items():
        here = graph.add(Iota(axis))
        if factor != 1:
            here = graph.add(Map("mul"), here, graph.add(Constant(factor, "i32")))
        found = here if found is None else graph.add(Map("add"), found, here)
    number = graph.add(Constant(value.constant, "i32"))
    if found is None:
        return number
    return graph.add(Map("add"), found, number) if value.constant else found
