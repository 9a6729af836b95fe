"""Exponents that are a function of one axis plus a function of another: how they change along one.

A difference of coordinates stays one of whole numbers, so that it is as exact as in the text.
"""

from __future__ import annotations

from ir.builder import cast
from ir.dtypes import holds, is_float
from ir.ops.map import Cast, Constant, Iota, Map
from ir.program import Program
from ir.rewrite.substitution import Place, Substitution
from ir.tiles import Tile


def is_separable(program: Program, position: int, i: str, j: str) -> bool:
    """Whether a value is a function of `i` plus a function of `j`."""
    node = program.nodes[position]
    if not (i in node.axes and j in node.axes):
        return True
    if isinstance(node.op, Cast):
        source = program.nodes[node.args[0]].dtype
        exact = not is_float(source) or holds(node.dtype, source)
        return exact and is_float(node.dtype) and is_separable(program, node.args[0], i, j)
    if not isinstance(node.op, Map):
        return False
    if node.op.function in ("add", "sub", "neg"):
        return all(is_separable(program, arg, i, j) for arg in node.args)
    if node.op.function in ("mul", "div"):
        inner = _multiple(program, position, i, j)
        return inner is not None and is_separable(program, inner[0], i, j)
    return _distance(program, position, i, j) is not None


def change(
    values: Substitution, position: int, i: str, j: str, to: Place, since: Place
) -> Tile | None:
    """A separable value at one place of `i` less that at another, the same j; None if it is 0."""
    program = values.program
    node = program.nodes[position]
    if i not in node.axes:
        return None
    if j not in node.axes:
        return values.at(position, {i: to}) - values.at(position, {i: since})
    if isinstance(node.op, Cast):
        found = change(values, node.args[0], i, j, to, since)
        return None if found is None else cast(found, node.dtype)
    assert isinstance(node.op, Map)
    if node.op.function in ("mul", "div"):
        inner = _multiple(program, position, i, j)
        assert inner is not None
        found, other = change(values, inner[0], i, j, to, since), values.at(inner[1], {})
        if found is None:
            return None
        return found * other if node.op.function == "mul" else found / other
    distance = _distance(program, position, i, j)
    if distance is not None:
        return change(values, distance, i, j, to, since)
    parts = [change(values, arg, i, j, to, since) for arg in node.args]
    if node.op.function == "neg":
        return None if parts[0] is None else -parts[0]
    left, right = parts
    if left is None or right is None:
        only = left if right is None else right
        turned = right is not None and node.op.function == "sub"
        return -only if only is not None and turned else only
    return left + right if node.op.function == "add" else left - right


def _multiple(program: Program, position: int, i: str, j: str) -> tuple[int, int] | None:
    """A value and what it is multiplied with, or divided by, which has neither axis."""
    node = program.nodes[position]
    fixed = [arg for arg in node.args if not {i, j} & set(program.nodes[arg].axes)]
    if len(fixed) != 1 or (node.op == Map("div") and fixed[0] != node.args[1]):
        return None
    return next(arg for arg in node.args if arg != fixed[0]), fixed[0]


def _distance(program: Program, position: int, i: str, j: str) -> int | None:
    """The node of i - j, of which the maximum with 0 is taken: at i >= j the same."""
    node = program.nodes[position]
    if node.op != Map("max"):
        return None
    for one, other in (node.args, node.args[::-1]):
        zero, inner = program.nodes[other].op, program.nodes[one]
        if isinstance(zero, Constant) and zero.value == 0 and inner.op == Map("sub"):
            ops = [program.nodes[arg].op for arg in inner.args]
            if ops == [Iota(i), Iota(j)]:
                return one
    return None
