"""How kernels on wgmma overlap with the next one: when it may start, and what it does first.

A kernel asks the L2 cache for its first blocks before the kernel before it has ended, so that they
come from memory while processors that are done would wait. All writes meet in L2: what the kernel
before still writes is seen by the copies that follow. Where two blocks fit a processor, the next
kernel's are there in time if it may start as soon as the last copies of this one are under way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ir.columns import Columns, Decision
from ir.targets.cuda.evaluate import Evaluator
from ir.targets.cuda.overlap import FOLLOW, LOADED, NAME, PREFETCH, START
from ir.targets.cuda.writer import Writer

if TYPE_CHECKING:
    from ir.targets.cuda.tensor_lower import TensorLowering

BLOCKS = (0, 1, 2, 4, 8)


def overlap_decisions(mark: str, owner: str) -> list[Decision]:
    """The decisions, of kernels whose operands are all streamed."""
    ask = "first blocks that are asked for while the kernel before still runs"
    follow = "when the next kernel may start: with this one, or behind its last copies"
    return [
        Decision(f"{PREFETCH}{mark}", BLOCKS, "pipeline", owner, ask, 0, unsaid=0),
        Decision(
            f"{FOLLOW}{mark}", (START, LOADED), "pipeline", owner, follow, START, unsaid=START
        ),
    ]


def overlap_fits(columns: Columns, mark: str) -> Any:
    """Whether kernels that start when those before them have ended make no such choice."""
    if f"{PREFETCH}{mark}" not in columns or NAME not in columns:
        return np.ones(columns.rows, dtype=bool)
    plain = (columns[f"{PREFETCH}{mark}"] == 0) & columns.is_(f"{FOLLOW}{mark}", START)
    return plain | (columns[NAME] > 0)


def ask_ahead(lowering: TensorLowering, w: Writer, evaluator: Evaluator) -> None:
    """Ask for this block's share of the first blocks of its first tile."""
    with lowering.first_tile(w, evaluator):
        head = f"block < min({lowering.plan.prefetch}, blocks)"
        with w.block(f"for (i32 block = 0; {head}; block++)"):
            origins = evaluator.origins | lowering.walk_origins(w, "block")
            for ring in lowering.plan.rings:
                for operand in ring.operands:
                    for name, where in lowering.boxes(operand, origins):
                        place = ", ".join([f"&{name}", *where])
                        w.line(f"tw_tma_prefetch_{len(where)}d({place});")
