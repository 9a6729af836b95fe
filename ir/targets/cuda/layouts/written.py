"""Which points of an output each thread writes, as the layout synthesis finds it: whole sectors.

Emits nothing.
"""

from __future__ import annotations

from functools import lru_cache

from ir.dtypes import dtype_of
from ir.layout.synthesis import Pins, Tile, TileOp, TileProgram, synthesise
from ir.targets.cuda.layouts.placed import ThreadValues, thread_values
from ir.targets.cuda.layouts.synthesised import ENOUGH, FAR


@lru_cache(maxsize=256)
def written(dtype: str, line: int, lines: int, threads: int, vector: int) -> ThreadValues:
    """The points of `lines` lines of `line` neighbours that `threads` threads write, `vector` at a
    time. Along axis 0 neighbours lie side by side."""
    axes, size = (("line", line), ("lines", lines)), dtype_of(dtype).bytes
    problem = TileProgram(
        "written",
        threads,
        (
            Tile("values", dtype, axes, "register"),
            Tile("output", dtype, axes, "global", (1, FAR), vector * size),
        ),
        (
            TileOp("fill", (), ("values",), (("value", 0),)),
            TileOp("copy", ("values",), ("output",)),
        ),
        Pins(((1, f"st.{8 * vector * size}"),)),
        registers=ENOUGH,
    )
    layout = synthesise(problem, 1)[0].tile("values").layout
    return thread_values(layout, (line, lines))
