"""Fragments of products whose operands threads load from where they are: as the synthesis finds.

In which order an instruction sums is free, as long as both operands agree. A warp's instruction is
posed with loads from lines along the sum, so that a lane's points of it are neighbours. Emits
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from ir.layout.instructions.rows import suffix
from ir.layout.synthesis import CopyPlan, Pins, Tile, TileOp, TileProgram, synthesise
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.layouts.placed import Step, ThreadValues, thread_values
from ir.targets.cuda.layouts.synthesised import FAR

ROWS, COLUMNS, DEPTH = 16, 8, 16  # of an instruction
GEMM = 3  # the op that multiplies


@dataclass(frozen=True, slots=True)
class Woven:
    """Where the points of an instruction's operands lie, over rows or columns and the sum, and
    those of its sums; `neighbours` along the sum are one load of a lane."""

    rows: ThreadValues
    columns: ThreadValues
    sums: ThreadValues
    neighbours: int

    @property
    def two_columns(self) -> ThreadValues:
        """The second operand of two instructions beside each other."""
        return replace(self.columns, values=(*self.columns.values, Step(0, 2, COLUMNS)))


@lru_cache(maxsize=8)
def woven(dtype: str) -> Woven:
    """The fragments of one instruction on operands of 16 bits."""
    problem = woven_problem(dtype)
    solution = synthesise(problem, 1)[0]
    rows, columns, sums = (
        thread_values(solution.tile(name).layout, problem.tile(name).shape)
        for name in ("a", "b", "sums")
    )
    copy = solution.steps[0]
    assert isinstance(copy, CopyPlan)
    return Woven(rows, columns, sums, copy.elements)


def woven_problem(dtype: str) -> TileProgram:
    """Both operands from lines of memory to registers, and their product."""
    m, n, k = ("m", ROWS), ("n", COLUMNS), ("k", DEPTH)
    return TileProgram(
        "woven",
        WARP,
        (
            Tile("rows", dtype, (m, k), "global", (FAR, 1)),
            Tile("columns", dtype, (n, k), "global", (FAR, 1)),
            Tile("a", dtype, (m, k), "register"),
            Tile("b", dtype, (n, k), "register"),
            Tile("sums", "f32", (m, n), "register"),
        ),
        (
            TileOp("copy", ("rows",), ("a",)),
            TileOp("copy", ("columns",), ("b",)),
            TileOp("fill", (), ("sums",), (("value", 0),)),
            TileOp("gemm", ("a", "b"), ("sums",), (("m", "m"), ("n", "n"), ("k", "k"))),
        ),
        Pins(
            ((GEMM, f"mma.m{ROWS}n{COLUMNS}k{DEPTH}.{suffix(dtype)}"),),
            ((GEMM, (1, 1)),),
            ((GEMM, False),),
        ),
    )
