"""How much of an operand lies side by side in memory, within a block's tile of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from ir.dtypes import dtype_of
from ir.ops.load import Load
from ir.program import Program

LINE = 128.0  # bytes that a warp is given at a time
_WORDS = 32.0  # bytes of the memory's words, below which more is moved than is asked for

Array = NDArray[np.float64]


def scattered(program: Program, operands: Iterable[int], tile: Callable[[str], Array]) -> Array:
    """How many times as long loads take as if all lay side by side, of the operands where that is
    worst; `tile` is how many points of an axis a block has."""
    worst = np.ones(1)
    for position in operands:
        node = program.nodes[position]
        if isinstance(node.op, Load):
            run = _run_bytes(program, node.op, tile)
            worst = np.maximum(worst, _WORDS / np.minimum(run, _WORDS))
    return np.asarray(worst, dtype=np.float64)


def _run_bytes(program: Program, load: Load, tile: Callable[[str], Array]) -> Array:
    """From the fastest dimension on, as long as a tile has all of it."""
    spec = next(spec for spec in program.tensors if spec.name == load.tensor)
    run = np.full(1, float(dtype_of(spec.dtype).bytes))
    whole = np.ones(1, dtype=np.bool_)
    for index, extent in reversed(tuple(zip(load.index, spec.shape, strict=True))):
        beside = [axis for axis, step in index.terms if step == 1]
        own = tile(beside[0]) if len(index.terms) == len(beside) == 1 else np.ones(1)
        run = np.where(whole, run * np.minimum(own, extent), run)
        whole = whole & (own >= extent)
        if not whole.any():
            break
    return np.asarray(run, dtype=np.float64)
