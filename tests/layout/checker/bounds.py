"""What a solution could have had at best: the widest legal vectors and the fewest bank conflicts.

Bounds come from strides, alignment and the chosen owners alone; swizzles are tried one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ir.layout.synthesis.problem import Tile, TileProgram
from tests.layout.checker.banks import MODES, every_swizzle, fewest_rounds, total_rounds
from tests.layout.checker.copies import accesses, reindexed
from tests.layout.checker.state import Plan
from tests.layout.checker.tables import Table, grid, offsets, read
from tests.layout.checker.values import width

WIDTHS = (128, 64, 32, 16, 8)


def widest_by_strides(tile: Tile) -> int:
    """Bits of the widest vector that a global tile's strides and alignment allow everywhere."""
    bits = width(tile.dtype)
    axes = [(stride, extent) for mode in _modes(tile) for extent, stride in mode]
    axes = sorted((stride, extent) for stride, extent in axes if extent > 1 and stride > 0)
    run = 1
    while axes and axes[0][0] == run:
        run *= axes.pop(0)[1]
    steps = [stride * bits for stride, _ in axes] + [tile.alignment * 8, run * bits]
    return next((w for w in WIDTHS if all(step % w == 0 for step in steps)), bits)


def _modes(tile: Tile) -> tuple[tuple[tuple[int, int], ...], ...]:
    """(extent, stride) pairs of a global tile, axis by axis."""
    if tile.layout:
        return read(tile.layout).modes
    pairs = zip(tile.axes, tile.strides, strict=True)
    return tuple(((extent, stride),) for (_, extent), stride in pairs)


def widest_by_owners(owned: Table, bits: int) -> int:
    """Bits of the widest vector with which each thread reaches what it owns.

    `owned` [thread, value]: offset in elements of each element; vectors are aligned to their width.
    """
    ordered = np.sort(owned, axis=1)
    for wide in WIDTHS:
        count = wide // bits
        if count < 1 or ordered.shape[1] % count:
            continue
        runs = ordered.reshape(len(ordered), -1, count)
        if (runs == runs[:, :, :1] + np.arange(count)).all() and (runs[:, :, 0] % count == 0).all():
            return wide
    return bits


def copies_of(plain: Mapping[str, Any]) -> Iterator[Plan]:
    """Every copy, those inside conversions included."""
    for step in plain["steps"]:
        if step["kind"] == "copy":
            yield step
        elif step["kind"] == "convert" and step["scratch"] is not None:
            yield from (step["store"], step["load"])


def _plans(plain: Mapping[str, Any]) -> dict[str, Plan]:
    plans = {plan["name"]: plan for plan in plain["tiles"]}
    for step in plain["steps"]:
        if step["kind"] == "convert" and step["scratch"] is not None:
            plans[step["scratch"]["name"]] = step["scratch"]
    return plans


def too_narrow(program: TileProgram, plain: Mapping[str, Any]) -> dict[int, tuple[int, int]]:
    """Copies narrower than they could be: op -> (bits used, bits possible).

    Red, matrix and bulk copies are left out: their widths are the instruction's own.
    """
    plans, found = _plans(plain), {}
    for copy in copies_of(plain):
        name = copy["instructions"][0]
        if copy["tma"] is not None or "matrix" in name:
            continue
        possible = _possible(program, plans, copy)
        if copy["bits"] < possible:
            found[int(copy["op"])] = (int(copy["bits"]), possible)
    return found


def _possible(program: TileProgram, plans: dict[str, Plan], copy: Plan) -> int:
    sides = [plans[copy["source"]], plans[copy["target"]]]
    bits = width(sides[0]["dtype"])
    limits = [
        widest_by_strides(program.tile(side["of"])) for side in sides if side["scope"] == "global"
    ]
    register = next((side for side in sides if side["scope"] == "register"), None)
    memory = next((side for side in sides if side["scope"] != "register"), None)
    if register is not None and memory is not None:
        index = reindexed(grid(register["layout"], 2), register["axes"], memory["axes"])
        limits.append(widest_by_owners(offsets(memory["layout"])[index], bits))
    return min(limits, default=bits)


def conflicts(plain: Mapping[str, Any]) -> dict[str, tuple[int, int, tuple[int, int, int]]]:
    """Shared tiles with more rounds than a swizzle could give: (rounds, fewest, that byte swizzle).

    Tiles that TMA or wgmma touches may have no swizzle, or the mode whose rows theirs are.
    """
    found = {}
    for name, plan in _plans(plain).items():
        if plan["scope"] != "shared":
            continue
        real, bare = _accesses(plain, plan, _bytes(plan)), _accesses(plain, plan, _bare(plan))
        if not real:
            continue
        taken = total_rounds(real)
        best, swizzle = fewest_rounds(bare, _candidates(plain, plan, real))
        if taken > best:
            found[name] = (taken, best, swizzle)
    return found


def _bytes(plan: Plan) -> Table:
    return offsets(plan["layout"]) * width(plan["dtype"]) // 8


def _bare(plan: Plan) -> Table:
    """Byte addresses of the layout without its swizzles."""
    text = plan["layout"]
    plain = text.rsplit(" o ", 1)[-1] if read(text).swizzles else text
    return offsets(plain) * width(plan["dtype"]) // 8


def _accesses(plain: Mapping[str, Any], plan: Plan, bytes_of: Table) -> list[tuple[Table, int]]:
    found = []
    for copy in copies_of(plain):
        if copy["tma"] is not None:
            continue
        for side, key in (("source", "source_addresses"), ("target", "target_addresses")):
            if copy[side] == plan["name"]:
                matrix = "matrix" in copy["instructions"][0]
                found += accesses(bytes_of, copy, key, plain["threads"], matrix)
    return found


def _candidates(
    plain: Mapping[str, Any], plan: Plan, found: list[tuple[Table, int]]
) -> list[tuple[int, int, int]]:
    rows = {
        copy["tma"]["extents"][0] * width(plan["dtype"]) // 8
        for copy in copies_of(plain)
        if copy["tma"] is not None and plan["name"] in (copy["source"], copy["target"])
    }
    rows |= {
        16 << step[f"{role}_descriptor"]["swizzle"]
        for step in plain["steps"]
        for role in "ab"
        if step["kind"] == "gemm" and step[role] == plan["name"] and step[f"{role}_descriptor"]
    }
    if rows:
        return [mode for mode in MODES if mode[0] == 0 or rows == {16 << mode[0]}]
    lowest = max(size for _, size in found).bit_length() - 1
    return every_swizzle(lowest, min(13, (plan["bytes"] - 1).bit_length()))
