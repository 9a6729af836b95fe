"""Factors that vary along few axes are multiplied with each other first: x a b is x (a b).

Each point of x is multiplied once then, and a b, which has fewer points, once for all that share
it: the scales of a block's rows and of its columns, of which a partial sum is one operation a point
(its product with a b is added to the sum) and not two. A product of as many factors is off by as
many roundings in any order. Constants stay where they are: two of them may be out of range
together. Knows no target.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ir.dtypes import is_float
from ir.ops.base import volume
from ir.ops.map import Constant, Map
from ir.program import Program
from ir.rewrite.graft import copy_node, graft
from ir.tiles import Tile

FEWER = 8  # times as few points as the whole has: less is not worth another order


@lru_cache(maxsize=1024)
def grouped(program: Program) -> Program:
    """The program with such factors in groups; it itself where there are none."""
    chains = {root: found for root in _roots(program) if (found := _chain(program, root))}
    if not chains:
        return program
    gone = {inner for _, inside in chains.values() for inner in inside}
    graph, made = graft(program), dict[int, Tile]()
    for position, node in enumerate(program.nodes):
        if position in gone:
            continue
        if position in chains:
            (first, *others), _ = chains[position]
            made[position] = _product(made, first)
            for group in others:
                made[position] = made[position] * _product(made, group)
        else:
            args = [made[arg] for arg in node.args]
            made[position] = copy_node(graph, program, position, args)
    return graph.program()


def _product(made: dict[int, Tile], factors: tuple[int, ...]) -> Tile:
    found = made[factors[0]]
    for factor in factors[1:]:
        found = found * made[factor]
    return found


def _is_product(program: Program, position: int) -> bool:
    node = program.nodes[position]
    return isinstance(node.op, Map) and node.op.function == "mul" and is_float(node.dtype)


def _roots(program: Program) -> Iterator[int]:
    """Products of floats that are no factors of another one alone."""
    for position in range(len(program.nodes)):
        if _is_product(program, position) and not any(
            _is_inside(program, position, user) for user in program.users(position)
        ):
            yield position


def _is_inside(program: Program, position: int, user: int) -> bool:
    """Whether a product is read by one that it may be multiplied out in, and by nothing else."""
    node, other = program.nodes[position], program.nodes[user]
    alone = program.users(position) == (user,) and other.args.count(position) == 1
    return alone and _is_product(program, user) and node.dtype == other.dtype


def _chain(
    program: Program, root: int
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]] | None:
    """The groups of factors of a product, those that have all of its axes first, and the products
    inside it that are not formed any more; None where no two factors are better together."""
    factors, inside, left = list[int](), list[int](), [root]
    while left:
        here = left.pop()
        if here == root or (
            _is_product(program, here)
            and any(_is_inside(program, here, user) for user in program.users(here))
        ):
            left += reversed(program.nodes[here].args)
            inside += [here] if here != root else []
        else:
            factors.append(here)
    whole, dtype = program.nodes[root].axes, program.nodes[root].dtype
    wide, groups = list[int](), list[list[int]]()
    for factor in factors:
        node = program.nodes[factor]
        if {*node.axes} == {*whole} or node.dtype != dtype or isinstance(node.op, Constant):
            wide.append(factor)
        else:
            groups.append([factor])
    least = volume(program.scope, whole) // FEWER
    joined = _joined(program, groups, least)

    def last(factor: int) -> tuple[bool, bool]:
        node = program.nodes[factor]
        return {*node.axes} != {*whole}, node.dtype != dtype

    wide.sort(key=last)
    # two factors of a narrower type would be rounded to it
    starts = wide and not last(wide[0])[0] and (len(wide) == 1 or not last(wide[0])[1])
    if len(joined) == len(groups) or not starts:
        return None
    return (tuple(wide), *map(tuple, joined)), tuple(inside)


def _joined(program: Program, groups: list[list[int]], least: int) -> list[list[int]]:
    """Groups of factors whose axes together have so few points, the longer ones first."""

    def axes(group: list[int]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(a for one in group for a in program.nodes[one].axes))

    found: list[list[int]] = []
    for group in sorted(groups, key=lambda one: -volume(program.scope, axes(one))):
        for other in found:
            if volume(program.scope, axes(other + group)) <= least:
                other += group
                break
        else:
            found.append([*group])
    return found
