"""Where the blocks of a kernel on wgmma that share a tile's sum meet: memory, and the way they add.

A turnstile's grid is cut into waves of whole tiles, so that parts that wait for each other lie on
neighbouring clusters of one wave. Where tiles are shared as a stream, every block of the grid has
room for the sums of one piece.
"""

from __future__ import annotations

from math import prod

from ir.targets.cuda.grid.merging import ARRIVALS, SHARES, Meeting
from ir.targets.cuda.grid.raster import run_of
from ir.targets.cuda.grid.running import Gathering, Turnstile
from ir.targets.cuda.grid.stream_k import NONE, HandOver, Stream
from ir.targets.cuda.launch import Room
from ir.targets.cuda.plans.tensor_plan import Plan
from ir.targets.cuda.space.splits import ATOMICS, LAST, TURNSTILE


def rooms_of(plan: Plan, tiles: int, name: str) -> tuple[Room, ...]:
    """Memory of the kernel called `name` for sums and counts of `tiles` tiles of blocks."""
    if not plan.shared_sums or plan.exchanges:
        return ()
    sums = 4 * tiles * plan.tile_rows * plan.tile_columns * len(plan.roles.sums)
    every = plan.parts if plan.parts > 1 and plan.merge == LAST else 1
    return (
        Room(f"{name}.{SHARES}", sums * every, clean=plan.parts > 1 and plan.merge == ATOMICS),
        Room(f"{name}.{ARRIVALS}", 4 * tiles, clean=True),
    )


def meeting_of(plan: Plan, tile: str, part: str, sync: str) -> Meeting:
    """How the parts of tile number `tile` meet, of which this block has number `part`."""
    flag = f"tw_shared_base() + {plan.memory.offsets['arrived']}"
    flag += "" if plan.cooperative else " + 16 * member"
    kinds = {LAST: Meeting, TURNSTILE: Turnstile, ATOMICS: Gathering}
    return kinds[plan.merge](plan.parts, part, tile, plan.frame.team, sync, f"(u32*)({flag})")


def stream_of(plan: Plan, tiles: int, rows: int, columns: int) -> Stream | None:
    """How clusters share the blocks of their `tiles` tiles, `rows` x `columns` a batch; or None."""
    if plan.stream_k == NONE:
        return None
    axes = plan.program.axes
    blocks = prod(-(-axes[axis] // plan.tiles[axis]) for axis in plan.roles.walked)
    run = run_of(plan.raster, rows, columns)
    return Stream.of(plan.stream_k, tiles, blocks, plan.processors // plan.cluster_size, run)


def hand_over_of(plan: Plan, stream: Stream, tile: str, first: str, sync: str) -> HandOver:
    """How the pieces of tile number `tile` meet, of which this block's begins at block `first`."""
    size = plan.cluster_size
    place = f"({stream.place('{}')} * {size} + rank)" if size > 1 else stream.place("{}")
    return HandOver(
        parts=1, part="0", tile=place.format("range"), team=plan.frame.team, sync=sync, flag="",
        stream=stream, place=place, number=tile, first=first,
    )  # fmt: skip


def whole_waves(plan: Plan, clusters: int) -> int:
    """Clusters of a grid that walk all tiles, out of `clusters` that there are room for."""
    return clusters - clusters % plan.parts if plan.merge == TURNSTILE else clusters
