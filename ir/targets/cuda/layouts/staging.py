"""How consumers on wgmma stage a panel of an output on its way to TMA, as the synthesis finds it.

A panel is 64 rows of accumulators by some columns. The synthesis places it in shared memory and
names the instruction that writes it there. Emits nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ir.errors import Refusal
from ir.layout.errors import LayoutError
from ir.layout.expressions import Expression
from ir.layout.synthesis import CopyPlan, Pins, Solution, Tile, TileOp, TileProgram, synthesise
from ir.targets.cuda.layouts.frame import GROUP
from ir.targets.cuda.layouts.lines import TileLines, line_swizzle
from ir.targets.cuda.layouts.operands import LINE
from ir.targets.cuda.layouts.panels import panels_of
from ir.targets.cuda.layouts.placed import ThreadValues
from ir.targets.cuda.layouts.synthesised import FAR, ROWS


@dataclass(frozen=True, slots=True)
class Staging:
    """`line`: bytes of a line, swizzled over `swizzle` of them (0: not at all); `count`: panels of
    such lines, one after the other, each a box of TMA; `instruction`: what writes them."""

    line: int
    swizzle: int
    count: int
    instruction: str

    @property
    def matrices(self) -> bool:
        """Whether 8x8 matrices are written, by stmatrix."""
        return self.instruction.startswith("stmatrix")

    def offset(self, line: Expression, byte: Expression, lines: int) -> Expression:
        """Where a byte of a line lies in panels of so many lines."""
        return TileLines(lines, self.line, line_swizzle(self.swizzle)).offset(line, byte)


@lru_cache(maxsize=1024)
def staging_of(fragment: ThreadValues, dtype: str, columns: int, transposed: bool) -> Staging:
    """The staging of 64 rows by `columns` of an output, contiguous along the rows if `transposed`,
    or the columns. Refusal "layouts" where there is none that the kernel can write."""
    problem = staging_problem(fragment, dtype, columns, transposed)
    try:
        solution = synthesise(problem, 1)[0]
    except LayoutError as error:
        raise Refusal("layouts", f"{error.code}: {error}") from None
    return _read(problem, solution, transposed)


def staging_problem(
    fragment: ThreadValues, dtype: str, columns: int, transposed: bool
) -> TileProgram:  # fmt: skip
    """Registers to shared memory, and on by TMA."""
    axes = (("m", ROWS), ("n", columns))
    own = fragment.within(0, ROWS).within(1, columns)
    strides = (1, FAR) if transposed else (FAR, 1)
    return TileProgram(
        "staging",
        GROUP,
        (
            Tile("values", dtype, axes, "register", layout=own.text((ROWS, columns))),
            Tile("panel", dtype, axes, "shared"),
            Tile("output", dtype, axes, "global", strides),
        ),
        (TileOp("copy", ("values",), ("panel",)), TileOp("copy", ("panel",), ("output",))),
        Pins(((1, "tma.store"),)),
    )


def _read(problem: TileProgram, solution: Solution, transposed: bool) -> Staging:
    """What kernels write: one panel, or of 32-bit values along the rows a panel for each 32 rows.

    Whole lines that no swizzle of TMA's frees of conflicts are padded to 128 bytes.
    """
    tile, layout = problem.tiles[1], solution.tile("panel").layout
    copy = solution.steps[0]
    assert isinstance(copy, CopyPlan)
    along = 0 if transposed else 1
    whole = tile.shape[along] * tile.bits // 8
    name, wanted = copy.instructions[0], LINE if transposed else whole
    found = panels_of(tile, layout)
    if found is None or found.along != along:
        raise Refusal("layouts", f"no panels of lines that kernels write: {layout}")
    if found.count == 1 and found.swizzle.plain:
        padded = copy.ways > 1
        return Staging(LINE if padded else whole, LINE if padded else 0, 1, name)
    if found.width != wanted or not found.canonical:
        raise Refusal("layouts", f"no panels of {wanted} bytes, swizzled over them: {layout}")
    return Staging(wanted, wanted, found.count, name)
