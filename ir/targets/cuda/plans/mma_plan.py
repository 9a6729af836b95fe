"""One schedule of a kernel on mma.sync, worked out: tiles, warps, stages, shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from ir.dtypes import dtype_of
from ir.errors import Refusal
from ir.ops.store import Store
from ir.program import Program
from ir.schedule import Value
from ir.targets.cuda.build import late
from ir.targets.cuda.build.roles import Roles
from ir.targets.cuda.grid.overlap import starts_early
from ir.targets.cuda.layouts.crossing import PART, Crossing, crossing
from ir.targets.cuda.layouts.frame import WARP, Frame, ThreadDigit
from ir.targets.cuda.layouts.mma_operands import STEP, StageTile, depth_tiles, raw_tiles
from ir.targets.cuda.layouts.mma_stored import stored, tile_bytes
from ir.targets.cuda.layouts.mma_synthesised import COLUMNS as COLUMNS
from ir.targets.cuda.layouts.mma_synthesised import ROWS as ROWS
from ir.targets.cuda.layouts.placed import Placed, Step, ThreadValues, framed
from ir.targets.cuda.layouts.written import written
from ir.targets.cuda.plans.sides import Side, side
from ir.targets.cuda.prelude.families import MMA_KINDS

SUM = 4  # bytes


@dataclass(frozen=True)
class MmaPlan:
    """All numbers of one kernel. `warps` lie along rows, columns and the summed axes."""

    program: Program
    roles: Roles
    tiles: Mapping[str, int]
    warps: tuple[int, int, int]
    stages: int
    fragments: int
    resident: int
    raster: str
    epilogue: str
    loads: str  # of what computed operands are made of: "direct" or "staged"
    early: bool
    ahead: int = 0  # columns whose operands an epilogue asks for early

    @property
    def threads(self) -> int:
        return WARP * prod(self.warps)

    @cached_property
    def rows(self) -> Side:
        return side(self.roles.rows, self.tiles)

    @cached_property
    def columns(self) -> Side:
        return side(self.roles.columns, self.tiles)

    @cached_property
    def depth(self) -> Side:
        return side(self.roles.walked, self.tiles)

    @property
    def warp_rows(self) -> int:
        return self.rows.size // self.warps[0]

    @property
    def warp_columns(self) -> int:
        return self.columns.size // self.warps[1]

    @property
    def row_blocks(self) -> int:
        """Instructions along the rows of a warp."""
        return self.warp_rows // ROWS

    @property
    def column_blocks(self) -> int:
        return self.warp_columns // COLUMNS

    @property
    def kind(self) -> str:
        """What the instructions call the types of their operands."""
        return self.roles.kind_of(self.roles.outer[0])

    @property
    def step(self) -> int:
        """Points that one instruction sums over."""
        return MMA_KINDS[self.kind].k

    @property
    def steps(self) -> int:
        """Instructions along the sum for one block and warp."""
        return self.depth.size // self.step // self.warps[2]

    @cached_property
    def blocks(self) -> int:
        """Blocks that are walked."""
        axes = self.program.axes
        return prod(-(-axes[axis] // self.tiles[axis]) for axis in self.roles.walked)

    @property
    def sums(self) -> ThreadValues:
        """Where the accumulators of one instruction lie, over its rows and columns."""
        read = self.operand(self.roles.outer[0].a).read
        assert read is not None
        return read.sums

    @cached_property
    def frame(self) -> Frame:
        """Where an accumulator's points lie: those of one instruction, then blocks, then warps."""
        warps = [
            *self.rows.threads(self.warps[0], self.warp_rows),
            *self.columns.threads(self.warps[1], self.warp_columns),
            ThreadDigit(self.warps[2]),
        ]
        one = framed([Placed(self.sums, (self.rows, self.columns))], warps)
        blocks = (
            *self.columns.digits(self.column_blocks, COLUMNS),
            *self.rows.digits(self.row_blocks, ROWS),
        )
        return Frame((*one.registers, *blocks), one.threads)

    # -- operands and shared memory

    @cached_property
    def operands(self) -> tuple[StageTile, ...]:
        """Tiles of one stage, each once."""
        found: dict[int, StageTile] = {}
        for product in self.roles.outer:
            found[product.a] = self._tile(product.a, self.rows)
            found[product.b] = self._tile(product.b, self.columns)
        return tuple(found.values())

    def _tile(self, position: int, free: Side) -> StageTile:
        return StageTile(self.program, position, free, self.depth)

    def operand(self, position: int) -> StageTile:
        return next(tile for tile in self.operands if tile.position == position)

    @property
    def staged(self) -> bool:
        """Whether computed operands are made of raw tiles, a block ahead of their use."""
        return self.loads == "staged"

    def raw(self, tile: StageTile) -> tuple[StageTile, ...]:
        """Raw tiles of a computed operand."""
        return raw_tiles(tile) if self.staged and not tile.copied else ()

    def slots(self, tile: StageTile) -> int:
        """Blocks of a tile in shared memory: computed ones are made just before their use."""
        return self.stages if tile.copied or not self.staged else 2

    @cached_property
    def stored(self) -> tuple[StageTile, ...]:
        """All tiles in shared memory, each once, operands first."""
        raw = [part for tile in self.operands for part in self.raw(tile)]
        return tuple(dict.fromkeys((*self.operands, *raw)))

    def offset(self, tile: StageTile) -> int:
        """Where a tile's first slot begins; its slots follow each other."""
        before = self.stored[: self.stored.index(tile)]
        return sum(other.bytes * self.slots(other) for other in before)

    def line_sides(self, op: Store) -> tuple[Side, Side]:
        """The side along which an output's points are neighbours in memory, and the other."""
        if op.axes[-1] in self.roles.rows:
            return self.rows, self.columns
        return self.columns, self.rows

    def line_vector(self, op: Store) -> int:
        """Neighbours that a thread writes at a time."""
        (first, second), size = self.line_sides(op), dtype_of(self._dtype(op)).bytes
        share = max(1, first.size * second.size // self.threads)
        return min(16 // size, 8, share, first.size)

    def lines(self, op: Store) -> ThreadValues:
        """Which points of an output threads write, over its two sides."""
        first, second = self.line_sides(op)
        vector = self.line_vector(op)
        return written(self._dtype(op), first.size, second.size, self.threads, vector)

    def _dtype(self, op: Store) -> str:
        return self.program.scope.tensors[op.tensor].dtype

    @cached_property
    def crossing(self) -> Crossing:
        """How accumulators get to the lines of the first output; others find them there too."""
        rows, columns, parts = self.warps
        warps = Step(0, rows, self.warp_rows), Step(1, columns, self.warp_columns)
        blocks = Step(1, self.column_blocks, COLUMNS), Step(0, self.row_blocks, ROWS)
        part = Step(PART, parts, 1)
        sums = ThreadValues((*self.sums.threads, *warps, part), (*self.sums.values, *blocks))
        store = next(node.op for node in self.program.nodes if isinstance(node.op, Store))
        lines = self.lines(store)
        if self.line_sides(store) != (self.rows, self.columns):
            lines = lines.turned
        lines = ThreadValues(lines.threads, (*lines.values, part))
        return crossing(sums, lines, (self.rows.size, self.columns.size, parts))

    @property
    def sums_bytes(self) -> int:
        """One product's accumulators in shared memory, of all warps."""
        return self.rows.size * self.columns.size * self.warps[2] * SUM

    @property
    def shared(self) -> int:
        staged = self.sums_bytes * len(self.roles.outer)
        operands = [stored(tile) for tile in self.operands]
        tiles = int(tile_bytes(operands, self.stages, self.staged))
        return max(tiles, staged if self.epilogue == "staged" else 0)

    def check(self, limit: int) -> None:
        """Refusal for what the constraints should have excluded."""
        if self.rows.size % (ROWS * self.warps[0]) or self.columns.size % (COLUMNS * self.warps[1]):
            raise Refusal("tile", f"{self.rows.size} x {self.columns.size} for {self.warps} warps")
        if self.steps < 1:
            raise Refusal("depth", f"{self.depth.size} points for {self.warps[2]} warps")
        if self.shared > limit:
            raise Refusal("shared", f"{self.shared} bytes of {limit}")


def make_mma_plan(
    program: Program, roles: Roles, values: Mapping[str, Value], mark: str
) -> MmaPlan:
    """The plan of a schedule."""

    def value(name: str) -> Value:
        return values[f"{name}{mark}"]

    tiles = dict.fromkeys(roles.batch, 1)
    for axis in (*roles.rows, *roles.columns):
        tiles[axis] = int(value(f"tile.{axis}"))
    tiles |= depth_tiles(program.axes, roles.walked, int(value("depth")))
    warps = tuple(int(value(f"warps.{along}")) for along in ("rows", "columns", "depth"))
    return MmaPlan(
        program, roles, tiles, (warps[0], warps[1], warps[2]), int(value("stages")),
        int(value("fragments")), int(value("resident")), str(value("raster")),
        str(value("epilogue")), str(values.get(f"loads{mark}", "direct")),
        starts_early(values), int(values.get(f"{late.NAME}{mark}", 0)),
    )  # fmt: skip


def depth_domain(dtype: str) -> tuple[int, ...]:
    """Points of the sum in a block: lines of 32 to 512 bytes."""
    return tuple(STEP * lines // dtype_of(dtype).bytes for lines in (1, 2, 4, 8, 16))
