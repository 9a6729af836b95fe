"""mma.sync and wgmma performed on register files and shared memory, instruction by instruction.

Operands are scattered into matrices by the PTX fragment tables or read through decoded descriptors,
multiplied, and the accumulators written back to the registers that hold them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.layout.checker.copies import whole_registers
from tests.layout.checker.findings import Kind
from tests.layout.checker.fragments import (
    MatrixInstruction,
    accumulator,
    instruction,
    operand_a,
    operand_b,
)
from tests.layout.checker.shared import decode, operand_addresses
from tests.layout.checker.state import Machine, Plan
from tests.layout.checker.tables import Table, grid, offsets
from tests.layout.checker.values import Values, width

_SAME = {"tf32": ("tf32", "f32"), "i8": ("i8",), "u8": ("u8",), "i4": ("i4",), "u4": ("u4",)}


@dataclass(frozen=True, slots=True)
class Side:
    """One operand: its axis names as (rows, columns) of the instruction, and its claimed orders."""

    role: str
    axes: tuple[str, str]
    orders: tuple[str, str]
    extent: int
    repeats: int
    warps: int


def perform(machine: Machine, plan: Plan, axes: tuple[str, str, str], where: str) -> None:
    """c += a b^T of one gemm plan; `axes` are the program's m, n, k in the INSTRUCTION's roles."""
    try:
        row = instruction(plan["instruction"])
    except ValueError as error:
        machine.report.add(Kind.UNKNOWN, where, str(error))
        return
    groups = machine.threads // row.threads
    along_m, along_n = plan["warps"]
    if machine.threads % row.threads or along_m * along_n != groups:
        detail = f"{along_m} x {along_n} groups of {row.threads} threads, {machine.threads} there"
        machine.report.add(Kind.OUT_OF_RANGE, where, detail)
        return
    _types(machine, row, plan, where)
    m, n, k = axes
    loops = plan["loops"]
    a = _operand(machine, row, plan, Side("a", (m, k), ("m", "k"), row.m, loops[0], along_m), where)
    b = _operand(machine, row, plan, Side("b", (n, k), ("n", "k"), row.n, loops[1], along_n), where)
    if a is not None and b is not None:
        _accumulate(machine, row, plan, a, b, (m, n), where)


def _types(machine: Machine, row: MatrixInstruction, plan: Plan, where: str) -> None:
    for role in "ab":
        dtype = machine.plans[plan[role]]["dtype"]
        if dtype not in _SAME.get(row.dtype, (row.dtype,)):
            machine.report.add(Kind.WRONG_FRAGMENT, where, f"{plan[role]} is {dtype}: {row.name}")
    bits = width(machine.plans[plan["c"]]["dtype"])
    if bits != 32:
        machine.report.add(Kind.UNKNOWN, where, f"accumulators of {bits} bits")


def _operand(
    machine: Machine, row: MatrixInstruction, plan: Plan, side: Side, where: str
) -> Values | None:
    """[group, row repeat, k repeat, row, k] of one operand, wherever it lies."""
    where = f"{where} operand {side.role}"
    if machine.scope(plan[side.role]) == "shared":
        return _from_shared(machine, row, plan, side, where)
    if row.group and (side.role == "b" or row.form != "rs"):
        machine.report.add(Kind.WRONG_FRAGMENT, where, f"{row.name} takes it from shared memory")
        return None
    return _from_registers(machine, row, plan, side, where)


def _from_registers(
    machine: Machine, row: MatrixInstruction, plan: Plan, side: Side, where: str
) -> Values | None:
    name, fragment = plan[side.role], (operand_a if side.role == "a" else operand_b)(row)
    slots = grid(plan[f"{side.role}_values"], 3)
    wanted = (fragment[0].shape[1], side.repeats, plan["loops"][2])
    if not _fits(machine, name, slots, wanted, where):
        return None
    whole_registers(machine, slots.reshape(len(slots), -1), machine.bits(name), where)
    held = machine.registers[name][:, slots]
    groups = machine.threads // row.threads
    held = held.reshape(groups, row.threads, *slots.shape)
    matrix = np.full((groups, side.repeats, plan["loops"][2], side.extent, row.k), np.nan)
    matrix[:, :, :, fragment[0], fragment[1]] = held.transpose(0, 3, 4, 1, 2)
    index = machine.owners(name)[: row.threads][:, slots].transpose(2, 3, 0, 1)
    lies = np.full(matrix.shape[1:], -1, np.int64)
    lies[:, :, fragment[0], fragment[1]] = index
    _ordered(machine, name, plan, side, lies, where)
    return matrix


def _fits(
    machine: Machine, name: str, slots: Table, wanted: tuple[int, int, int], where: str
) -> bool:
    held = machine.registers[name].shape[1]
    if slots.shape == wanted and slots.max() < held:
        return True
    detail = f"values {slots.shape} up to {slots.max()}, wanted {wanted} of {held} values in {name}"
    machine.report.add(Kind.OUT_OF_RANGE, where, detail)
    return False


def _from_shared(
    machine: Machine, row: MatrixInstruction, plan: Plan, side: Side, where: str
) -> Values | None:
    """Read the operand through its descriptors, as the hardware would."""
    facts, name = plan[f"{side.role}_descriptor"], plan[side.role]
    if not row.group or facts is None or (side.role == "a" and row.form == "rs"):
        machine.report.add(Kind.WRONG_FRAGMENT, where, f"{row.name} takes it from registers")
        return None
    _descriptor_is(machine, facts, row, where)
    starts = grid(facts["starts"], 3)
    groups, deep = machine.threads // row.threads, plan["loops"][2]
    if starts.shape != (groups, side.repeats, deep):
        detail = f"starts {starts.shape} for {groups} groups, {side.repeats} x {deep} repeats"
        machine.report.add(Kind.WRONG_DESCRIPTOR, where, detail)
        return None
    addresses = np.stack(
        [_addresses(machine, row, facts, name, side, int(start)) for start in starts.reshape(-1)]
    ).reshape(*starts.shape, side.extent, row.k)
    _ordered(machine, name, plan, side, _indices(machine, name, addresses[0]), where)
    return machine.read(name, addresses)


def _addresses(
    machine: Machine, row: MatrixInstruction, facts: Plan, name: str, side: Side, start: int
) -> Table:
    """[row, k] bit addresses of one instruction's operand."""
    word = facts["word"] + ((machine.bases[name] + start) >> 4)
    mn_major = facts["major"] == "mn"
    return operand_addresses(decode(word), side.extent, row.k, row.bits, mn_major) * 8


def _descriptor_is(machine: Machine, facts: Plan, row: MatrixInstruction, where: str) -> None:
    found = decode(facts["word"])
    told = (facts["lbo"], facts["sbo"], facts["swizzle"])
    ignored = facts["major"] == "k" and facts["swizzle"] > 0
    coded = (told[0] if ignored else found.leading, found.stride, found.bits)
    if coded != told or found.start or found.base_offset:
        detail = f"the word says (lbo, sbo, swizzle) = {coded}, the plan {told}"
        machine.report.add(Kind.WRONG_DESCRIPTOR, where, detail)
    if facts["major"] == "mn" and row.bits != 16:
        detail = f"{row.bits}-bit operands exist K-major only"
        machine.report.add(Kind.WRONG_DESCRIPTOR, where, detail)
    if (offsets(facts["starts"]) % 16 != 0).any():
        machine.report.add(Kind.WRONG_DESCRIPTOR, where, "a start is no multiple of 16 bytes")


def _indices(machine: Machine, name: str, addresses: Table) -> Table:
    """Tile index stored at each bit address, -1 where none."""
    inverse = np.full(len(machine.memory[name]), -1, np.int64)
    layout = machine.layout(name)
    inverse[layout] = np.arange(len(layout))
    cells = (addresses - machine.bases[name] * 8) // machine.bits(name)
    good = (cells >= 0) & (cells < len(inverse))
    return np.where(good, inverse[np.where(good, cells, 0)], -1)


def _ordered(machine: Machine, name: str, plan: Plan, side: Side, lies: Table, where: str) -> None:
    """The first group's elements [row repeat, k repeat, row, k] lie at the coordinates stated."""
    kind = Kind.WRONG_FRAGMENT if machine.scope(name) == "register" else Kind.WRONG_DESCRIPTOR
    names = [axis for axis, _ in machine.plans[name]["axes"]]
    extents = [extent for _, extent in machine.plans[name]["axes"]]
    coordinates = {names[0]: lies % extents[0], names[1]: lies // extents[0]}
    rows, deep = (grid(plan[f"{letter}_order"], 2) for letter in side.orders)
    wanted_rows = rows.T[:, None, :, None] + np.zeros_like(lies)
    wanted_deep = deep.T[None, :, None, :] + np.zeros_like(lies)
    pairs = ((side.axes[0], wanted_rows), (side.axes[1], wanted_deep))
    for axis, wanted in pairs:
        wrong = (coordinates[axis] != wanted) | (lies < 0)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            detail = (
                f"{name}: {int(wrong.sum())} elements of the first group off along {axis}; at "
                f"(repeat, k repeat, row, k) = {at} {int(coordinates[axis][at])}, "
                f"wanted {int(wanted[at])}"
            )
            machine.report.add(kind, where, detail)


def _accumulate(
    machine: Machine,
    row: MatrixInstruction,
    plan: Plan,
    a: Values,
    b: Values,
    axes: tuple[str, str],
    where: str,
) -> None:
    name = plan["c"]
    fragment, slots = accumulator(row), grid(plan["c_values"], 3)
    wanted = (fragment[0].shape[1], plan["loops"][0], plan["loops"][1])
    if not _fits(machine, name, slots, wanted, where):
        return
    groups = machine.threads // row.threads
    left = a.transpose(0, 1, 3, 2, 4).reshape(groups, wanted[1] * row.m, -1)
    right = b.transpose(0, 1, 3, 2, 4).reshape(groups, wanted[2] * row.n, -1)
    product = (left @ right.transpose(0, 2, 1)).reshape(groups, wanted[1], row.m, wanted[2], row.n)
    mine = product[:, :, fragment[0], :, fragment[1]]
    # advanced indices apart: numpy puts [thread, value] first
    mine = mine.transpose(2, 0, 1, 3, 4).reshape(machine.threads, wanted[0], wanted[1], wanted[2])
    machine.registers[name][:, slots] += mine
