"""Carries of a program: which advance together, and what reads them on the way. Knows no arrays."""

from __future__ import annotations

from collections.abc import Sequence

from ir.ops.reduce import Carry, Now
from ir.program import Program


def carry_at(program: Program, position: int) -> Carry:
    op = program.nodes[position].op
    assert isinstance(op, Carry)
    return op


def reads(program: Program, members: Sequence[int]) -> dict[int, list[int]]:
    """For each carry, its Now and Prior nodes."""
    found: dict[int, list[int]] = {member: [] for member in members}
    for position, node in enumerate(program.nodes):
        if isinstance(node.op, Now) and node.args[0] in found:
            found[node.args[0]].append(position)
    return found


def chained_carries(program: Program, position: int) -> tuple[int, ...]:
    """The carries that read each other's running values, directly or not, in program order."""
    axis = carry_at(program, position).axis
    links: dict[int, set[int]] = {}
    for other, node in enumerate(program.nodes):
        if isinstance(node.op, Carry) and node.op.axis == axis:
            links.setdefault(other, set())
            for source in running_sources(program, other):
                links[other].add(source)
                links.setdefault(source, set()).add(other)
    found, pending = {position}, [position]
    while pending:
        fresh = links[pending.pop()] - found
        found |= fresh
        pending.extend(fresh)
    return tuple(sorted(found))


def running_sources(program: Program, carry: int) -> set[int]:
    """Carries over the same axis whose Now or Prior the operands of `carry` read."""
    axis = carry_at(program, carry).axis
    found: set[int] = set()
    seen: set[int] = set()
    pending = list(program.nodes[carry].args)
    while pending:
        position = pending.pop()
        node = program.nodes[position]
        if position in seen or (isinstance(node.op, Carry) and node.op.axis == axis):
            continue
        seen.add(position)
        if isinstance(node.op, Now):
            found.update(a for a in node.args if carry_at(program, a).axis == axis)
        else:
            pending.extend(node.args)
    return found


def running_nodes(program: Program, members: Sequence[int]) -> frozenset[int]:
    """Nodes whose value changes from block to block because a running value of a member does."""
    found: set[int] = set()
    for position, node in enumerate(program.nodes):
        reads = isinstance(node.op, Now) and node.args[0] in members
        if reads or (position not in members and any(arg in found for arg in node.args)):
            found.add(position)
    return frozenset(found)
