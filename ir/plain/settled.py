"""Points of a state that a step leaves as they are, so that others may read them meanwhile.

Substitution in a triangular system takes row s off the rows below it: the row itself stays. If a
new state is, at the point that is read, the old one whatever the data (a choice by coordinates
leaves nothing to take off), it may take the old one's place at once. Factors are taken to be
finite: nothing times one is nothing.
"""

from __future__ import annotations

from typing import Final

from ir.ops.map import Cast, Constant, Iota, Map
from ir.ops.read import Read
from ir.ops.recur import Before
from ir.program import Program

_OLD, _NOTHING, _HERE, _TRUE, _FALSE = "old", "nothing", "here", "true", "false"
_OF_EQUALS: Final = {
    "lt": _FALSE, "gt": _FALSE, "ne": _FALSE, "le": _TRUE, "ge": _TRUE, "eq": _TRUE
}  # fmt: skip


def leaves(program: Program, before: int, after: int, read: int) -> bool:
    """Whether the state `before` is, where node `read` reads it, what it is after the step."""
    op, state = program.nodes[read].op, program.nodes[before].op
    if not isinstance(op, Read) or not isinstance(state, Before):
        return False
    if program.nodes[read].args != (before,) or op.fill is not None:
        return False
    own = program.nodes[before].axes
    moved = {
        axis
        for axis, index in zip(own, op.index, strict=True)
        if (index.terms, index.constant) != (((axis, 1),), 0)
    }
    to_step = (((state.axis, 1),), 0)
    indices = dict(zip(own, op.index, strict=True))
    if any((indices[axis].terms, indices[axis].constant) != to_step for axis in moved):
        return False
    found: dict[int, str] = {}
    for position in range(len(program.nodes)):
        found[position] = _known(program, position, before, moved | {state.axis}, found)
    return found[program.nodes[after].args[1]] == _OLD


def _known(
    program: Program, position: int, before: int, here: set[str], found: dict[int, str]
) -> str:
    """What a value is where the axes of `here` have the step's coordinate; "" if that depends."""
    node = program.nodes[position]
    args = [found[arg] for arg in node.args]
    match node.op:
        case Before():
            return _OLD if position == before else ""
        case Iota(axis=axis):
            return _HERE if axis in here else ""
        case Constant(value=value):
            return _NOTHING if value == 0 else ""
        case Cast(dtype=dtype):
            same = dtype == program.nodes[node.args[0]].dtype
            return args[0] if same or args[0] in (_NOTHING, _HERE) else ""
        case Map():
            return _mapped(node.op.function, args)
    return ""


def _mapped(function: str, args: list[str]) -> str:
    if function in _OF_EQUALS and args == [_HERE, _HERE]:
        return _OF_EQUALS[function]
    if function == "where" and args[0] in (_TRUE, _FALSE):
        return args[1] if args[0] == _TRUE else args[2]
    if function == "not" and args[0] in (_TRUE, _FALSE):
        return _FALSE if args[0] == _TRUE else _TRUE
    if function == "and":
        return _FALSE if _FALSE in args else _TRUE if args == [_TRUE, _TRUE] else ""
    if function == "or":
        return _TRUE if _TRUE in args else _FALSE if args == [_FALSE, _FALSE] else ""
    if function == "mul":
        return _NOTHING if _NOTHING in args else ""
    if function == "neg":
        return _NOTHING if args[0] == _NOTHING else ""
    if function in ("add", "sub") and args[1] == _NOTHING:
        return args[0]
    return args[1] if function == "add" and args[0] == _NOTHING else ""
