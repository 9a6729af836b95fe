"""What kernels on mma.sync take from the layout synthesis: reads of fragments, swizzles, sums.

One warp's instruction is posed with a panel of its first operand: copied by cp.async, read to
registers, multiplied. The second operand's matrices are alike. Lines of a panel are those of
memory, so of the solutions one is taken that leaves them whole. Emits nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ir.errors import Refusal
from ir.layout.errors import LayoutError
from ir.layout.instructions.rows import suffix
from ir.layout.swizzle import Swizzle
from ir.layout.synthesis import CopyPlan, Pins, Solution, Tile, TileOp, TileProgram, synthesise
from ir.targets.cuda.layouts.frame import WARP
from ir.targets.cuda.layouts.lanes import COLUMNS as COLUMNS
from ir.targets.cuda.layouts.lanes import operand
from ir.targets.cuda.layouts.panels import panels_of
from ir.targets.cuda.layouts.placed import ThreadValues, thread_values
from ir.targets.cuda.layouts.synthesised import ENOUGH, FAR
from ir.targets.cuda.prelude.families import MMA_KINDS

ROWS = 16  # of one instruction
LINES = 64  # lines of a panel along the sum: more than a swizzle's pattern has
TRIED = 8
GEMM = 4  # the op that multiplies


@dataclass(frozen=True, slots=True)
class FragmentRead:
    """How fragments are read from lines in shared memory. `swizzle` acts on byte offsets; `sums`:
    where one instruction's accumulators lie, over its rows and columns; `multiply`: its name."""

    instruction: str
    swizzle: Swizzle
    sums: ThreadValues
    multiply: str

    @property
    def operands(self) -> dict[str, ThreadValues]:
        """Where the points of its operands "a" and "b" lie, over rows or columns and the sum."""
        return {part: operand(self.multiply, part) for part in ("a", "b")}

    @property
    def matrices(self) -> bool:
        """Whether 8x8 matrices are read, by ldmatrix."""
        return self.instruction.startswith("ldmatrix")

    @property
    def transposed(self) -> bool:
        """Whether they are transposed on the way."""
        return self.instruction.endswith(".trans")

    def target(self, width: int) -> int:
        """Mask of the bits that the swizzle changes in lines of `width` bytes."""
        return ((1 << self.swizzle.bits) - 1 << self.swizzle.base) & (width - 1)

    def within(self, width: int) -> Swizzle:
        """The swizzle of lines of `width` bytes."""
        bits = (self.target(width) >> self.swizzle.base).bit_length()
        return Swizzle(bits, self.swizzle.base, self.swizzle.shift)


@lru_cache(maxsize=256)
def fragment_read(dtype: str, inside: bool, width: int) -> FragmentRead:
    """The read of an operand whose lines run along the sum (`inside`) or across it, `width` bytes
    of them in a panel. Refusal "layouts" where there is none."""
    problem = fragment_problem(dtype, inside, width)
    try:
        solutions = synthesise(problem, TRIED)
    except LayoutError as error:
        raise Refusal("layouts", f"{error.code}: {error}") from None
    found = (_read(problem, solution, inside) for solution in solutions)
    read = next((read for read in found if read is not None), None)
    if read is None:
        raise Refusal("layouts", f"no {dtype} fragments from whole lines of {width} bytes")
    return read


def fragment_problem(dtype: str, inside: bool, width: int) -> TileProgram:
    """One instruction's fragments from one panel, by one warp."""
    kind = MMA_KINDS[dtype]
    points = width // (32 // kind.k)
    rows = LINES if inside else max(points, ROWS)
    m, n, k = ("m", rows), ("n", COLUMNS), ("k", max(points, kind.k) if inside else kind.k)
    sums = "i32" if kind.accumulator == "s32" else "f32"
    return TileProgram(
        "fragment",
        WARP,
        (
            Tile("source", dtype, (m, k), "global", (FAR, 1) if inside else (1, FAR)),
            Tile("panel", dtype, (m, k), "shared"),
            Tile("a", dtype, (m, k), "register"),
            Tile("b", dtype, (n, k), "register"),
            Tile("sums", sums, (m, n), "register"),
        ),
        (
            TileOp("copy", ("source",), ("panel",)),
            TileOp("copy", ("panel",), ("a",)),
            TileOp("fill", (), ("b",), (("value", 0),)),
            TileOp("fill", (), ("sums",), (("value", 0),)),
            TileOp("gemm", ("a", "b"), ("sums",), (("m", "m"), ("n", "n"), ("k", "k"))),
        ),
        Pins(
            ((0, "cp.async.16"), (GEMM, f"mma.m16n8k{kind.k}.{suffix(dtype)}")),
            ((GEMM, (1, 1)),),
            ((GEMM, False),),
        ),
        shared_bytes=ENOUGH,
        registers=ENOUGH,
    )


def _read(problem: TileProgram, solution: Solution, inside: bool) -> FragmentRead | None:
    """A solution in which the panel's lines are whole; None for another."""
    found = panels_of(problem.tile("panel"), solution.tile("panel").layout)
    if found is None or found.count > 1 or found.order or found.along != int(inside):
        return None
    copy = solution.steps[1]
    assert isinstance(copy, CopyPlan)
    sums = thread_values(solution.tile("sums").layout, problem.tile("sums").shape)
    return FragmentRead(
        copy.instructions[0],
        found.swizzle,
        sums.within(0, ROWS).within(1, COLUMNS),
        dict(problem.pins.instructions)[GEMM],
    )
