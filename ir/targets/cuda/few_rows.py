"""Schedules to start from where one operand is read once and the other has few points: products
with few rows, whose time is that of reading the weights.

Tiles have all of the few points. As many blocks as there are processors each read a part of the
weights, in one walk: narrow tiles and the whole sum, or wider tiles and a part of it, which meets
in a cluster. L2 fetches lines, not pairs of them: neighbours would be fetched twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ir.schedule import Value
from ir.targets.cuda.overlap import FOLLOW, LOADED, PREFETCH, START
from ir.targets.cuda.splits import CLUSTER, MERGE
from ir.targets.cuda.tensor import TensorKernel
from ir.targets.cuda.tensor_plan import LINE, ROWS
from ir.targets.cuda.tensor_seeds import RESERVED, Seeds

FEW = 128  # points
LEAST, DEEPEST = 3, 12  # slots of a ring


@dataclass(frozen=True)
class Shape:
    """A tile of `wide` points of the weights, for one of `parts` of the sum; lines of a block.

    With `half`, two blocks fit a processor: this kernel's, and the next one's.
    """

    wide: int
    parts: int
    lines: int
    half: bool = False
    prefetch: int = 2


SHAPES = (
    Shape(64, 1, 2), Shape(64, 1, 2, half=True, prefetch=4), Shape(64, 1, 1), Shape(128, 2, 1),
    Shape(128, 2, 1, half=True, prefetch=4), Shape(256, 4, 1),
)  # fmt: skip


def few_rows_seeds(kernel: TensorKernel, choices: tuple[str, ...]) -> list[dict[str, Value]]:
    """The seeds of a kernel; `choices` are the ways in which its sum may be split."""
    roles = kernel.roles
    plain = not roles.inner and not roles.computed and len(roles.outer) == 1
    if not plain or min(_points(kernel)) > FEW:
        return []
    splits = {int(choice.partition(":")[2]): choice for choice in choices[1:]}
    found = []
    for shape in SHAPES:
        seed = _seed(kernel, shape)
        if shape.parts == 1:
            found.append(seed)
        elif shape.parts in splits:
            found.append({**seed, "split": splits[shape.parts], MERGE: CLUSTER})
    return [seed for seed in found if int(seed[kernel.name("stages")]) >= LEAST]


def _points(kernel: TensorKernel) -> tuple[int, int]:
    """Points of the operands' own axes: rows, columns."""
    axes, roles = kernel.program.axes, kernel.roles
    return prod(axes[a] for a in roles.rows), prod(axes[a] for a in roles.columns)


def _seed(kernel: TensorKernel, shape: Shape) -> dict[str, Value]:
    """Weights lie along the instruction's rows, if operands may change their places."""
    name, (rows, columns) = kernel.name, _points(kernel)
    swap = rows < columns and kernel.turned is not None
    beneath = rows < columns and not swap  # few points along the instruction's rows
    grain = ROWS if beneath else 8 * shape.parts
    points = -(-min(rows, columns) // grain) * grain
    tile = (points, shape.wide) if beneath else (shape.wide, points)
    consumers = min(2, tile[0] // ROWS)
    found = Seeds(kernel).plain(*tile, consumers, DEEPEST, "1x1", "rows", swap, lines=shape.lines)
    line = LINE // kernel.size
    along = not beneath and kernel.contiguous_columns(kernel.turned if swap else kernel.roles)
    few = -(-points // line) * line if along else points
    buffers = consumers * max(ROWS, points // shape.parts) * LINE
    room = kernel.hardware["shared_bytes"] // (2 if shape.half else 1) - RESERVED - buffers
    found |= {
        name("stages"): min(DEEPEST, room // ((few + shape.wide) * LINE * shape.lines)),
        name("processors"): 0, name("promotion"): 128, name("epilogue_slots"): 1,
        name("stream"): "columns" if beneath else "rows", name(PREFETCH): shape.prefetch,
        name(FOLLOW): LOADED if shape.half else START,
    }  # fmt: skip
    return kernel.adapted(found)
