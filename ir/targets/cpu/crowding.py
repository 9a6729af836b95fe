"""What the distance between a tensor's rows does to the caches that hold a part of it."""

from __future__ import annotations

from math import gcd

import numpy as np

from ir.program import Program
from ir.targets.cpu.operands import LINE, Operand
from ir.targets.cpu.regions import Array, Sizes

PAGE = 4096  # bytes


def pitch(program: Program, operand: Operand) -> int:
    """Bytes from one row of a tensor to the next; 0 for buffers and vectors."""
    if not operand.tensor or len(operand.dims) < 2:
        return 0
    return operand.element * int(program.scope.tensors[operand.tensor].shape[-1])


def crowding(program: Program, operand: Operand, sizes: Sizes) -> Array | float:
    """Sets of a cache over those in which the lines of a region in place may lie.

    Rows at a multiple of a large power of two begin in few sets, so a region takes more room than
    it has bytes. The sets of a first level span one page; of further levels a page tells the sets
    but for bits that are as good as random.
    """
    step = pitch(program, operand)
    near = gcd(step, PAGE)
    if not step or near <= LINE or operand.written:
        return 1.0
    length = 1.0 + sum(abs(c) * (sizes[axis] - 1.0) for axis, c in operand.dims[-1])
    used = np.ceil(length * operand.element / LINE) * LINE
    return np.asarray(near / np.clip(used, LINE, near))
