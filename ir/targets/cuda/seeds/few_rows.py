"""Schedules to start from where one operand is read once and the other has few points: products
with few rows, whose time is that of reading the weights.

Tiles have all of the few points. As many blocks as there are processors each read a part of the
weights, in one main loop: narrow tiles and the whole sum, or wider tiles and a part of it, which
meets in a cluster; or the blocks of a cluster have 64 rows each, and share the weights. L2 fetches
lines, not pairs of them, and is asked for the first blocks early.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ir.schedule import Value
from ir.targets.cuda.grid.overlap import PREFETCH
from ir.targets.cuda.layouts.operands import LINE
from ir.targets.cuda.plans.tensor_plan import ROWS
from ir.targets.cuda.seeds.tensor_seeds import RESERVED, Seeds
from ir.targets.cuda.space.splits import CLUSTER, MERGE
from ir.targets.cuda.space.tensor import TensorKernel

FEW = 128  # points
LEAST, DEEPEST = 3, 12  # slots of a ring


@dataclass(frozen=True)
class Shape:
    """A tile of `wide` points of the weights, for one of `parts` of the sum.

    `lines` of 128 bytes of a row make a block; `prefetch` blocks are asked for early.
    """

    wide: int
    parts: int
    lines: int
    prefetch: int


SHAPES = (
    Shape(64, 1, 2, 8), Shape(128, 2, 2, 4), Shape(64, 1, 2, 4), Shape(64, 1, 1, 4),
    Shape(128, 2, 1, 4),
)  # fmt: skip


def few_rows_seeds(kernel: TensorKernel, choices: tuple[str, ...]) -> list[dict[str, Value]]:
    """The seeds of a kernel; `choices` are the ways in which its sum may be split."""
    roles = kernel.roles
    plain = not roles.inner and not roles.computed and len(roles.outer) == 1
    rows, columns = _points(kernel)
    if not plain or min(rows, columns) > FEW:
        return []
    splits = {int(choice.partition(":")[2]): choice for choice in choices[1:]}
    found = [_sharing(kernel)] if ROWS < rows <= columns else []
    for shape in SHAPES:
        seed = _seed(kernel, shape)
        if int(seed[kernel.name("stages")]) < LEAST:
            continue
        if shape.parts == 1:
            found.append(seed)
        elif shape.parts in splits:
            found.append({**seed, "split": splits[shape.parts], MERGE: CLUSTER})
    return found


def _points(kernel: TensorKernel) -> tuple[int, int]:
    """Points of the operands' own axes: rows, columns."""
    axes, roles = kernel.program.axes, kernel.roles
    return prod(axes[a] for a in roles.rows), prod(axes[a] for a in roles.columns)


def _sharing(kernel: TensorKernel) -> dict[str, Value]:
    """Two blocks with 64 rows each, which copy halves of the weights for both."""
    found = Seeds(kernel).plain(ROWS, 128, 1, DEEPEST, "2x1", "rows")
    found |= {kernel.name("stream"): "columns", kernel.name(PREFETCH): 8}
    return kernel.adapted(found)


def _seed(kernel: TensorKernel, shape: Shape) -> dict[str, Value]:
    """Weights lie along the instruction's rows, if operands may change their places."""
    name, (rows, columns) = kernel.name, _points(kernel)
    swapped = kernel.swapped if rows < columns else None
    beneath = rows < columns and swapped is None  # few points along the instruction's rows
    grain = ROWS if beneath else 8 * shape.parts
    points = -(-min(rows, columns) // grain) * grain
    tile = (points, shape.wide) if beneath else (shape.wide, points)
    consumers = min(2, tile[0] // ROWS)
    found = Seeds(kernel).plain(
        *tile,
        consumers,
        DEEPEST,
        "1x1",
        "rows",
        swapped is not None,
        lines=shape.lines,
        beyond=True,
    )
    padded = points
    if not beneath and (swapped or kernel.roles).contiguous_columns:
        padded = -(-points * kernel.size // LINE) * LINE // kernel.size
    buffers = consumers * max(ROWS, points // shape.parts) * LINE
    room = kernel.hardware["shared_bytes"] - RESERVED - buffers
    found |= {
        name("stages"): min(DEEPEST, room // ((padded + shape.wide) * LINE * shape.lines)),
        name("processors"): 0, name("promotion"): 128, name("epilogue_slots"): 1,
        name("stream"): "columns" if beneath else "rows", name(PREFETCH): shape.prefetch,
    }  # fmt: skip
    return kernel.adapted(found)
