"""Where the blocks of a kernel on wgmma that share a tile's sum meet: memory, and the way they add.

A turnstile's grid is cut into waves of whole tiles, so that parts that wait for each other lie on
neighbouring clusters of one wave.
"""

from __future__ import annotations

from ir.targets.cuda.launch import Room
from ir.targets.cuda.merging import ARRIVALS, SHARES, Meeting
from ir.targets.cuda.running import Gathering, Turnstile
from ir.targets.cuda.splits import ATOMICS, LAST, TURNSTILE
from ir.targets.cuda.tensor_plan import Plan


def rooms_of(plan: Plan, tiles: int, name: str) -> tuple[Room, ...]:
    """Memory of the kernel called `name` for sums and counts of `tiles` tiles of a block."""
    if plan.parts == 1 or plan.exchanges:
        return ()
    sums = 4 * tiles * plan.tile_rows * plan.tile_columns * len(plan.roles.outer)
    every = plan.parts if plan.merge == LAST else 1
    return (
        Room(f"{name}.{SHARES}", sums * every, clean=plan.merge == ATOMICS),
        Room(f"{name}.{ARRIVALS}", 4 * tiles, clean=True),
    )


def meeting_of(plan: Plan, tile: str, part: str, sync: str) -> Meeting:
    """How the parts of tile number `tile` meet, of which this block has number `part`."""
    flag = f"tw_shared_base() + {plan.offsets['arrived']}"
    flag += "" if plan.cooperative else " + 16 * member"
    kinds = {LAST: Meeting, TURNSTILE: Turnstile, ATOMICS: Gathering}
    return kinds[plan.merge](plan.parts, part, tile, plan.frame.team, sync, f"(u32*)({flag})")


def whole_waves(plan: Plan, clusters: int) -> int:
    """Clusters of a grid that walk all tiles, out of `clusters` that there are room for."""
    return clusters - clusters % plan.parts if plan.merge == TURNSTILE else clusters
