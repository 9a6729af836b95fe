"""Statistics of the same rows: which reductions between kernels are found in one pass.

A row's largest element and its sum of exponentials read the same row; each with a kernel of its own
would read it from memory again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ir.ops.load import Load
from ir.ops.map import Constant, Iota
from ir.ops.reduce import Contract, Reduce
from ir.program import Program
from ir.stages import is_reduction, reduced_axes
from ir.targets.cuda.build.products import is_elementwise


@dataclass(frozen=True, slots=True)
class _Part:
    """What a value is made of: what it reads, the largest of it, and along which axes it reduces;
    `plain` if by reductions of tiles and point by point alone."""

    reads: frozenset[int]
    rows: frozenset[int]
    over: frozenset[str]
    plain: bool


@dataclass(slots=True)
class _Group:
    """Values of one kernel, and what lies in memory before it begins."""

    part: _Part
    before: frozenset[int]
    nodes: list[int]


def with_statistics(program: Program, groups: Sequence[list[int]]) -> list[list[int]]:
    """Kernels by what they compute into memory, in order, those of the same rows as one."""
    own = {node: group for group in groups if len(group) > 1 for node in group}
    found: list[list[int]] = []
    for nodes in together_of(program, [node for group in groups for node in group], own):
        whole = own.get(nodes[0], nodes)
        if whole not in found:
            found.append(whole)
    return found


def together_of(
    program: Program, nodes: Sequence[int], placed: Collection[int] = ()
) -> list[list[int]]:
    """Values that go through memory by kernels, in order: those that reduce the same rows along the
    same axes have one, if nothing that another kernel makes of them comes between, and neither is
    `placed` beside others already."""
    groups: list[_Group] = []
    known: set[int] = set()
    for node in nodes:
        part = _part_of(program, node, known)
        for group in groups:
            alike = node not in placed and group.nodes[0] not in placed
            alike &= {*program.nodes[group.nodes[0]].axes} == {*program.nodes[node].axes}
            alike &= _alike(group.part, part)
            if alike and part.reads - {*group.nodes} <= group.before:
                group.nodes.append(node)
                break
        else:
            groups.append(_Group(part, frozenset(known), [node]))
        known.add(node)
    return [group.nodes for group in groups]


def _alike(first: _Part, other: _Part) -> bool:
    same = first.plain and other.plain and first.over == other.over
    return same and bool(other.rows) and other.rows <= first.rows


def _part_of(program: Program, node: int, known: set[int]) -> _Part:
    reads, over, plain = set[int](), set[str](), True
    pending, seen, loads = [node], set[int](), set[int]()
    while pending:
        here = pending.pop()
        if here in seen:
            continue
        seen.add(here)
        op = program.nodes[here].op
        if here in known and here != node:
            reads.add(here)
            continue
        if isinstance(op, Load):
            loads.add(here)
        elif is_reduction(program.nodes[here]):
            over.update(reduced_axes(program.nodes[here]))
            plain &= isinstance(op, Reduce | Contract)
        else:
            plain &= isinstance(op, Constant | Iota) or is_elementwise(program, here)
        pending.extend(program.nodes[here].args)
    whole = {*program.nodes[node].axes, *over}
    rows = frozenset(x for x in reads | loads if {*program.nodes[x].axes} == whole)
    rows = rows or frozenset(loads)  # rows that are made of what has fewer axes
    return _Part(frozenset(reads), rows, frozenset(over), plain and bool(over))
