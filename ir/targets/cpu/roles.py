"""How a stage's register tile meets its operands and the threads, role by role.

A role is "lane" (the axis along vectors) or "row"; an operand belongs to the one that it has and
the other has not: of a product one operand is read by vectors, the other one broadcast.
"""

from __future__ import annotations

import numpy as np

from ir.targets.cpu.costs import StageCosts
from ir.targets.cpu.crowding import crowding, pitch
from ir.targets.cpu.operands import LINE
from ir.targets.cpu.regions import Array

ROLES = ("lane", "row")
ROLE_NAMES = tuple(
    f"{role}.{what}"
    for role in ROLES
    for what in ("packed", "again", "strip", "panel", "crowded", "split", "shared")
)
Table = dict[str, Array]


def role_table(costs: StageCosts) -> Table:
    """Values of `ROLE_NAMES`; NaN where a role has no operand."""
    table: Table = {}
    lanes, rows = _has(costs, "lane"), _has(costs, "row")
    for role, mine, others in (("lane", lanes, rows), ("row", rows, lanes)):
        belongs = [one * (1.0 - other) for one, other in zip(mine, others, strict=True)]
        table |= _operands(costs, role, belongs)
        table[f"{role}.shared"] = _shared(costs, role)
    return table


def _has(costs: StageCosts, role: str) -> list[Array]:
    """For each operand, 1 where the axis of a role is one of its own."""
    found = []
    for operand in costs.facts.operands:
        here = np.zeros(costs.rows_count)
        for axis in costs.stage.parallel:
            if axis in operand.axes:
                here = here + costs.along(role, axis)
        found.append(here)
    return found


def _operands(costs: StageCosts, role: str, belongs: list[Array]) -> Table:
    """Packing and footprints of the operands of one role: bytes of a strip of register tiles
    against L1, of a block against L2, and what their rows' distance does to them in place."""
    zero = np.zeros(costs.rows_count)
    count, packed, again, strip, panel, crowded, split = (zero,) * 7
    block, program = len(costs.regions.depths) - 1, costs.facts.staged.program
    for operand, volumes, mine in zip(costs.facts.operands, costs.volumes, belongs, strict=True):
        if operand.written or not mine.any():
            continue
        unpacked = costs.unpacked(operand)
        count, packed = count + mine, packed + mine * (1.0 - unpacked)
        again = np.maximum(again, mine * np.log2(np.maximum(costs.packings(operand), 1.0)))
        strip, panel = strip + mine * volumes[-2], panel + mine * volumes[block]
        factor = np.log2(crowding(program, operand, costs.depths[-2]))
        crowded = np.maximum(crowded, mine * unpacked * factor)
        split = np.maximum(split, mine * unpacked * float(pitch(program, operand) % LINE > 0))
    none = count == 0
    capacities = costs.capacities()
    found = {
        "packed": packed / np.maximum(count, 1.0), "again": again, "crowded": crowded,
        "strip": np.log2(np.maximum(strip, 1.0) / capacities["l1"]),
        "panel": np.log2(np.maximum(panel, 1.0) / capacities["l2"]), "split": split,
    }  # fmt: skip
    return {f"{role}.{name}": np.where(none, np.nan, values) for name, values in found.items()}


def _shared(costs: StageCosts, role: str) -> Array:
    """1 where threads share the axis of a role."""
    found = np.zeros(costs.rows_count)
    for choice in costs.regions.domain("parallel"):
        dealt = costs.regions.flag("parallel", choice)
        for axis in choice.split():
            found = np.maximum(found, dealt * costs.along(role, axis))
    return found
