"""What phases leave for each other in the type that all of its readers round it to, and whole
numbers in the narrowest type that holds them.

The rounding is the readers' own, made once by who writes the value instead of by each of them:
every bit stays, and half the bytes go through memory. So do whole numbers, of which bounds are
known by what they are made of: extremes of bytes are bytes. Knows no target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ir.builder import Graph
from ir.dtypes import dtype_of, is_float
from ir.ops.load import Load
from ir.ops.map import Cast, Map
from ir.ops.read import Read
from ir.ops.recur import Before, Recur
from ir.ops.scatter import Scatter
from ir.ops.store import Store
from ir.ops.top import Top
from ir.program import Program
from ir.ranges import Range, integer_range, narrowest
from ir.rewrite.graft import copy_node
from ir.tiles import Tile

_NARROW = 16  # bits
_MADE_THERE = (Scatter, Top, Before, Recur)  # whose values are combined in memory, or read there
_COMPARE = ("lt", "le", "eq")
_WIDE, _WHOLE = "f32", ("i32", "i64")


def stored_narrow(programs: Sequence[Program], own: frozenset[str]) -> tuple[Program, ...]:
    """Programs that run in order, with what they leave for each other as narrow as it is read;
    tensors of `own` are somebody else's."""
    left = {
        spec.name
        for program in programs
        if not any(isinstance(node.op, _MADE_THERE) for node in program.nodes)
        for spec in program.outputs
        if spec.dtype == _WIDE and _stored_as_it_is(program, spec.name)
    }
    readers: dict[str, set[str]] = {}
    for program in programs:
        for name, rounded in _reads(program):
            readers.setdefault(name, set()).add(rounded)
    narrow = {
        name: min(to)
        for name, to in readers.items()
        if name in left - own and len(to) == 1 and _is_narrow(min(to))
    }
    programs = tuple(_rewritten(one, narrow) if narrow else one for one in programs)
    return _whole_narrow(programs, own)


def _whole_narrow(programs: Sequence[Program], own: frozenset[str]) -> tuple[Program, ...]:
    """The same with whole numbers as narrow as they are known to be, those of earlier programs
    first: what later ones make of them is known then."""
    if not any(spec.dtype in _WHOLE for program in programs for spec in program.outputs):
        return tuple(programs)
    fills: dict[str, set[float]] = {}
    for program in programs:
        for node in program.nodes:
            if isinstance(node.op, Load) and node.op.fill is not None:
                fills.setdefault(node.op.tensor, set()).add(node.op.fill)
    own |= {name for program in programs for name in _telling(program)}
    narrow: dict[str, str] = {}
    known: dict[str, Range] = {}
    made = []
    for program in programs:
        read = _rewritten(program, narrow)
        if not any(isinstance(node.op, _MADE_THERE) for node in read.nodes):
            less = {}
            for spec in read.outputs:
                bounds = None
                if spec.dtype in _WHOLE and spec.name not in own:
                    bounds = _bounds(read, spec.name, fills.get(spec.name, set()), known)
                if bounds is not None and narrowest(spec.dtype, bounds) != spec.dtype:
                    less[spec.name], known[spec.name] = narrowest(spec.dtype, bounds), bounds
            read = _rewritten(read, less)
            narrow |= less
        made.append(read)
    return tuple(made)


def _telling(program: Program) -> Iterator[str]:
    """Tensors of whole numbers that say where something is, or whether: they are compared, and are
    indices. Loops end at such numbers as they are."""
    for position, node in enumerate(program.nodes):
        if not isinstance(node.op, Load) or node.dtype not in _WHOLE:
            continue
        pending, seen = [position], set[int]()
        while pending:
            for user in program.users(pending.pop()):
                op = program.nodes[user].op
                told = isinstance(op, Map) and op.function in _COMPARE
                if told or isinstance(op, Load | Read | Scatter):
                    yield node.op.tensor
                elif isinstance(op, Map | Cast) and user not in seen:
                    seen.add(user)
                    pending.append(user)


def _bounds(
    program: Program, name: str, fills: Iterable[float], known: Mapping[str, Range]
) -> Range | None:
    """Of all whole numbers that are stored in a tensor, or stand for what lies outside of it, by
    the bounds of tensors before; None where they are not known."""
    nodes = program.nodes
    assumed = {
        position: known[node.op.tensor]
        for position, node in enumerate(nodes)
        if isinstance(node.op, Load) and node.op.tensor in known
    }
    low, high = int(min(fills, default=0)), int(max(fills, default=0))
    for node in nodes:
        if isinstance(node.op, Store) and node.op.tensor == name:
            bounds = integer_range(program, node.args[0], assumed)
            if bounds is None or nodes[node.args[0]].dtype != program.scope.tensors[name].dtype:
                return None
            low, high = min(low, bounds[0]), max(high, bounds[1])
    return low, high


def _stored_as_it_is(program: Program, name: str) -> bool:
    """Whether what is stored is of the tensor's type: it would be rounded twice otherwise, and once
    where it is stored narrow."""
    values = (store.args[0] for store in program.nodes if isinstance(store.op, Store)
              and store.op.tensor == name)  # fmt: skip
    return all(program.nodes[value].dtype == _WIDE for value in values)


def _is_narrow(dtype: str) -> bool:
    return bool(dtype) and is_float(dtype) and dtype_of(dtype).bits <= _NARROW


def _reads(program: Program) -> Iterator[tuple[str, str]]:
    """Each tensor that is read, with a type that what was read is rounded to; "" for any other use,
    and where another number than 0 stands for what lies outside."""
    for position, node in enumerate(program.nodes):
        if not isinstance(node.op, Load):
            continue
        ops = [program.nodes[user].op for user in program.users(position)]
        if node.op.fill or not ops:
            yield node.op.tensor, ""
        for op in ops:
            yield node.op.tensor, op.dtype if isinstance(op, Cast) else ""


def _rewritten(program: Program, narrow: Mapping[str, str]) -> Program:
    if not narrow.keys() & {spec.name for spec in program.tensors}:
        return program
    tensors = tuple(
        replace(spec, dtype=narrow[spec.name]) if spec.name in narrow else spec
        for spec in program.tensors
    )
    graph = Graph.like(program.name, program.axes, tensors, program.pins)
    made: list[Tile] = []
    for position, node in enumerate(program.nodes):
        args = [made[arg] for arg in node.args]
        if isinstance(node.op, Store) and node.op.tensor in narrow:
            args = [graph.add(Cast(narrow[node.op.tensor]), *args)]
        read = program.nodes[node.args[0]].op if node.args else None
        known = isinstance(read, Load) and narrow.get(read.tensor, "")
        if isinstance(node.op, Cast) and known and is_float(known):
            made.append(args[0])
        elif isinstance(node.op, Load) and not is_float(narrow.get(node.op.tensor, _WIDE)):
            made.append(graph.add(Cast(node.dtype), copy_node(graph, program, position, args)))
        else:
            made.append(copy_node(graph, program, position, args))
    return graph.program()
