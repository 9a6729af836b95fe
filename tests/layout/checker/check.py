"""The checker: runs a solution's plain form and the oracle side by side, op by op.

Works from the program and plain data alone. Nothing here knows how layouts are found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ir.layout.synthesis.problem import Tile, TileOp, TileProgram
from tests.layout.checker import copies, products, steps
from tests.layout.checker.extents import roomy
from tests.layout.checker.findings import Kind, Report
from tests.layout.checker.oracle import Oracle
from tests.layout.checker.state import Machine, Plan, same
from tests.layout.checker.tables import TextError, grid, offsets
from tests.layout.checker.values import is_integer, width

# One unit in the last place of each type: sums may be rounded in another order than the oracle's.
_ULPS = {
    "f64": 1e-12,
    "f32": 2e-6,
    "tf32": 1e-3,
    "f16": 1e-3,
    "bf16": 8e-3,
    "e4m3": 0.13,
    "e5m2": 0.26,
}


def check(program: TileProgram, plain: Mapping[str, Any], seed: int = 0) -> Report:
    """Everything that is wrong with the solution `plain` of `program`, in order of appearance.

    Stops where tables do not fit together at all: nothing after that could be performed.
    """
    report = Report()
    try:
        program, plain = roomy(program, plain, report)
        _tiles(program, plain, report)
        if Kind.OUT_OF_RANGE not in report.kinds:
            _run(program, plain, seed, report)
    except TextError as error:
        report.add(Kind.UNKNOWN, program.name, str(error))
    except (IndexError, ValueError) as error:
        report.add(Kind.OUT_OF_RANGE, program.name, f"tables do not fit together: {error}")
    return report


def _run(program: TileProgram, plain: Mapping[str, Any], seed: int, report: Report) -> None:
    promised = {tile.name: tile.alignment for tile in program.tiles}
    machine = Machine(list(plain["tiles"]), plain["threads"], promised, report)
    oracle = Oracle(program, seed)
    for name, array in oracle.tiles.items():
        for plan in plain["tiles"]:
            if plan["of"] == name and plan["name"] == name:
                machine.put(name, array.reshape(-1, order="F"))
    done = 0
    for step in plain["steps"]:
        op = program.ops[step["op"]]
        where = f"{program.name}: op {step['op']} ({op.kind}, {step['kind']})"
        if step["kind"] == "convert":
            steps.conversion(machine, step, where)
            _compare(machine, oracle, step["target"], where)
            continue
        if step["op"] != done:
            report.add(Kind.UNKNOWN, where, f"op {done} comes next in the program")
        for forgotten in program.ops[done : step["op"]]:
            oracle.step(forgotten)
        _perform(machine, step, op, where)
        oracle.step(op)
        done = step["op"] + 1
        _compare(machine, oracle, _written(step), where)
    if done != len(program.ops):
        report.add(Kind.UNCOVERED, program.name, f"{done} of {len(program.ops)} ops are planned")


def _written(step: Plan) -> str:
    return str(step[{"copy": "target", "gemm": "c"}.get(step["kind"], "output")])


def _perform(machine: Machine, step: Plan, op: TileOp, where: str) -> None:
    if step["kind"] == "copy":
        copies.perform(machine, step, where)
    elif step["kind"] == "gemm":
        m, n, k = (str(op.attribute(letter)) for letter in "mnk")
        products.perform(machine, step, (n, m, k) if step["swapped"] else (m, n, k), where)
    elif step["kind"] == "map":
        steps.elementwise(machine, step, op, where)
    else:
        steps.reduction(machine, step, op, where)


def _compare(machine: Machine, oracle: Oracle, name: str, where: str) -> None:
    """The tile just written against the oracle's, element by element."""
    plan = machine.plans[name]
    tile = oracle.program.tile(plan["of"])
    wanted = oracle.tiles[tile.name].reshape(-1, order="F")
    found = machine.get(name)
    missing = np.isnan(found) & ~np.isnan(wanted)
    if missing.any():
        first = _coordinates(tile, int(np.argmax(missing)))
        detail = f"{int(missing.sum())} of {tile.size} elements of {name}, first {first}"
        machine.report.add(Kind.UNCOVERED, where, detail)
    wrong = ~_equal(found, wanted, tile) & ~missing
    if wrong.any():
        at = int(np.argmax(wrong))
        detail = (
            f"{int(wrong.sum())} of {tile.size} elements of {name}, first "
            f"{_coordinates(tile, at)}: {found[at]:g}, the oracle has {wanted[at]:g}"
        )
        machine.report.add(Kind.WRONG_VALUE, where, detail)
    if plan["scope"] == "register":
        _agree(machine, name, where)


def _equal(found: Any, wanted: Any, tile: Tile) -> Any:
    if is_integer(tile.dtype):
        return same(found, wanted)
    with np.errstate(invalid="ignore"):
        near = np.abs(found - wanted) <= _ULPS[tile.dtype] * np.abs(wanted) + 1e-30
    return near | same(found, wanted)


def _agree(machine: Machine, name: str, where: str) -> None:
    """Every copy of an element in registers must be the same number."""
    owners, held = machine.owners(name), machine.registers[name]
    chosen = machine.get(name)[owners]
    apart = ~same(chosen, held)
    if apart.any():
        thread, value = (int(i) for i in np.argwhere(apart)[0])
        detail = f"{int(apart.sum())} copies in {name} differ, first thread {thread} value {value}"
        machine.report.add(Kind.FALSE_REPLICATION, where, detail)


def _coordinates(tile: Tile, index: int) -> dict[str, int]:
    found = {}
    for name, extent in tile.axes:
        found[name], index = index % extent, index // extent
    return found


def _tiles(program: TileProgram, plain: Mapping[str, Any], report: Report) -> None:
    """Each tile's plan on its own: extents, coverage, ownership, room and alignment."""
    for plan in plain["tiles"]:
        tile = program.tile(plan["of"])
        told = [(str(name), int(extent)) for name, extent in plan["axes"]]
        if told != list(tile.axes) or plan["dtype"] != tile.dtype or plan["scope"] != tile.scope:
            report.add(Kind.OUT_OF_RANGE, plan["name"], f"{told} {plan['dtype']}, not {tile}")
            continue
        if tile.scope == "register":
            _registers(tile, plan, plain["threads"], report)
        else:
            _memory(tile, plan, report)
    shared = sum(
        plan["bytes"] * plan["stages"] for plan in plain["tiles"] if plan["scope"] == "shared"
    )
    if shared > plain["shared_bytes"]:
        detail = f"tiles take {shared} bytes of shared memory, {plain['shared_bytes']} stated"
        report.add(Kind.OUT_OF_RANGE, program.name, detail)


def _registers(tile: Tile, plan: Plan, threads: int, report: Report) -> None:
    owners = grid(plan["layout"], 2)
    name = plan["name"]
    if len(owners) != threads or owners.max() >= tile.size or owners.min() < 0:
        detail = f"{len(owners)} threads own up to {owners.max()} of {tile.size} elements"
        report.add(Kind.OUT_OF_RANGE, name, detail)
        return
    missing = tile.size - len(np.unique(owners))
    if missing:
        report.add(Kind.UNCOVERED, name, f"{missing} of {tile.size} elements have no owner")
    copies_stated = 1
    for stride, extent in plan["replicated"]:
        copies_stated *= extent
        if not steps.constant_along(owners, stride, extent):
            detail = f"threads along digit ({stride}, {extent}) own different elements"
            report.add(Kind.FALSE_REPLICATION, name, detail)
    if owners.size != tile.size * copies_stated and not missing:
        detail = f"{owners.size} places for {tile.size} elements, {copies_stated} copies are stated"
        report.add(Kind.DOUBLE_OWNERSHIP, name, detail)
    needed = -(-owners.shape[1] * width(tile.dtype) // 32)
    if plan["registers"] != needed:
        detail = f"{needed} registers of 32 bits needed, {plan['registers']} stated"
        report.add(Kind.OUT_OF_RANGE, name, detail)


def _memory(tile: Tile, plan: Plan, report: Report) -> None:
    layout = offsets(plan["layout"])
    if len(layout) != tile.size:
        detail = f"a layout of {len(layout)} elements for {tile.size}"
        report.add(Kind.OUT_OF_RANGE, plan["name"], detail)
        return
    if tile.scope == "global":
        _global(tile, plan, report)
        return
    if len(np.unique(layout)) != tile.size:
        detail = f"{tile.size} elements at {len(np.unique(layout))} offsets"
        report.add(Kind.DOUBLE_OWNERSHIP, plan["name"], detail)
    needed = -(-(int(layout.max()) + 1) * width(tile.dtype) // 8)
    if needed > plan["bytes"] or plan["stages"] != tile.stages:
        detail = f"{needed} bytes needed, {plan['bytes']} there; {plan['stages']} stages"
        report.add(Kind.OUT_OF_RANGE, plan["name"], detail)
    if plan["stages"] > 1 and plan["bytes"] % plan["alignment"]:
        detail = f"stages of {plan['bytes']} bytes aligned to {plan['alignment']}"
        report.add(Kind.MISALIGNED, plan["name"], detail)


def _global(tile: Tile, plan: Plan, report: Report) -> None:
    """A global tile lies where the program's strides put it, and is promised no more alignment."""
    if tile.strides:
        wanted = np.zeros(1, np.int64)
        for (_, extent), stride in zip(tile.axes, tile.strides, strict=True):
            wanted = (np.arange(extent)[:, None] * stride + wanted[None, :]).reshape(-1)
        if (offsets(plan["layout"]) != wanted).any():
            report.add(Kind.NOT_CONTIGUOUS, plan["name"], f"layout is not strides {tile.strides}")
    if plan["alignment"] > tile.alignment:
        detail = f"aligned to {plan['alignment']} bytes, the program promises {tile.alignment}"
        report.add(Kind.MISALIGNED, plan["name"], detail)
