"""Shared-memory matrix copies and wgmma operands at byte addresses, by the PTX ISA's text.

Addresses are bytes in the block's shared window. Swizzles XOR address bits 7.. into bits 4.. ; the
descriptor of wgmma is decoded here, field by field, and expanded to the address of every element.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.layout.checker.tables import Table, swizzled

REPEAT = {0: 16, 1: 256, 2: 512, 3: 1024}
_BITS_OF_TYPE = {0: 0, 1: 3, 2: 2, 3: 1}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The fields of one wgmma matrix descriptor, in bytes; `bits` is the swizzle's width (0..3)."""

    start: int
    leading: int
    stride: int
    base_offset: int
    bits: int


def decode(word: int) -> Descriptor:
    """Split the 64-bit matrix descriptor: fields hold addresses without their low 4 bits."""
    return Descriptor(
        start=(word & 0x3FFF) << 4,
        leading=((word >> 16) & 0x3FFF) << 4,
        stride=((word >> 32) & 0x3FFF) << 4,
        base_offset=(word >> 49) & 7,
        bits=_BITS_OF_TYPE[(word >> 62) & 3],
    )


def operand_addresses(
    descriptor: Descriptor, extent: int, depth: int, bits: int, mn_major: bool
) -> Table:
    """Byte address [mn, k] of an operand of `extent` x `depth` elements of `bits` bits."""
    unit = 128 // bits
    mn = np.arange(extent, dtype=np.int64)[:, None]
    k = np.arange(depth, dtype=np.int64)[None, :]
    offset = (_mn_major if mn_major else _k_major)(descriptor, mn, k, unit)
    linear = descriptor.start + offset[0] + offset[1] * bits // 8
    pattern = descriptor.base_offset << 7
    return swizzled(linear - pattern, descriptor.bits, 4, 3) + pattern


def _k_major(d: Descriptor, mn: Table, k: Table, unit: int) -> tuple[Table, Table]:
    """(bytes, elements): rows of 16 << bits bytes by eight; chunks of 16 bytes along K."""
    row = 16 << d.bits
    chunk = d.leading if d.bits == 0 else 16
    return (mn % 8) * row + (mn // 8) * d.stride + (k // unit) * chunk, k % unit + 0 * mn


def _mn_major(d: Descriptor, mn: Table, k: Table, unit: int) -> tuple[Table, Table]:
    """(bytes, elements): without swizzle, the strides of the two outer steps change places."""
    line = unit << d.bits
    chunk = (mn % line) // unit
    outer, deep = (d.stride, d.leading) if d.bits == 0 else (d.leading, d.stride)
    row = 16 << d.bits
    step = chunk * 16 + (mn // line) * outer + (k % 8) * row + (k // 8) * deep
    return step, mn % unit + 0 * k


def matrix_lanes(count: int, transposed: bool, bits: int) -> tuple[Table, Table]:
    """ldmatrix and stmatrix of `count` 8x8 b16 matrices: who holds what.

    Returns (row, element) tables [lane, value]: the number of the row address (matrix * 8 + row)
    and the element of `bits` bits within that 16-byte row. ValueError where .trans tears elements.
    """
    pack = max(1, 32 // bits)
    lane = np.arange(32, dtype=np.int64)[:, None]
    value = np.arange(count * pack, dtype=np.int64)[None, :]
    matrix, within = value // pack, value % pack
    if not transposed:
        return matrix * 8 + lane // 4, (lane % 4) * pack + within + 0 * matrix
    if bits > 16:
        raise ValueError(f".trans moves 16-bit units and tears elements of {bits} bits")
    half, inside = within // (16 // bits), within % (16 // bits)
    return matrix * 8 + (lane % 4) * 2 + half, (lane // 4) * (16 // bits) + inside
