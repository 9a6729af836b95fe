"""How threads share the points of an operand that they compute, and what of it they keep."""

from __future__ import annotations

from ir.targets.cuda.build.products import largest_load, loads_of
from ir.targets.cuda.layouts.frame import Digit, Frame
from ir.targets.cuda.layouts.mma_operands import StageTile
from ir.targets.cuda.plans.mma_plan import MmaPlan

RUN = 32  # most neighbouring points of an operand that one thread computes
KEPT = 16  # most registers of a load that is kept over the walk


def kept_loads(plan: MmaPlan, tile: StageTile) -> tuple[int, ...]:
    """Loads of a computed tile that no block changes and that registers can hold."""
    frame, _ = fill_frame(plan, tile)
    nodes, walked = plan.program.nodes, set(plan.roles.walked)
    return tuple(
        leaf for leaf in loads_of(plan.program, tile.position)
        if not walked & set(nodes[leaf].axes) and frame.count(nodes[leaf].axes) <= KEPT
    )  # fmt: skip


def fill_frame(plan: MmaPlan, tile: StageTile) -> tuple[Frame, list[Digit]]:
    """How threads share the points of a computed tile, and a thread's neighbours in a line.

    Neighbouring threads lie where the largest load of the operand is contiguous.
    """
    inner, outer = tile.inner, tile.outer
    share = max(1, inner.size * outer.size // plan.threads)
    op = largest_load(plan.program, tile.position)
    last = {axis for axis, c in op.index[-1].terms if c == 1} if op and op.index else set()
    if last & set(outer.tiled) and not last & set(inner.tiled):
        run = min(share, inner.size, max(1, 4 // tile.size))
        across = min(share // run, outer.size, 4)
        first, second = outer, inner
        sizes = (across, run)
    else:
        run = min(share, inner.size, RUN)
        first, second = inner, outer
        sizes = (run, 1)
    registers = [*first.digits(sizes[0], 1), *second.digits(sizes[1], 1)]
    left = plan.threads
    lanes = min(left, first.size // sizes[0])
    lines = min(left // lanes, second.size // sizes[1])
    threads = [*first.threads(lanes, sizes[0]), *second.threads(lines, sizes[1])]
    registers += first.digits(first.size // sizes[0] // lanes, sizes[0] * lanes)
    registers += second.digits(second.size // sizes[1] // lines, sizes[1] * lines)
    return Frame(tuple(registers), tuple(threads)), inner.digits(run, 1)
