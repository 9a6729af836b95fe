"""Copies performed access by access: vectors, cp.async, red, ldmatrix, stmatrix and TMA boxes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.layout.checker.banks import lanes_per_phase, rounds, sectors
from tests.layout.checker.boxes import TensorMap
from tests.layout.checker.findings import Kind
from tests.layout.checker.shared import matrix_lanes
from tests.layout.checker.state import Machine, Plan
from tests.layout.checker.tables import Table, grid, offsets
from tests.layout.checker.values import Values

_MATRIX = re.compile(r"(ld|st)matrix\.x([124])(\.trans)?$")
_SIMPLE = re.compile(r"(ld|st|cp\.async|red\.add)\.(\d+)$")
_VECTORS = (8, 16, 32, 64, 128)
_ASYNCHRONOUS = (32, 64, 128)
_PATHS = {
    ("cp.async",): {("global", "shared")},
    ("ld", "st"): {("global", "shared"), ("shared", "global")},
    ("ld",): {("global", "register"), ("shared", "register")},
    ("st",): {("register", "global"), ("register", "shared")},
    ("ldmatrix",): {("shared", "register")},
    ("stmatrix",): {("register", "shared")},
    ("tma.load",): {("global", "shared")},
    ("tma.store",): {("shared", "global")},
}


def perform(machine: Machine, plan: Plan, where: str) -> None:
    """Carry out one copy plan on the machine, reporting what is illegal about it."""
    source, target = plan["source"], plan["target"]
    if plan["kind"] == "copy":
        _forget(machine, target)
    _path(machine, plan, where)
    if plan["tma"] is not None:
        _bulk(machine, plan, where)
        return
    _widths(machine, plan, where)
    matrix = _MATRIX.match(plan["instructions"][0])
    if matrix:
        _matrix(machine, plan, where, int(matrix[2]), bool(matrix[3]))
    else:
        held = _fetch(machine, source, plan, "source_addresses", where)
        _deliver(machine, target, plan, held, where)
    _counts(machine, plan, where, matrix is not None)


def _forget(machine: Machine, name: str) -> None:
    place = machine.registers if machine.scope(name) == "register" else machine.memory
    place[name] = np.full_like(place[name], np.nan)


def _path(machine: Machine, plan: Plan, where: str) -> None:
    """The instructions must exist between these two memories."""
    stems = tuple(re.sub(r"\.(x?\d+)(\.trans)?$", "", name) for name in plan["instructions"])
    path = (machine.scope(plan["source"]), machine.scope(plan["target"]))
    if path not in _PATHS.get(stems, set()):
        detail = f"{' and '.join(plan['instructions'])} from {path[0]} to {path[1]}"
        machine.report.add(Kind.NO_SUCH_PATH, where, detail)


def _widths(machine: Machine, plan: Plan, where: str) -> None:
    """The instruction's name, the bits and the elements must tell the same story."""
    bits = machine.bits(plan["source"])
    if plan["elements"] * bits != plan["bits"]:
        detail = f"{plan['elements']} elements of {bits} bits are not {plan['bits']} bits"
        machine.report.add(Kind.UNKNOWN, where, detail)
    for name in plan["instructions"]:
        match, matrix = _SIMPLE.match(name), _MATRIX.match(name)
        if matrix:
            stated = 32 * int(matrix[2])
        elif match:
            stated = int(match[2]) * (8 if match[1] == "cp.async" else 1)
            legal = _ASYNCHRONOUS if match[1] == "cp.async" else _VECTORS
            stated = stated if stated in legal else 0
        else:
            machine.report.add(Kind.UNKNOWN, where, f"instruction {name!r}")
            continue
        if stated != plan["bits"]:
            machine.report.add(Kind.UNKNOWN, where, f"{name} moves {stated}, not {plan['bits']}")


def active(threads: int, guards: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """Threads that take part: coordinate 0 in every guarded digit."""
    thread = np.arange(threads)
    taking = np.ones(threads, bool)
    for stride, extent in guards:
        taking &= (thread // stride) % extent == 0
    return taking


def _starts(machine: Machine, name: str, text: str, where: str) -> Table:
    """[thread, issue] bit address of each access's first element."""
    index = grid(text, 2)
    if index.shape[0] != machine.threads:
        detail = f"addresses of {index.shape[0]} threads, the block has {machine.threads}"
        machine.report.add(Kind.OUT_OF_RANGE, where, detail)
        index = np.resize(index, (machine.threads, index.shape[1]))
    return machine.addresses(name, index)


def _run(machine: Machine, name: str, plan: Plan, key: str, where: str) -> Table:
    """[thread, element, issue] bit addresses of an access's consecutive elements."""
    starts = _starts(machine, name, plan[key], where)
    taking = active(machine.threads, plan["guards"])
    _aligned(machine, starts[taking], plan["bits"], where, name)
    step = np.arange(plan["elements"], dtype=np.int64) * machine.bits(name)
    return starts[:, None, :] + step[None, :, None]


def _aligned(machine: Machine, starts: Table, bits: int, where: str, name: str) -> None:
    bad = starts % bits != 0
    if bad.any():
        detail = f"{name}: bit address {int(starts[bad][0])} for an access of {bits} bits"
        machine.report.add(Kind.MISALIGNED, where, detail)


def _fetch(machine: Machine, name: str, plan: Plan, key: str, where: str) -> Values:
    """[thread, element, issue] values as they leave the source."""
    if machine.scope(name) != "register":
        return machine.read(name, _run(machine, name, plan, key, where))
    slots = _slots(machine, name, plan, where)
    if plan["target_addresses"]:
        _lies_together(machine, name, plan["target"], slots, plan, "target_addresses", where)
    return machine.registers[name][:, slots]


def _deliver(machine: Machine, name: str, plan: Plan, held: Values, where: str) -> None:
    taking = active(machine.threads, plan["guards"])
    if machine.scope(name) == "register":
        slots = _slots(machine, name, plan, where)
        _lies_together(machine, name, plan["source"], slots, plan, "source_addresses", where)
        machine.registers[name][:, slots.reshape(-1)] = held.reshape(len(held), -1)
        return
    addresses = _run(machine, name, plan, "target_addresses", where)
    machine.write(name, addresses[taking], held[taking], where)


def _slots(machine: Machine, name: str, plan: Plan, where: str) -> Table:
    """[element, issue] value index; whole 32-bit registers must move as they lie."""
    slots = grid(plan["values"], 2)
    if slots.shape != (plan["elements"], plan["issues"]):
        detail = f"values {slots.shape} for {plan['elements']} elements, {plan['issues']} issues"
        machine.report.add(Kind.OUT_OF_RANGE, where, detail)
    held = machine.registers[name].shape[1]
    if slots.max() >= held:
        machine.report.add(Kind.OUT_OF_RANGE, where, f"value {slots.max()} of {held}")
        slots = slots % held
    whole_registers(machine, slots, machine.bits(name), where)
    return slots


def whole_registers(machine: Machine, slots: Table, bits: int, where: str) -> None:
    """Elements that share a 32-bit register of an instruction share one of the tile, in order."""
    pack = min(max(1, 32 // bits), slots.shape[0])
    if slots.shape[0] % pack:
        return
    packs = slots.reshape(slots.shape[0] // pack, pack, -1)
    wanted = packs[:, :1] + np.arange(pack)[None, :, None]
    if (packs != wanted).any() or (packs[:, 0] % pack != 0).any():
        detail = f"elements of one register lie at values {packs[0, :, 0].tolist()}"
        machine.report.add(Kind.WRONG_FRAGMENT, where, detail)


def _lies_together(
    machine: Machine, name: str, other: str, slots: Table, plan: Plan, key: str, where: str
) -> None:
    """The elements of one vector must be the ones that lie side by side in memory."""
    run = _run(machine, other, plan, key, where)
    index = machine.owners(name)[:, slots]
    axes = (machine.plans[name]["axes"], machine.plans[other]["axes"])
    wanted = machine.addresses(other, reindexed(index, *axes))
    taking = active(machine.threads, plan["guards"])
    if (run != wanted)[taking].any():
        wrong = int((run != wanted)[taking].sum())
        detail = f"{wrong} elements of vectors lie elsewhere in {other} than the access goes"
        machine.report.add(Kind.NOT_CONTIGUOUS, where, detail)


def reindexed(
    index: Table, axes: Sequence[Sequence[object]], other: Sequence[Sequence[object]]
) -> Table:
    """Tile indices over `axes` as tile indices over `other`, matched by axis name."""
    extents = {str(name): int(str(extent)) for name, extent in axes}
    coordinates, rest = {}, index
    for name, extent in extents.items():
        coordinates[name], rest = rest % extent, rest // extent
    result, stride = np.zeros_like(index), 1
    for axis in other:
        result = result + coordinates[str(axis[0])] * stride
        stride *= int(str(axis[1]))
    return result


def _matrix(machine: Machine, plan: Plan, where: str, count: int, transposed: bool) -> None:
    """ldmatrix or stmatrix: the address of row r is that of lane r of the same warp."""
    loads = machine.scope(plan["target"]) == "register"
    memory, held = (plan["source"], plan["target"]) if loads else (plan["target"], plan["source"])
    bits = machine.bits(memory)
    try:
        rows, element = matrix_lanes(count, transposed, bits)
    except ValueError as error:
        machine.report.add(Kind.WRONG_FRAGMENT, where, str(error))
        return
    key = "source_addresses" if loads else "target_addresses"
    starts = _starts(machine, memory, plan[key], where).reshape(machine.threads // 32, 32, -1)
    _aligned(machine, starts[:, : 8 * count], 128, where, memory)
    slots = _slots(machine, held, plan, where)
    if slots.shape != (element.shape[1], starts.shape[2]):
        detail = f"values {slots.shape} for {element.shape[1]} elements, {starts.shape[2]} issues"
        machine.report.add(Kind.OUT_OF_RANGE, where, detail)
        return
    addresses = starts[:, rows] + (element * bits)[None, :, :, None]
    addresses = addresses.reshape(machine.threads, *slots.shape)
    if loads:
        values = machine.read(memory, addresses)
        flat = values.reshape(machine.threads, -1)
        machine.registers[held][:, slots.reshape(-1)] = flat
        return
    taking = active(machine.threads, plan["guards"])
    machine.write(memory, addresses[taking], machine.registers[held][:, slots][taking], where)


def _counts(machine: Machine, plan: Plan, where: str, matrix: bool) -> None:
    """Compare the stated conflict ways and sectors with those counted."""
    for name, key in ((plan["source"], "source_addresses"), (plan["target"], "target_addresses")):
        scope = machine.scope(name)
        if scope == "shared":
            ways = worst_ways(machine, plan, name, key, matrix)
            if ways != plan["ways"]:
                detail = f"{ways} ways counted in {name}, {plan['ways']} stated"
                machine.report.add(Kind.CONFLICTS, where, detail)
        if scope == "global":
            touched = _worst_sectors(machine, plan, name, key)
            if touched != plan["sectors"]:
                detail = f"{touched} sectors counted in {name}, {plan['sectors']} stated"
                machine.report.add(Kind.CONFLICTS, where, detail)


def accesses(
    bytes_of: Table, plan: Plan, key: str, threads: int, matrix: bool
) -> list[tuple[Table, int]]:
    """One (byte addresses of the active lanes, bytes per lane) per warp and issue.

    `bytes_of`: tile index -> byte address. Matrix copies ask for 16 bytes from 8 lanes per matrix.
    """
    starts = bytes_of[grid(plan[key], 2) % len(bytes_of)]
    taking = active(threads, plan["guards"])
    found = []
    for warp in range(0, threads, 32):
        lanes = starts[warp : warp + 32]
        lanes = lanes[: plan["bits"] // 4] if matrix else lanes[taking[warp : warp + 32]]
        if len(lanes):
            size = 16 if matrix else max(1, plan["bits"] // 8)
            found += [(lanes[:, issue], size) for issue in range(lanes.shape[1])]
    return found


def worst_ways(machine: Machine, plan: Plan, name: str, key: str, matrix: bool) -> int:
    """Rounds of the worst access over the phases it needs at least."""
    worst, bytes_of = 1, machine.layout(name) * machine.bits(name) // 8 + machine.bases[name]
    for addresses, size in accesses(bytes_of, plan, key, machine.threads, matrix):
        phases = -(-len(addresses) // lanes_per_phase(size))
        worst = max(worst, -(-rounds(addresses, size) // phases))
    return worst


def _worst_sectors(machine: Machine, plan: Plan, name: str, key: str) -> int:
    """Sectors of the worst access, the tile's first element at the start of a sector."""
    bytes_of = machine.layout(name) * machine.bits(name) // 8
    found = accesses(bytes_of, plan, key, machine.threads, False)
    return max((sectors(addresses, size) for addresses, size in found), default=0)


def _bulk(machine: Machine, plan: Plan, where: str) -> None:
    """A TMA load or store, box by box."""
    source, target, tma = plan["source"], plan["target"], plan["tma"]
    loads = machine.scope(source) == "global"
    outer, inner = (source, target) if loads else (target, source)
    bits = machine.bits(outer)
    strides = tuple(stride * bits // 8 for stride in tma["strides"])
    tensor = TensorMap(
        machine.bases[outer], (1 << 32,) * len(strides), strides, tuple(tma["extents"]), bits,
        tma["swizzle"],
    )  # fmt: skip
    for text in tensor.violations():
        machine.report.add(Kind.ILLEGAL_BOX, where, text)
    if tensor.bytes * len(tma["shared_starts"]) != tma["bytes"]:
        detail = f"{len(tma['shared_starts'])} boxes of {tensor.bytes} bytes, {tma['bytes']} stated"
        machine.report.add(Kind.ILLEGAL_BOX, where, detail)
    starts = offsets(tma["starts"])
    if len(starts) != len(tma["shared_starts"]):
        detail = f"{len(starts)} boxes, {len(tma['shared_starts'])} places in shared memory"
        machine.report.add(Kind.ILLEGAL_BOX, where, detail)
    for start, place in zip(starts, tma["shared_starts"], strict=False):
        _one_box(machine, tensor, (outer, inner), (int(start), place), plan, where)


def _one_box(
    machine: Machine,
    tensor: TensorMap,
    names: tuple[str, str],
    at: tuple[int, int],
    plan: Plan,
    where: str,
) -> None:
    outer, inner = names
    first, place = at
    origin = int(machine.addresses(outer, np.array([first]))[0])
    moved, _ = tensor.offsets((0,) * len(tensor.box))
    shared = machine.bases[inner] + place
    if shared % 128:
        machine.report.add(Kind.MISALIGNED, where, f"a box at shared address {shared} mod 128")
    inside = tensor.addresses(shared)
    _box_is(machine, outer, inner, origin + moved, inside, plan, first, where)
    if machine.scope(plan["source"]) == "global":
        machine.write(inner, inside, machine.read(outer, origin + moved), where)
    else:
        machine.write(outer, origin + moved, machine.read(inner, inside), where)


def _box_is(
    machine: Machine,
    outer: str,
    inner: str,
    wide: Table,
    near: Table,
    plan: Plan,
    first: int,
    where: str,
) -> None:
    """The box must hold the elements it names, and the shared layout must put them there too."""
    index = offsets(plan["tma"]["box"]) + first
    if len(index) != len(wide):
        detail = f"{len(index)} elements named, the box has {len(wide)}"
        machine.report.add(Kind.ILLEGAL_BOX, where, detail)
        return
    axes = (machine.plans[outer]["axes"], machine.plans[inner]["axes"])
    if (machine.addresses(outer, index) != wide).any():
        machine.report.add(Kind.ILLEGAL_BOX, where, f"the box leaves {outer}'s strides")
    wanted = machine.addresses(inner, reindexed(index, *axes))
    if (wanted != near).any():
        wrong = int((wanted != near).sum())
        detail = f"{wrong} of {len(near)} elements land elsewhere than {inner}'s layout says"
        machine.report.add(Kind.ILLEGAL_BOX, where, detail)
