"""Which of an epilogue's operands may be asked for before they are needed: the decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ir.columns import Decision
from ir.dtypes import dtype_of
from ir.handed import all_handed
from ir.ops.load import Load
from ir.ops.store import Store
from ir.program import Program
from ir.schedule import Value
from ir.stages import is_reduction

NAME = "epilogue_ahead"
AHEAD = (0, 2, 4, 8, 16)  # blocks of columns that one instruction has neighbours in
USUAL = 8  # as many as memory takes longer than


def ahead_decision(name: str, owner: str, program: Program) -> Decision | None:
    """The decision, where something that is stored is made of more than sums."""
    late = any(late_loads(program, position) for position in _stores(program))
    if not late or all_handed(program):
        return None
    why = "columns whose operands an epilogue asks for before it needs them, by the instruction's"
    return Decision(name, AHEAD, "epilogue", owner, why, 0, unsaid=0)


def asked_for(
    seeds: list[dict[str, Value]], name: str, domains: Mapping[str, object]
) -> list[dict[str, Value]]:
    """Seeds that ask ahead, where that is a decision, before those that do not."""
    if name not in domains:
        return seeds
    return [{**seed, name: USUAL} for seed in seeds] + seeds


def _stores(program: Program) -> list[int]:
    return [p for p, node in enumerate(program.nodes) if isinstance(node.op, Store)]


def late_loads(program: Program, position: int) -> list[int]:
    """Loads that a store's value is made of by functions of single points."""
    pending, seen = list(program.nodes[position].args), dict[int, bool]()
    while pending:
        here = pending.pop()
        node = program.nodes[here]
        if here in seen or is_reduction(node):
            continue
        seen[here] = isinstance(node.op, Load)
        if not seen[here]:
            pending.extend(node.args)
    return sorted(position for position, load in seen.items() if load)


def words_of(program: Program, rows: set[str], columns: set[str], down: Any) -> Any:
    """Registers of a thread for the operands of one block of columns, if it has `down` rows: the
    store's with the most."""
    most: Any = 0
    for store in _stores(program):
        total: Any = 0
        for load in late_loads(program, store):
            node = program.nodes[load]
            if not columns & {*node.axes}:
                continue
            pairs = -(-2 * dtype_of(node.dtype).bytes // 4)
            total = total + pairs * (down if rows & {*node.axes} else 1)
        most = np.maximum(most, total)
    return most
