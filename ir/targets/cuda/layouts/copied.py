"""Which pieces of a tile each thread copies to shared memory, as the layout synthesis finds it.

Threads follow the order of memory, so that a warp's pieces are whole sectors. Emits nothing.
"""

from __future__ import annotations

from functools import lru_cache

from ir.layout.synthesis import CopyPlan, Pins, Tile, TileOp, TileProgram, synthesise
from ir.targets.cuda.layouts.placed import ThreadValues, thread_values
from ir.targets.cuda.layouts.synthesised import ENOUGH, FAR

ASYNCHRONOUS = 4  # bytes that cp.async copies at least


@lru_cache(maxsize=1024)
def copied(dtype: str, line: int, lines: int, threads: int, piece: int) -> ThreadValues:
    """The first points of the pieces of so many bytes that `threads` threads copy, of `lines` lines
    of `line` neighbours. Along axis 0 neighbours lie side by side; a thread's values are its turns.

    Where threads do not divide them, there may be pieces behind the last line, which are not there.
    """
    axes = (("line", line), ("lines", lines))
    name = f"cp.async.{piece}" if piece >= ASYNCHRONOUS else f"ld.{8 * piece}"
    problem = TileProgram(
        "copied",
        threads,
        (
            Tile("source", dtype, axes, "global", (1, FAR), piece),
            Tile("panel", dtype, axes, "shared"),
        ),
        (TileOp("copy", ("source",), ("panel",)),),
        Pins(((0, name),)),
        shared_bytes=ENOUGH,
    )
    solution = synthesise(problem, 1)[0]
    (copy,) = solution.steps
    assert isinstance(copy, CopyPlan)
    shape = tuple(extent for _, extent in solution.tile("source").axes)
    return thread_values(copy.source_addresses, shape)
