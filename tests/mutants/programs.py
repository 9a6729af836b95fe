"""Wrong programs, to be lowered in a right one's place: an operand, a mask or terms left out.

Each is a whole program that a backend makes kernels of. Knows no kernel and no check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ir.dtypes import is_float
from ir.ops.base import Op
from ir.ops.load import Load
from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.reduce import Carry, Contract, Reduce, start_of
from ir.program import Node, Program

_TRIED = 4  # places in a program at which one mutant is tried


class Copy:
    """The nodes of a program, copied one by one, with others between them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes: list[Node] = []

    def add(self, op: Op, *args: int) -> int:
        found = op.infer([self.nodes[arg].type for arg in args], self.program.scope)
        self.nodes.append(Node(op, args, found))
        return len(self.nodes) - 1

    def constant(self, value: float, dtype: str) -> int:
        return self.add(Constant(value, dtype))

    def mapped(self, function: str, *args: int) -> int:
        return self.add(Map(function), *args)


Change = Callable[[Copy, Node, tuple[int, ...]], int]


def changed(program: Program, position: int, change: Change) -> Program:
    """The program with what `change` adds in the place of one node, and nothing left over."""
    copy, places = Copy(program), dict[int, int]()
    for number, node in enumerate(program.nodes):
        args = tuple(places[arg] for arg in node.args)
        if number == position:
            places[number] = change(copy, node, args)
        else:
            copy.nodes.append(replace(node, args=args))
            places[number] = len(copy.nodes) - 1
    return pruned(replace(program, nodes=tuple(copy.nodes)))


def pruned(program: Program) -> Program:
    """Without nodes, inputs and axes that no output needs."""
    live: set[int] = set()
    waiting = [position for position, _ in program.stores()]
    while waiting:
        position = waiting.pop()
        if position not in live:
            live.add(position)
            waiting += program.nodes[position].args
    places = {position: number for number, position in enumerate(sorted(live))}
    nodes = tuple(
        replace(node, args=tuple(places[arg] for arg in node.args))
        for position, node in enumerate(program.nodes)
        if position in live
    )
    read = {node.op.tensor for node in nodes if isinstance(node.op, Load)}
    tensors = tuple(t for t in program.tensors if t.role == "output" or t.name in read)
    axes = {axis for node in nodes for axis in node.axes}
    extents = tuple((axis, extent) for axis, extent in program.extents if axis in axes)
    return replace(program, nodes=nodes, tensors=tensors, extents=extents)


# --- operands left out ----------------------------------------------------------------------------


def _kept(place: int) -> Change:
    return lambda copy, node, args: args[place]


def _dropped(function: str) -> Callable[[Program], Iterator[Program]]:
    """A `function` whose other operand, no constant, is left out."""

    def mutants(program: Program) -> Iterator[Program]:
        for position, node in enumerate(program.nodes):
            if not (isinstance(node.op, Map) and node.op.function == function):
                continue
            for place, arg in enumerate(node.args):
                others = [a for a in node.args if a != arg]
                neutral = all(isinstance(program.nodes[a].op, Constant) for a in others)
                if program.nodes[arg].type == node.type and not neutral:
                    yield changed(program, position, _kept(place))
                    break

    return mutants


def no_mask(program: Program) -> Iterator[Program]:
    """A selection takes one of its branches everywhere."""
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Map) and node.op.function == "where":
            for place in (1, 2):
                if program.nodes[node.args[place]].type == node.type:
                    yield changed(program, position, _kept(place))


# --- terms left out -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Combined:
    """A node that combines its first operand over an axis, and what it is without any terms."""

    position: int
    axis: str
    neutral: float


def _combining(program: Program) -> Iterator[Combined]:
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Contract):
            over, kind = node.op.over, "sum"
        elif isinstance(node.op, Reduce):
            over, kind = node.op.over, node.op.kind
        elif isinstance(node.op, Carry):
            over, kind = (node.op.axis,), node.op.kind
        else:
            continue
        first = program.nodes[node.args[0]]
        axis = next((axis for axis in reversed(over) if axis in first.axes), "")
        if axis and program.axes[axis] > 1:
            neutral = {"sum": 0.0, "prod": 1.0}.get(kind)
            yield Combined(
                position, axis, start_of(kind, first.dtype) if neutral is None else neutral
            )


def _masked(program: Program, one: Combined, missing: Callable[[Copy], int]) -> Program:
    """The combination with neutral terms where `missing` says so."""

    def change(copy: Copy, node: Node, args: tuple[int, ...]) -> int:
        dtype = copy.nodes[args[0]].dtype
        whole = dtype if dtype in ("f64", "i64") else "f32" if is_float(dtype) else "i32"
        neutral = copy.constant(one.neutral if is_float(dtype) else int(one.neutral), whole)
        if whole != dtype:
            neutral = copy.add(Cast(dtype), neutral)
        cut = copy.mapped("where", missing(copy), neutral, args[0])
        return copy.add(node.op, cut, *args[1:])

    return changed(program, one.position, change)


def last_block(program: Program) -> Iterator[Program]:
    """The last quarter of an axis is not combined."""
    for one in _combining(program):
        start = program.axes[one.axis] * 3 // 4

        def missing(copy: Copy, axis: str = one.axis, start: int = start) -> int:
            return copy.mapped("le", copy.constant(start, "i32"), copy.add(Iota(axis)))

        yield _masked(program, one, missing)


def without_terms(program: Program, count: int) -> Iterator[Program]:
    """So many terms in the middle of an axis are not combined, for all elements alike."""
    for one in _combining(program):
        middle = program.axes[one.axis] // 2

        def missing(copy: Copy, axis: str = one.axis, middle: int = middle) -> int:
            iota = copy.add(Iota(axis))
            before = copy.mapped("lt", iota, copy.constant(middle + count // 2, "i32"))
            after = copy.mapped("le", copy.constant(middle - count // 2, "i32"), iota)
            return copy.mapped("and", before, after)

        yield _masked(program, one, missing)


def _eight_terms(program: Program) -> Iterator[Program]:
    """Eight terms are missing in the sums of every element."""
    yield from without_terms(program, 8)


PROGRAMS: dict[str, Callable[[Program], Iterator[Program]]] = {
    "no bias": _dropped("add"),
    "no scale": _dropped("mul"),
    "no divisor": _dropped("div"),
    "no mean": _dropped("sub"),
    "no mask": no_mask,
    "the last block of a sum": last_block,
    "eight terms of all sums": _eight_terms,
}


def wrong_programs(program: Program) -> Iterator[tuple[str, Iterator[Program]]]:
    """By the name of what is wrong: the programs that are wrong so, at one place each."""
    for what, mutants in PROGRAMS.items():
        yield what, (mutant for _, mutant in zip(range(_TRIED), mutants(program), strict=False))
