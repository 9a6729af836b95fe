"""Cycles of one block on one multiprocessor: throughputs of issue, shared memory, sectors and
units.

It ranks solutions of one problem; it does not rank tile sizes. Owns the constants and their sums.
"""

from __future__ import annotations

from ir.layout.instructions import SHUFFLE, MatrixRow
from ir.layout.synthesis.digits import Space
from ir.layout.synthesis.problem import Tile, TileOp, TileProgram

SCHEDULERS = 4
ISSUE = 2.0
HIDDEN = 0.25
"""Share of the shorter of two overlapping times that still shows."""
GLOBAL_BYTES = 64.0  # per cycle and multiprocessor, from L2
LATENCY = {"global": 280.0, "shared": 30.0, "barrier": 20.0, "shuffle": SHUFFLE.latency}
BULK_ISSUE = 4.0
FUNCTIONS = {"exp": 8.0, "exp2": 4.0, "log": 8.0, "log2": 4.0, "sqrt": 8.0, "rsqrt": 4.0}
FUNCTIONS |= {"tanh": 8.0, "erf": 24.0, "sigmoid": 12.0}


def warps(space: Space) -> int:
    stride, radix = space.threads[-1]
    return stride * radix // 32


def per_scheduler(space: Space) -> float:
    """Warps that share one scheduler."""
    return max(1.0, warps(space) / SCHEDULERS)


def shared_access(space: Space, issues: int, waves: int, rounds: float) -> float:
    """All warps of the block make `issues` accesses of `waves` wavefronts, times the conflicts."""
    busy, issuing = warps(space) * issues * waves * rounds, per_scheduler(space) * issues * ISSUE
    return max(busy, issuing) + HIDDEN * min(busy, issuing)


def global_access(space: Space, issues: int, sectors: int, instructions: int = 1) -> float:
    moved = warps(space) * issues * sectors * 32 / GLOBAL_BYTES
    issuing = per_scheduler(space) * issues * ISSUE * instructions
    return max(moved, issuing) + HIDDEN * min(moved, issuing)


def global_floor(tile: Tile) -> float:
    """Cycles that moving a tile from or to global memory takes at least; nothing for one that may
    repeat its elements."""
    if 0 in tile.strides:
        return 0.0
    return tile.size * tile.bits / 8 / GLOBAL_BYTES


def floor(space: Space, program: TileProgram, op: TileOp) -> float:
    """Cycles below which no plan of this op goes, for those that gemms and shared tiles do not
    count: each element is touched once by one thread, each byte moves once."""
    tiles = [program.tile(name) for name in (*op.outputs, *op.inputs)]
    each = tiles[0].size / (32 * warps(space))
    if op.kind == "copy":
        scopes = {tile.scope for tile in tiles}
        memory = next((tile for tile in tiles if tile.scope == "global"), None)
        return global_floor(memory) if memory and scopes == {"register", "global"} else 0.0
    if op.kind in ("gemm", "reduce"):
        return 0.0
    return elementwise(space, 1, each * expression(str(op.attribute("expression", "x"))))


def bulk(size: int, boxes: int, inner: int) -> float:
    """TMA: the bytes, one thread that issues the boxes, and rows shorter than a line of 128 bytes
    (`inner` bytes), of which the unit does no more a second than of whole ones."""
    return float(size / GLOBAL_BYTES * max(1.0, 128 / inner) ** 0.5 + BULK_ISSUE * boxes)


def matrix(space: Space, row: MatrixRow, issues: int) -> float:
    """`issues` of one warp (mma, whose four units work beside each other) or of one warp group
    (wgmma, whose groups take turns)."""
    busy = float(issues * row.cost.issue)
    if row.kind == "wgmma":
        return busy * warps(space) / SCHEDULERS
    return busy * per_scheduler(space)


def elementwise(space: Space, values: int, cycles: float) -> float:
    return per_scheduler(space) * values * cycles


def expression(text: str) -> float:
    """Issue cycles for one element: its operators and functions."""
    found = sum(cycles * text.count(name + "(") for name, cycles in FUNCTIONS.items())
    operators = sum(text.count(symbol) for symbol in "+-*/,<>")
    return float(max(1.0, found + operators))


def moves(space: Space, exchanged: float, permuted: float) -> float:
    """A conversion within warps, of so many bits of a thread: an exchange shuffles half of its
    registers between two selects, a permutation of lanes shuffles all."""
    shuffled = max(1.0, exchanged / 64 + permuted / 32)
    return per_scheduler(space) * (shuffled * SHUFFLE.issue + 2 * exchanged / 32)
