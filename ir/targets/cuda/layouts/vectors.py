"""How many neighbours one access of a thread moves: as the layout synthesis finds it.

The points that a value has in registers and threads are posed digit by digit, each an axis of its
own, with where its steps lead in memory. Emits nothing.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ir.layout.algebra import from_modes
from ir.layout.layout import concat
from ir.layout.synthesis import CopyPlan, Tile, TileOp, TileProgram, synthesise
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.layouts.synthesised import ENOUGH

VECTOR_BYTES = 16
Steps = tuple[tuple[int, int], ...]
"""(size, elements of memory from one step to the next) of digits, the fastest first."""


@lru_cache(maxsize=8192)
def neighbours(dtype: str, registers: Steps, threads: Steps, alignment: int) -> int:
    """Elements of the widest load that gives each thread some of its own, side by side.

    Along the first digit of the registers memory is contiguous; digits of threads that do not move
    there hold the same elements. `alignment`: bytes of the first element's address.
    """
    idle = WARP // min(WARP, prod(size for size, _ in threads))
    moving = [*registers, *(digit for digit in threads if digit[1])]
    places = {number: prod(size for size, _ in moving[:number]) for number in range(len(moving))}
    values = from_modes((size, places[at]) for at, (size, _) in enumerate(registers))
    at, lanes = len(registers), []
    for size, step in threads:
        lanes.append((size, places[at] if step else 0))
        at += bool(step)
    layout = concat(from_modes([*lanes, (idle, 0)]), values)
    axes = tuple((f"digit_{number}", size) for number, (size, _) in enumerate(moving))
    problem = TileProgram(
        "access",
        layout.mode(0).size,
        (
            Tile("memory", dtype, axes, "global", tuple(abs(s) for _, s in moving), alignment),
            Tile("values", dtype, axes, "register", layout=str(layout)),
        ),
        (TileOp("copy", ("memory",), ("values",)),),
        registers=ENOUGH,
    )
    (copy,) = synthesise(problem, 1)[0].steps
    assert isinstance(copy, CopyPlan)
    return copy.elements
