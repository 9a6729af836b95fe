"""What a kernel on wgmma asks the L2 cache for before the kernel before it has ended.

Its first blocks come from memory while processors that are done already would wait. All writes
meet in L2: what the kernel before still writes is seen by the copies that follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ir.columns import Columns, Decision
from ir.targets.cuda.grid import stream_k
from ir.targets.cuda.grid.overlap import NAME, PREFETCH
from ir.targets.cuda.text.evaluate import Evaluator
from ir.targets.cuda.text.writer import Writer

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_lower import TensorLowering

BLOCKS = (0, 1, 2, 4, 8)


def prefetch_decision(mark: str, owner: str) -> Decision:
    """The decision, of kernels whose operands are all streamed."""
    why = "first blocks that are asked for while the kernel before still runs"
    return Decision(f"{PREFETCH}{mark}", BLOCKS, "pipeline", owner, why, 0, unsaid=0)


def prefetch_fits(columns: Columns, mark: str) -> Any:
    """Whether kernels that ask start early, with a tile that begins at its first block."""
    name, shares = f"{PREFETCH}{mark}", f"{stream_k.NAME}{mark}"
    if name not in columns or NAME not in columns:
        return np.ones(columns.rows, dtype=bool)
    whole = columns.is_(shares, stream_k.NONE) if shares in columns else True
    return (columns[name] == 0) | ((columns[NAME] > 0) & whole)


def ask_ahead(lowering: TensorLowering, w: Writer, evaluator: Evaluator) -> None:
    """Ask for this block's share of the first blocks of its first tile."""
    with w.block(""):
        tile = w.name("tile")
        w.line(f"const i32 {tile} = {lowering.first_and_step()[0]};")
        lowering.enter(w, evaluator, tile)
        head = f"block < min({lowering.plan.prefetch}, blocks)"
        with w.block(f"for (i32 block = 0; {head}; block++)"):
            origins = evaluator.origins | lowering.walk_origins(w, "block")
            for ring in lowering.plan.rings:
                for operand in ring.operands:
                    if operand.gathers:  # whose indices the kernel before may still write
                        continue
                    former = lowering.plan.former_of(operand)
                    read = lowering.plan.source_of(operand, former) if former else operand
                    for name, _, where in lowering.boxes(read, origins, former is not None):
                        place = ", ".join([f"&{name}", *where])
                        w.line(f"tw_tma_prefetch_{len(where)}d({place});")
