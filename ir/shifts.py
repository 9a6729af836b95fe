"""Maxima and minima that are only there to keep numbers small: no output feels by how much.

A softmax subtracts the largest score before its exponentials and divides by their sum; a
log-sum-exp adds it again behind the logarithm. Were it any other number, the same would come out.
So an error of it is none of theirs, and of a recurrence of such sums (the forward algorithm of a
hidden Markov model) errors do not grow with its steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ir.ops.map import Cast, Constant, Map
from ir.ops.reduce import Contract, Reduce
from ir.program import Node, Program


@dataclass(frozen=True, slots=True)
class _Moves:
    """How a value goes along when the maximum grows by t: by `by` times t (a sum), or by the factor
    exp(by t) (`factor`). With `by` 0 it stays, as an infinity does whichever way it is moved
    (`endless`), and `zero` by any factor."""

    by: float = 0.0
    factor: bool = False
    endless: bool = False
    zero: bool = False

    def fits(self, factor: bool) -> bool:
        """Whether it is the same moved or not."""
        return self.endless or (self.zero and factor)


_STAYS = _Moves()
_COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")


@lru_cache(maxsize=64)
def unfelt(program: Program) -> frozenset[int]:
    """The positions of maxima and minima of which every output is the same whatever they are."""
    return frozenset(
        position
        for position, node in enumerate(program.nodes)
        if _is_extreme(node) and _is_unfelt(program, position)
    )


def _is_extreme(node: Node) -> bool:
    """Whether a value is the largest or the smallest, of a sum's points or of two numbers."""
    if isinstance(node.op, Map):
        return node.op.function in ("max", "min")
    return isinstance(node.op, Reduce) and node.op.kind in ("max", "min")


def _is_unfelt(program: Program, start: int) -> bool:
    moves: dict[int, _Moves] = {start: _Moves(1.0)}
    own = set(program.nodes[start].axes)
    for position in range(start + 1, len(program.nodes)):
        node = program.nodes[position]
        if not any(arg in moves for arg in node.args):
            continue
        args = [moves.get(arg) or _still(program, arg) for arg in node.args]
        if all(arg.by == 0.0 for arg in args):
            continue
        found = _moved(program, node, args, own)
        if found is None:
            return False
        if found.by:
            moves[position] = found
    return True


def _still(program: Program, position: int) -> _Moves:
    op = program.nodes[position].op
    if not isinstance(op, Constant):
        return _STAYS
    return _Moves(endless=math.isinf(op.value), zero=op.value == 0)


def _moved(program: Program, node: Node, args: Sequence[_Moves], own: set[str]) -> _Moves | None:
    """How a node's value moves where one of its operands does; None if that is not known."""
    op = node.op
    if isinstance(op, Map):
        return _mapped(program, op, node, args)
    if isinstance(op, Cast):  # to a narrow type it rounds otherwise wherever it is moved to
        return args[0] if op.dtype in ("f32", "f64") else None
    if isinstance(op, Reduce | Contract):
        return _summed(op, args, own)
    return None  # outputs among them: they are to stay


def _summed(op: Reduce | Contract, args: Sequence[_Moves], own: set[str]) -> _Moves | None:
    """Of what is reduced over axes along which the maximum is one number."""
    if own & set(op.over):
        return None
    if isinstance(op, Contract):
        return _times(args[0], args[1], 1.0)
    if op.kind in ("max", "min"):
        return args[0]
    return args[0] if op.kind == "sum" and args[0].factor else None


def _mapped(program: Program, op: Map, node: Node, args: Sequence[_Moves]) -> _Moves | None:
    function, first = op.function, args[0]
    if function in ("add", "sub"):
        return _plus(args[0], args[1], 1.0 if function == "add" else -1.0)
    if function == "mul":
        return _times(args[0], args[1], 1.0) or _scaled(program, node, args)
    if function == "div":
        return _times(args[0], args[1], -1.0)
    if function == "exp":
        return None if first.factor else _Moves(first.by, True)
    if function == "log":
        return _Moves(first.by) if first.factor else None
    if function == "neg":
        return first if first.factor else _Moves(-first.by)
    if function in ("sqrt", "rsqrt"):
        half = 0.5 if function == "sqrt" else -0.5
        return _Moves(half * first.by, True) if first.factor else None
    if function in ("max", "min"):
        return _alike(args)
    if function == "where":
        return _alike(args[1:]) if first.by == 0.0 else None
    if function in _COMPARED:
        return _STAYS if _alike(args) else None
    return None


def _alike(args: Sequence[_Moves]) -> _Moves | None:
    """What all of them do, if it is the same."""
    factor = any(arg.factor for arg in args)
    moving = {(arg.by, arg.factor) for arg in args if not arg.fits(factor)}
    if len(moving) != 1:
        return None
    ((by, _),) = moving
    return _Moves(by, factor)


def _plus(left: _Moves, right: _Moves, sign: float) -> _Moves | None:
    """Sums of what moves by amounts, or by one factor."""
    if left.factor or right.factor:
        return _alike((left, right))
    return _Moves(left.by + sign * right.by)


def _times(left: _Moves, right: _Moves, sign: float) -> _Moves | None:
    """Products and quotients of what moves by factors, or not at all."""
    if any(one.by and not one.factor for one in (left, right)):
        return None
    return _Moves(left.by + sign * right.by, True)


def _scaled(program: Program, node: Node, args: Sequence[_Moves]) -> _Moves | None:
    """What moves by an amount, times a number that the program states."""
    for moving, other in ((0, 1), (1, 0)):
        op = program.nodes[node.args[other]].op
        if isinstance(op, Constant) and not args[moving].factor and not args[other].by:
            return _Moves(args[moving].by * float(op.value))
    return None
