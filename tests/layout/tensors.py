"""Where the boxes of a tensor map lie in shared memory; the first refusal of a map, raised."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from ir.layout.instructions.descriptor import SPAN
from ir.layout.instructions.tma import TensorMap, refusals
from ir.layout.layout import Layout
from ir.layout.widths import bits
from tests.layout.descriptors import swizzle_addresses


def check_map(tensor: TensorMap, base: int = 0) -> None:
    """Raise the first of `refusals`, if any; its message has the value and the limit."""
    for error in refusals(tensor, base):
        raise error


def box_bytes(tensor: TensorMap) -> int:
    """Bytes of a whole box, those out of bounds included: what the barrier must expect."""
    return prod(tensor.box) * bits(tensor.dtype) // 8


def pitch(tensor: TensorMap) -> int:
    """Elements from one line of the box to the next in shared memory.

    A swizzled line takes its whole span, also where the box is narrower (seen on an H200).
    """
    if tensor.mode == "none":
        return tensor.box[0]
    return max(tensor.box[0], SPAN[tensor.mode] * 8 // bits(tensor.dtype))


def footprint(tensor: TensorMap) -> int:
    """Bytes of shared memory from the first to the last line, lines of whole pitch."""
    return pitch(tensor) * prod(tensor.box[1:]) * bits(tensor.dtype) // 8


def shared_addresses(tensor: TensorMap, shared: int) -> NDArray[np.int64]:
    """Byte address of each element of a box (colexicographic), swizzle applied."""
    lines = Layout((1, *tensor.box[1:])).flat()[1:]
    layout = Layout(tensor.box, (1, *(pitch(tensor) * line for _, line in lines)))
    width = bits(tensor.dtype) // 8
    return swizzle_addresses(shared + layout.offsets() * width, tensor.mode)
