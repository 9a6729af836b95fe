"""Solutions whose tiles are wider than the problem's: accesses at the edge, and room for the rest.

What is beyond the edge is not there on a device. Here memory gets room for it, so that the wider
problem is checked like any other, once no access is seen to cross the edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ir.layout.synthesis.problem import Tile, TileProgram
from tests.layout.checker.findings import Kind, Report
from tests.layout.checker.state import Plan
from tests.layout.checker.tables import Table, grid


def roomy(
    program: TileProgram, plain: Mapping[str, Any], report: Report
) -> tuple[TileProgram, Mapping[str, Any]]:
    """The wider problem and its solution, with strides of global memory that leave room."""
    bounds = dict(plain.get("bounds", ()))
    if not bounds:
        return program, plain
    wide = {axis: extent for plan in plain["tiles"] for axis, extent in plan["axes"]}
    own = {axis: extent for tile in program.tiles for axis, extent in tile.axes}
    if bounds != {axis: own[axis] for axis in own if own[axis] != wide[axis]}:
        report.add(Kind.OUT_OF_RANGE, program.name, f"bounds {bounds} of extents {own}")
    _edges(plain, bounds, report)
    tiles = tuple(
        _stretched(replace(tile, axes=tuple((a, wide[a]) for a in tile.names)))
        for tile in program.tiles
    )
    strides = {tile.name: tile for tile in tiles if tile.scope == "global"}
    plans = [
        {**plan, "layout": _text(strides[plan["of"]])} if plan["of"] in strides else plan
        for plan in plain["tiles"]
    ]
    return replace(program, tiles=tiles), {**plain, "tiles": plans}


def _stretched(tile: Tile) -> Tile:
    """Strides times odd numbers, which keep what is aligned and what is not."""
    if tile.scope != "global":
        return tile
    found, reach = list(tile.strides), 1
    for at in sorted(range(len(found)), key=lambda at: tile.strides[at]):
        if found[at]:
            found[at] *= -(-reach // found[at]) | 1
            reach = found[at] * tile.shape[at]
    return replace(tile, strides=tuple(found))


def _text(tile: Tile) -> str:
    if len(tile.axes) == 1:
        return f"{tile.shape[0]}:{tile.strides[0]}"
    return f"({','.join(map(str, tile.shape))}):({','.join(map(str, tile.strides))})"


def _edges(plain: Mapping[str, Any], bounds: Mapping[str, int], report: Report) -> None:
    plans = {plan["name"]: plan for plan in plain["tiles"]}
    for step in plain["steps"]:
        if step["kind"] != "copy":
            continue
        for name, key in (
            (step["source"], "source_addresses"),
            (step["target"], "target_addresses"),
        ):
            if plans[name]["scope"] == "global":
                _edge(plans[name], step, key, bounds, report)


def _edge(plan: Plan, step: Plan, key: str, bounds: Mapping[str, int], report: Report) -> None:
    """Every access is there as a whole or not at all."""
    if step["tma"] is not None:
        if any(axis in bounds for axis, _ in plan["axes"]):
            report.add(Kind.ILLEGAL_BOX, plan["name"], "a box of which a part is not there")
        return
    starts = grid(step[key], 2)
    first = dict(_coordinates(starts, plan["axes"]))
    for axis, bound in bounds.items():
        if axis not in first:
            continue
        length = step["elements"] if axis == _contiguous(plan) else 1
        cut = (first[axis] < bound) & (first[axis] + length > bound)
        if cut.any():
            detail = f"{int(cut.sum())} accesses of {length} cross {bound} on axis {axis}"
            report.add(Kind.OUT_OF_RANGE, plan["name"], detail)


def _coordinates(index: Table, axes: Any) -> Iterator[tuple[str, Table]]:
    for axis, extent in axes:
        yield axis, index % extent
        index = index // extent


def _contiguous(plan: Plan) -> str:
    """The axis along which neighbours lie side by side."""
    strides = np.array(plan["layout"].split(":")[1].strip("()").split(","), dtype=np.int64)
    return next((axis for (axis, _), s in zip(plan["axes"], strides, strict=True) if s == 1), "")
