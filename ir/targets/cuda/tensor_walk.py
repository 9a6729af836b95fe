"""Where tiles of a kernel on wgmma begin their walk along the sum: in front, or spread over it.

Tiles that run at a time read rows of one matrix, far apart and at the same place of each. Where
they begin at places of their own, and go round, their addresses differ in more bits, and spread
better over the channels of the memory.
"""

from __future__ import annotations

from ir.columns import Decision
from ir.targets.cuda.writer import Writer

BEGIN = "begin"
FRONT, SPREAD = "front", "spread"


def begin_decision(mark: str, owner: str) -> Decision:
    """The decision, of kernels that add blocks of a sum in any order."""
    why = "where tiles begin their walk along the sum: in front, or spread over it"
    return Decision(
        f"{BEGIN}{mark}", (FRONT, SPREAD), "order", owner, why, FRONT, unsaid=FRONT
    )  # fmt: skip


def declare_turn(w: Writer, tile: str, tiles: int) -> str:
    """Declare the block that comes first in the walk of `tile`, one of `tiles`; its name."""
    name = w.name("turned")
    w.line(f"const i32 {name} = (i32)((i64){tile} * blocks / {tiles});")
    return name


def place_of(w: Writer, block: str, turn: str) -> str:
    """Declare which block of the sum is walked as number `block`; returns its name."""
    later, name = w.name("later"), w.name("place_at")
    w.line(f"const i32 {later} = {block} + {turn};")
    w.line(f"const i32 {name} = {later} < blocks ? {later} : {later} - blocks;")
    return name
