"""Exponentials of each part of a softmax relative to the part's own extreme.

A softmax over two sets of keys (a memory and what was said, a prefix that many share and what
follows) subtracts the largest score of both, so that what one set comes to waits for all scores of
the other. Relative to an extreme of its own each part is a chain that one pass can do, and the
parts are brought together behind their sums, as parts of one long sum are (flash decoding):

    sum over j of exp(s - max(a, b)) v  =  exp(a - max(a, b)) sum over j of exp(s - a) v,
                                           a = max over j of s

How each value changes with the extreme is followed from node to node (see `unshifted`), up to the
sums along the part's axes. No exponential is larger than 1 either way. Of a part that is wholly
masked the extreme is the lowest number, so that its sums are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from ir.dtypes import dtype_of, numpy_dtype
from ir.errors import ProgramError
from ir.ops.map import Constant, Map
from ir.ops.reduce import Contract, Reduce
from ir.program import Program
from ir.rewrite.graft import copy_node, graft
from ir.rewrite.tiered import is_product
from ir.rewrite.unshifted import NO_CHANGE, Change, ChangedOtherwise, changed
from ir.tiles import Tile, apply

NAME = "rebased"
WHY = "exponentials relative to a part's own extreme are corrected behind the part's sums"
ROUNDING = "the same roundings of numbers of another size"
_WIDE = ("f32", "f64")


@dataclass(frozen=True, slots=True)
class _Part:
    """What varies along the axes of one extreme, and sums of it, with how they change."""

    extreme: int
    inside: dict[int, Change]
    sums: dict[int, Change]


def rewritten(program: Program) -> tuple[int, Program] | None:
    """The program with the first extreme of several parts' in their places, and its node."""
    for position, extremes in _joint(program):
        parts = [_part(program, position, extreme) for extreme in extremes]
        found = [part for part in parts if part is not None]
        if len(found) == len(parts) and not _overlap(found):
            made = _made(program, position, found)
            if made is not None:
                return position, made
    return None


def read_again(program: Program) -> int:
    """Bytes of products that wait in memory for what others come to, written and read."""
    total = 0
    for position, extremes in _joint(program):
        for extreme in extremes:
            (scores,) = program.nodes[extreme].args
            if is_product(program, scores) and _part(program, position, extreme):
                total += 2 * dtype_of(program.nodes[scores].dtype).bytes * prod(
                    program.axes[axis] for axis in program.nodes[scores].axes
                )  # fmt: skip
    return total


def _joint(program: Program) -> Iterator[tuple[int, list[int]]]:
    """Extremes of several, with those of them that are along axes of their own."""
    for position, node in enumerate(program.nodes):
        if not _is_largest(program, position) or node.dtype not in _WIDE:
            continue
        extremes = [
            leaf for leaf in _leaves(program, position)
            if isinstance(op := program.nodes[leaf].op, Reduce) and op.kind == "max"
        ]  # fmt: skip
        along = [axis for leaf in extremes for axis in _over(program, leaf)]
        if len(extremes) > 1 and len({*along}) == len(along):
            yield position, extremes


def _is_largest(program: Program, position: int) -> bool:
    op = program.nodes[position].op
    return isinstance(op, Map) and op.function == "max"


def _leaves(program: Program, position: int) -> Iterator[int]:
    if not _is_largest(program, position):
        yield position
        return
    for arg in dict.fromkeys(program.nodes[position].args):
        yield from _leaves(program, arg)


def _over(program: Program, position: int) -> tuple[str, ...]:
    op = program.nodes[position].op
    return op.over if isinstance(op, Contract | Reduce) else ()


def _part(program: Program, joint: int, extreme: int) -> _Part | None:
    """What an extreme's axes have of the joint one; None where that changes in another way."""
    along, own = {*_over(program, extreme)}, frozenset(program.nodes[joint].axes)
    part = _Part(extreme, {}, {})
    for position in range(joint + 1, len(program.nodes)):
        node = program.nodes[position]
        inside = bool(along & {*node.axes})
        known = {joint: Change(moved=1.0)} | part.inside
        if not any(arg in part.inside or (inside and arg == joint) for arg in node.args):
            continue
        try:
            change = changed(program, node, [known.get(arg, NO_CHANGE) for arg in node.args], own)
        except ChangedOtherwise:
            return None
        if inside:
            part.inside[position] = change
        elif change.moved or not isinstance(node.op, Contract | Reduce):
            return None
        else:
            part.sums[position] = change
    return part if any(change.scaled for change in part.sums.values()) else None


def _overlap(parts: list[_Part]) -> bool:
    places = [place for part in parts for place in (*part.inside, *part.sums)]
    return len({*places}) < len(places)


def _made(program: Program, joint: int, parts: list[_Part]) -> Program | None:
    graph, made = graft(program), list[Tile]()
    own: dict[int, Tile] = {}  # extremes in the joint one's place
    inside = {place: part for part in parts for place in part.inside}
    sums = {place: part for part in parts for place in part.sums}
    try:
        for position, node in enumerate(program.nodes):
            part = inside.get(position) or sums.get(position)
            args = [made[arg] for arg in node.args]
            if part is not None and joint in node.args and position in part.inside:
                own.setdefault(part.extreme, _finite(made[part.extreme]))
                args = [own[part.extreme] if a == joint else made[a] for a in node.args]
            tile = copy_node(graph, program, position, args)
            if part is not None and position in part.sums:
                tile = _corrected(tile, made[joint], own[part.extreme], part.sums[position])
            made.append(tile)
        return graph.program()
    except ProgramError:
        return None


def _finite(extreme: Tile) -> Tile:
    """It, or the lowest number of its type."""
    lowest = float(np.finfo(numpy_dtype(extreme.dtype)).min)
    return apply("max", extreme, extreme.graph.add(Constant(lowest, extreme.dtype)))


def _corrected(found: Tile, joint: Tile, own: Tile, change: Change) -> Tile:
    if not change.scaled:
        return found
    down = own - joint
    return found * apply("exp", down if change.scaled == -1 else down * -change.scaled)
