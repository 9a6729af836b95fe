"""Exponentials relative to a number, where they were to an extreme that need not be found.

A softmax subtracts the largest score lest an exponential overflows. It cancels: moved by any
amount, numerators and denominators are multiplied by the same factor, and a logarithm of the sum is
moved back. Where scores lie between known ends (a tangent times 50, bytes), no exponential
overflows without it:

    exp(s - max s) / sum exp(s - max s)  =  exp(s) / sum exp(s)

So rows are read once, and a kernel that has running sums never corrects them. How each value
changes when the extreme moves is followed from node to node: it is moved by a multiple of the
amount, or multiplied by a power of its exponential, or left as it was, as all that is stored has to
be. An amount differs from row to row, so what goes along the extreme's own axes is not summed along
them. What is no number, in a row whose scores are all masked, is none either way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ir.dtypes import STEPPED, dtype_of, holds, is_float, overflow
from ir.errors import ProgramError
from ir.ops.map import Cast, Constant, Map
from ir.ops.reduce import Contract, Reduce
from ir.program import Node, Program
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.spans import Span, spans_of
from ir.tiles import Tile

NAME = "unshifted"
WHY = "an extreme that cancels keeps exponentials from overflowing, which known ends do as well"
ROUNDING = "the same roundings of numbers of another size"
_FURTHEST = 60.0  # exponents up to which sums of exponentials times what is weighed stay floats
_DEEP = 2.0**4  # times the least normal number of a type, above which weights have all its bits


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of a value when the extreme moves by d: + `moved` d, or times e^(`scaled` d)."""

    moved: float = 0.0
    scaled: float = 0.0


NO_CHANGE = Change()


class ChangedOtherwise(Exception):
    """A value changes in another way than a `Change` says."""


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program without the first extreme that cancels, and its node; None without such."""
    if not any(_is_extreme(node) for node in program.nodes):
        return None
    spans = spans_of(program)
    for position, node in enumerate(program.nodes):
        (span, *_) = [spans[arg] for arg in node.args] or [Span()]
        if not _is_extreme(node) or not span.known or span.least > span.most:
            continue
        changes = _changes(program, position)
        if changes is None:
            continue
        for number in (0.0, 0.5 * (span.least + span.most)):
            made = _without(program, position, number)
            if made is not None and _fits(program, changes, *made):
                return position, made[0]
    return None


def _is_extreme(node: Node) -> bool:
    return isinstance(node.op, Reduce) and node.op.kind == "max" and is_float(node.dtype)


def _changes(program: Program, extreme: int) -> dict[int, Change] | None:
    """How values change with an extreme; None where it does not cancel, or is in no exponential."""
    own = frozenset(program.nodes[extreme].axes)
    found = {extreme: Change(moved=1.0)}
    try:
        for position in range(extreme + 1, len(program.nodes)):
            node = program.nodes[position]
            if any(arg in found for arg in node.args):
                change = changed(
                    program, node, [found.get(arg, NO_CHANGE) for arg in node.args], own
                )
                if change != NO_CHANGE:
                    found[position] = change
    except ChangedOtherwise:
        return None
    return found if any(_is(program, position, "exp") for position in found) else None


def changed(program: Program, node: Node, args: list[Change], own: frozenset[str]) -> Change:
    """How a node changes with an extreme of axes `own`, as its arguments do."""
    op = node.op
    if isinstance(op, Cast) and is_float(node.dtype) and node.dtype not in STEPPED:
        if args[0].moved and not holds(node.dtype, program.nodes[node.args[0]].dtype):
            raise ChangedOtherwise
        return args[0]
    if isinstance(op, Contract | Reduce) and not own & {*op.over}:
        return _combined(op, args)
    if isinstance(op, Map):
        return _mapped(program, op.function, node.args, args)
    raise ChangedOtherwise


def _combined(op: Contract | Reduce, args: list[Change]) -> Change:
    if any(change.moved for change in args):
        raise ChangedOtherwise
    if isinstance(op, Contract):
        return Change(scaled=sum(change.scaled for change in args))
    if op.kind not in ("sum", "max", "min"):
        raise ChangedOtherwise
    return args[0]


def _mapped(program: Program, function: str, nodes: tuple[int, ...], args: list[Change]) -> Change:
    first = args[0]
    if function == "neg":
        return Change(-first.moved, first.scaled)
    if function in ("add", "sub"):
        return _added(program, function, nodes, args)
    if function in ("mul", "div"):
        return _multiplied(program, function, nodes, args)
    if function == "where" and first == NO_CHANGE:
        return _alike(program, nodes[1:], args[1:])
    if function in ("max", "min"):
        return _alike(program, nodes, args)
    if function == "exp" and not first.scaled:
        return Change(scaled=first.moved)
    if function == "log" and not first.moved:
        return Change(moved=first.scaled)
    if function in ("sqrt", "rsqrt", "abs") and not first.moved:
        return Change(scaled=first.scaled * {"sqrt": 0.5, "rsqrt": -0.5, "abs": 1.0}[function])
    raise ChangedOtherwise


def _added(program: Program, function: str, nodes: tuple[int, ...], args: list[Change]) -> Change:
    left, right = args
    if not (left.scaled or right.scaled):
        return Change(moved=left.moved + (right.moved if function == "add" else -right.moved))
    return _alike(program, nodes, args)


def _multiplied(
    program: Program, function: str, nodes: tuple[int, ...], args: list[Change]
) -> Change:
    left, right = args
    if not (left.moved or right.moved):
        return Change(scaled=left.scaled + (right.scaled if function == "mul" else -right.scaled))
    moved, other = (left, nodes[1]) if left.moved else (right, nodes[0])
    number = program.nodes[other].op
    if moved.scaled or not isinstance(number, Constant) or number.value == 0:
        raise ChangedOtherwise
    if function == "div":
        if right.moved:
            raise ChangedOtherwise
        return Change(moved=moved.moved / number.value)
    return Change(moved=moved.moved * number.value)


def _alike(program: Program, nodes: tuple[int, ...], args: list[Change]) -> Change:
    """Of values that change together; 0 is multiplied by anything, and -inf moved."""
    found: set[Change] = set()
    for node, change in zip(nodes, args, strict=True):
        op = program.nodes[node].op
        number = op.value if isinstance(op, Constant) and change == NO_CHANGE else None
        others = [other for other in args if other != NO_CHANGE]
        scaled = bool(others) and not any(other.moved for other in others)
        if number is None or number != (0.0 if scaled else -math.inf):
            found.add(change)
    if len(found) != 1:
        raise ChangedOtherwise
    return found.pop()


def _without(
    program: Program, extreme: int, number: float
) -> tuple[Program, dict[int, int]] | None:
    """The program with a number for an extreme, and where each node is in it."""
    graph, made = graft(program), list[Tile]()
    for position, node in enumerate(program.nodes):
        args = [made[arg] for arg in node.args]
        if position == extreme:
            made.append(graph.add(Constant(number, node.dtype)))
        elif number == 0 and _is(program, position, "sub") and node.args[1] == extreme:
            made.append(args[0])
        else:
            try:
                made.append(copy_node(graph, program, position, args))
            except ProgramError:
                return None
    try:
        return graph.program(), {p: tile.position for p, tile in enumerate(made)}
    except ProgramError:
        return None


def _fits(
    program: Program, changes: dict[int, Change], made: Program, places: dict[int, int]
) -> bool:
    """Whether exponentials are numbers of their types, and none is too small to have its bits."""
    spans = spans_of(made)
    inner = {
        position: spans[places[program.nodes[position].args[0]]]
        for position in changes
        if _is(program, position, "exp")
    }
    if any(not span.known or _furthest(span) > _FURTHEST for span in inner.values()):
        return False
    for position, change in changes.items():
        node = program.nodes[position]
        short = dtype_of(node.dtype).exponent < dtype_of("f32").exponent
        if change.scaled and short and is_float(node.dtype):
            span = inner.get(_exponential(program, position))
            if span is None or not _has_bits(node.dtype, span):
                return False
    return True


def _furthest(span: Span) -> float:
    return max(abs(span.least), abs(span.most))


def _exponential(program: Program, position: int) -> int:
    """What a value is where no mask makes it 0, in its own type."""
    node = program.nodes[position]
    while isinstance(node.op, Cast) or (
        _is(program, position, "where") and _is_number(program, node.args[2], 0.0)
    ):
        position = node.args[-2] if isinstance(node.op, Map) else node.args[0]
        node = program.nodes[position]
    return position


def _is_number(program: Program, position: int, number: float) -> bool:
    op = program.nodes[position].op
    return isinstance(op, Constant) and op.value == number


def _has_bits(dtype: str, span: Span) -> bool:
    """Whether a type has the exponentials of a span with all bits of its mantissa."""
    kind = dtype_of(dtype)
    least = 2.0 ** (2 - 2 ** (kind.exponent - 1)) * _DEEP
    return math.exp(span.least) >= least and math.exp(span.most) < overflow(dtype)


def _is(program: Program, position: int, function: str) -> bool:
    op = program.nodes[position].op
    return isinstance(op, Map) and op.function == function
