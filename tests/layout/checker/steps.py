"""Maps, reductions and conversions performed thread by thread, shuffle by shuffle."""

from __future__ import annotations

from typing import Any

import numpy as np

from ir.layout.synthesis.problem import TileOp
from tests.layout.checker import copies
from tests.layout.checker.findings import Kind
from tests.layout.checker.oracle import evaluated
from tests.layout.checker.state import Machine, Plan
from tests.layout.checker.tables import Table, grid, offsets
from tests.layout.checker.values import Values, rounded

_FOLDS: dict[str, np.ufunc] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}


def elementwise(machine: Machine, plan: Plan, op: TileOp, where: str) -> None:
    """map, cast and fill: thread t's values from thread t's values."""
    output = plan["output"]
    shape = machine.registers[output].shape
    held = []
    for name, text in zip(plan["inputs"], plan["values"], strict=True):
        slots = offsets(text)
        if len(slots) != shape[1] or slots.max() >= machine.registers[name].shape[1]:
            detail = f"{len(slots)} values up to {slots.max()} of {name} for {shape[1]} of {output}"
            machine.report.add(Kind.OUT_OF_RANGE, where, detail)
            return
        held.append(machine.registers[name][:, slots])
    if op.kind == "fill":
        result: Values = np.full(shape, float(op.attribute("value", 0)))
    elif op.kind == "map":
        result = evaluated(str(op.attribute("expression")), dict(zip(op.inputs, held, strict=True)))
    else:
        result = held[0]
    machine.registers[output] = rounded(
        np.broadcast_to(result, shape).copy(), machine.plans[output]["dtype"]
    )


def reduction(machine: Machine, plan: Plan, op: TileOp, where: str) -> None:
    """In the thread, then across lanes by xor shuffles, then across warps through shared memory."""
    fold, output = _FOLDS[str(op.attribute("fn"))], plan["output"]
    slots = grid(plan["values"], 2)
    kept = machine.registers[output].shape[1]
    held = machine.registers[plan["input"]]
    if slots.shape[0] != kept or slots.max() >= held.shape[1]:
        detail = f"{slots.shape[0]} kept values for {kept}; up to {slots.max()} of {held.shape[1]}"
        machine.report.add(Kind.OUT_OF_RANGE, where, detail)
        return
    partial = fold.reduce(held[:, slots], axis=2)
    thread = np.arange(machine.threads)
    for mask in plan["lanes"]:
        if not 0 < mask < 32:
            machine.report.add(Kind.OUT_OF_RANGE, where, f"shuffle by lane mask {mask}")
            return
        partial = fold(partial, partial[thread ^ mask])
    for stride, extent in plan["digits"]:
        partial = _along(fold, partial, stride, extent)
    if plan["digits"] and plan["scratch_bytes"] <= 0:
        machine.report.add(Kind.OUT_OF_RANGE, where, "goes through shared memory of 0 bytes")
    machine.registers[output] = rounded(partial, machine.plans[output]["dtype"])
    _replicated(machine, output, plan["replicated"], where)


def _along(fold: np.ufunc, partial: Values, stride: int, extent: int) -> Values:
    """Fold over one digit of the thread number; every thread along it gets the result."""
    split = partial.reshape(-1, extent, stride, partial.shape[1])
    folded = fold.reduce(split, axis=1, keepdims=True)
    return np.broadcast_to(folded, split.shape).reshape(partial.shape).copy()


def _replicated(machine: Machine, name: str, digits: list[list[int]], where: str) -> None:
    """Threads along each digit must own the same elements and hold the same values."""
    for stride, extent in digits:
        for what, table in (("own", machine.owners(name)), ("hold", machine.registers[name])):
            if not constant_along(np.asarray(table), stride, extent):
                detail = (
                    f"threads along digit ({stride}, {extent}) {what} different things in {name}"
                )
                machine.report.add(Kind.FALSE_REPLICATION, where, detail)


def constant_along(table: Any, stride: int, extent: int) -> bool:
    """Whether table[thread, ...] is the same for all threads along one digit of their number."""
    if len(table) % (stride * extent):
        return False
    split = table.reshape(-1, extent, stride, table.shape[1])
    return bool(np.array_equal(split, np.broadcast_to(split[:, :1], split.shape), equal_nan=True))


def conversion(machine: Machine, plan: Plan, where: str) -> None:
    """Renames, exchanges and lane moves within warps, or a round trip through shared memory."""
    _classed(machine, plan, where)
    if plan["scratch"] is not None:
        machine.admit(plan["scratch"])
        copies.perform(machine, plan["store"], f"{where} store")
        copies.perform(machine, plan["load"], f"{where} load")
        return
    held = machine.registers[plan["source"]]
    for move in plan["moves"]:
        held = _MOVES[move["kind"]](machine, held, move, where)
    target = machine.registers[plan["target"]]
    if held.shape != target.shape:
        detail = f"{held.shape[1]} values arrive, {plan['target']} has {target.shape[1]}"
        machine.report.add(Kind.OUT_OF_RANGE, where, detail)
        return
    machine.registers[plan["target"]] = held


def _classed(machine: Machine, plan: Plan, where: str) -> None:
    kinds = {move["kind"] for move in plan["moves"]}
    through = plan["scratch"] is not None
    found = "shared" if through else "rename" if kinds <= {"rename"} else "shuffle"
    if found != plan["price_class"]:
        machine.report.add(Kind.UNKNOWN, where, f"priced as {plan['price_class']}, is {found}")


def _rename(machine: Machine, held: Values, move: Plan, where: str) -> Values:
    slots = grid(move["values"], 2)
    slots = np.broadcast_to(slots, (machine.threads, slots.shape[1]))
    if slots.max() >= held.shape[1]:
        machine.report.add(Kind.OUT_OF_RANGE, where, f"value {slots.max()} of {held.shape[1]}")
        slots = slots % held.shape[1]
    return np.take_along_axis(held, slots, axis=1)


def _exchange(machine: Machine, held: Values, move: Plan, where: str) -> Values:
    """Element at (lane bit a, value bit b) goes to (lane bit b, value bit a)."""
    lane, value = move["lane"], move["value"]
    if not 0 < lane < 32:
        machine.report.add(Kind.OUT_OF_RANGE, where, f"exchange across lane {lane}")
        return held
    thread = np.arange(machine.threads, dtype=np.int64)[:, None]
    slot = np.arange(held.shape[1], dtype=np.int64)[None, :]
    a, b = (thread // lane) % 2, (slot // value) % 2
    moved: Values = held[thread + (b - a) * lane, slot + (a - b) * value]
    return moved


def _lanes(machine: Machine, held: Values, move: Plan, where: str) -> Values:
    source: Table = offsets(move["values"])
    if len(source) == 32:
        source = (np.arange(machine.threads) // 32 * 32) + np.tile(source, machine.threads // 32)
    if (source // 32 != np.arange(machine.threads) // 32).any():
        machine.report.add(Kind.OUT_OF_RANGE, where, "a shuffle between warps")
        return held
    return held[source]


_MOVES = {"rename": _rename, "exchange": _exchange, "lanes": _lanes}
