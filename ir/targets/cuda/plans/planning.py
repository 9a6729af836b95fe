"""From a schedule of a kernel on tensor cores to its plan, and the tiles that are no choice."""

from __future__ import annotations

from collections.abc import Mapping

from ir.dtypes import dtype_of
from ir.kernel.modulo import STRAIGHT
from ir.kernel.turns import FREE
from ir.program import Program
from ir.schedule import Value
from ir.targets.cuda.bodies.apart import WEIGHTS
from ir.targets.cuda.bodies.tensor_bodies import is_chained
from ir.targets.cuda.bodies.tensor_order import (
    AHEAD,
    LOADS,
    MOVED,
    RESCALE,
    TURNS,
    goes_through,
    order_of,
)
from ir.targets.cuda.bodies.tensor_order import NAME as ORDER
from ir.targets.cuda.build import late
from ir.targets.cuda.build.formed import Former
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.grid import batching, drawing, stream_k
from ir.targets.cuda.grid.dealing import NAME as DEAL
from ir.targets.cuda.grid.overlap import PREFETCH, starts_early
from ir.targets.cuda.layouts.operands import LINE
from ir.targets.cuda.plans.tensor_plan import RESIDENT, Plan
from ir.targets.cuda.plans.tensor_rings import extra_names
from ir.targets.cuda.space.splits import merge_of, parts_of

FORMERS = "formers"  # the decision how many warp groups form operands
FORMER_REGISTERS = 48  # of a thread of theirs, where registers are handed out anew


def fixed_tiles(roles: Roles) -> dict[str, int]:
    """Tiles that are no choice: batches and walked axes beside the main one, held axes, sums that
    blocks have whole, columns of chained products."""
    tiles = dict.fromkeys(roles.batch, 1)
    for axis in roles.walked:
        tiles[axis] = roles.program.axes[axis] if axis in roles.whole else 1
    del tiles[roles.main_walk]
    tiles.pop(roles.listed, None)
    whole = (product.over for product in roles.products if product not in roles.outer)
    several = {axis for over in whole if len(over) > 1 for axis in over}
    for axis in (*roles.held, *((roles.main_walk,) if roles.at_once else ())):
        summing = (roles.dtype_of(product) for product in roles.products if axis in product.over)
        size, extent = min(dtype_of(dtype).bytes for dtype in summing), roles.program.axes[axis]
        tiles[axis] = extent if axis in several else _padded(extent, LINE // size)
    if roles.inner:
        for axis in roles.columns:
            tiles[axis] = -(-roles.program.axes[axis] // 8) * 8
    return tiles


def _padded(extent: int, line: int) -> int:
    """Points of whole lines, of half ones where these leave less over."""
    for part in (line // 4, line // 2, line):
        if extent <= part:
            return part
    return -(-extent // (line // 2)) * (line // 2)


def make_plan(
    program: Program, roles: Roles, values: Mapping[str, Value], mark: str,
    formed: tuple[Former, ...] = (), kind: type[Plan] = Plan,
) -> Plan:  # fmt: skip
    """The plan of a schedule, of a `kind` of kernels."""

    def value(name: str) -> Value:
        return values[f"{name}{mark}"]

    tiles = fixed_tiles(roles)
    for axis in program.axes:
        if axis not in tiles:
            tiles[axis] = int(value(f"tile.{axis}"))
    rows, columns = str(value("cluster")).split("x")
    extras = {
        ring: int(values.get(f"{stem}{mark}", 0)) for ring, stem in extra_names(program, roles)
    }
    order = str(values.get(f"{ORDER}{mark}", STRAIGHT))
    source = "registers" if roles.computed else str(values.get(f"source{mark}", "shared"))
    return kind(
        program, roles, tiles, int(value("consumers")), str(value("partition")),
        int(value("stages")), (int(rows), int(columns)), str(value("raster")),
        int(value("processors")), str(value("registers")), str(value("epilogue")),
        int(value("epilogue_slots")), int(value("wait")), int(value("promotion")),
        str(value("stream")), starts_early(values), parts_of(values), merge_of(values),
        extras, source, str(values.get(f"read{mark}", "step")), int(values.get(f"steps{mark}", 1)),
        str(values.get(f"{stream_k.NAME}{mark}", stream_k.NONE)),
        int(values.get(f"layout{mark}", 0)),
        int(values.get(f"{PREFETCH}{mark}", 0)),
        order_of(roles, order) if is_chained(roles) else None,
        str(values.get(f"{TURNS}{mark}", FREE)), int(values.get(f"{DEAL}{mark}", 0)),
        source == "registers" and goes_through(roles, order), roles.at_once and order != STRAIGHT,
        values.get(f"{RESCALE}{mark}") == MOVED, int(values.get(f"{RESIDENT}{mark}", 1)),
        str(values.get(f"{batching.NAME}{mark}", batching.APART)), formed,
        int(values.get(f"{FORMERS}{mark}", 0)), values.get(f"{LOADS}{mark}") == AHEAD,
        values.get(f"{drawing.NAME}{mark}") == drawing.DYNAMIC,
        int(values.get(f"{late.NAME}{mark}", 0)), int(values.get(f"{WEIGHTS}{mark}", 0)),
    )  # fmt: skip
