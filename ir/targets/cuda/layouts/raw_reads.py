"""How threads read from shared memory what a computed operand is made of: as the synthesis finds.

A raw tile comes by TMA, and every thread takes from it what its points of the operand are made of:
the operand's fragment, without the points of axes that the tile has not (as the two halves of a
byte). Emits nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ir.errors import Refusal
from ir.layout.errors import LayoutError
from ir.layout.synthesis import CopyPlan, Pins, Tile, TileOp, TileProgram, synthesise
from ir.targets.cuda.layouts.frame import GROUP
from ir.targets.cuda.layouts.panels import panels_of
from ir.targets.cuda.layouts.placed import ThreadValues
from ir.targets.cuda.layouts.synthesised import FAR, ROWS


@dataclass(frozen=True, slots=True)
class RawRead:
    """`line`: bytes of a line in one panel; `elements`: neighbours that a thread reads at once."""

    line: int
    elements: int


@lru_cache(maxsize=1024)
def raw_read(
    fragment: ThreadValues, dtype: str, points: int, apart: int, inside: bool
) -> RawRead:  # fmt: skip
    """The read of a raw tile with `points` points along the sum, each for `apart` neighbours of the
    operand's; lines run along the sum (`inside`) or the rows. Refusal "layouts" where there is
    none."""
    axes = (("m", ROWS), ("k", points))
    own = fragment.within(0, ROWS).divided(1, apart)
    problem = TileProgram(
        "raw",
        GROUP,
        (
            Tile("source", dtype, axes, "global", (FAR, 1) if inside else (1, FAR)),
            Tile("tile", dtype, axes, "shared"),
            Tile("values", dtype, axes, "register", layout=own.text((ROWS, points))),
        ),
        (TileOp("copy", ("source",), ("tile",)), TileOp("copy", ("tile",), ("values",))),
        Pins(((0, "tma.load"),)),
    )
    try:
        solution = synthesise(problem, 1)[0]
    except LayoutError as error:
        raise Refusal("layouts", f"{error.code}: {error}") from None
    copy, layout = solution.steps[1], solution.tile("tile").layout
    found = panels_of(problem.tile("tile"), layout)
    if found is None or not found.canonical:
        raise Refusal("layouts", f"no panels of whole lines: {layout}")
    assert isinstance(copy, CopyPlan)
    return RawRead(found.width, copy.elements)
