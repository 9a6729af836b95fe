"""Blocks of a cluster that share an operand: which one a block is, and the mask of all, as text."""

from __future__ import annotations

from ir.targets.cuda.layouts.operands import OperandTile
from ir.targets.cuda.plans.tensor_plan import Plan


def peer_rank(plan: Plan, operand: OperandTile) -> str:
    """The number of a block among those that share the operand."""
    rows, columns = _shares(plan, operand)
    height = plan.cluster[0]
    if rows and columns:
        return "rank"
    return f"(rank % {height})" if rows else f"(rank / {height})"


def first_line(plan: Plan, operand: OperandTile) -> str:
    """The first line of a panel that this block copies for all; empty if it copies every line."""
    peers = plan.peers(operand)
    return f"{peer_rank(plan, operand)} * {operand.lines[0][1] // peers}" if peers > 1 else ""


def peer_mask(plan: Plan, operand: OperandTile) -> str:
    """A bit for each block of the cluster that shares the operand with this one."""
    rows, columns = _shares(plan, operand)
    height, width = plan.cluster
    first = f" + {first_block(plan)}" if plan.exchanges else ""
    if rows and columns:
        every = str((1 << (height * width)) - 1)
        return f"{every} << ({first_block(plan)})" if first else every
    if rows:
        return f"{(1 << height) - 1} << (rank / {height} * {height}{first})"
    bits = sum(1 << (i * height) for i in range(width))
    return f"{bits} << (rank % {height}{first})"


def first_block(plan: Plan) -> str:
    """The first block of the cluster that has the same part of a sum as this one."""
    return f"own_part * {plan.cluster_size}"


def _shares(plan: Plan, operand: OperandTile) -> tuple[bool, bool]:
    """Whether the operand is the same along the cluster's rows, and its columns."""
    axes = set(plan.program.nodes[operand.position].axes)
    rows = plan.cluster[0] > 1 and not axes & set(plan.roles.rows)
    columns = plan.cluster[1] > 1 and not axes & set(plan.roles.columns)
    return rows, columns
