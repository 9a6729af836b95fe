"""What every row does, in numpy: the executable meaning that tests run.

Register files of matrix rows are arrays [thread, value] of values; copies move raw bytes of a
one-dimensional uint8 memory. Owns no table: everything follows from the rows and descriptors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.layout.errors import LayoutError
from ir.layout.instructions.descriptor import Descriptor
from ir.layout.instructions.rows import CopyRow, MatrixRow, Operand
from ir.layout.instructions.tma import TensorMap
from ir.layout.layout import Layout
from ir.layout.widths import bits
from tests.layout.descriptors import decode as decode_descriptor
from tests.layout.descriptors import operand_addresses
from tests.layout.patterns import carrier, decode, encode, is_integer
from tests.layout.tensors import box_bytes, check_map, shared_addresses

Memory = NDArray[np.uint8]
REDUCIBLE = ("f16", "bf16", "f32", "i32", "i64")  # by TMA (PTX ISA, cp.reduce.async.bulk)


@lru_cache(maxsize=256)
def table(layout: Layout) -> NDArray[np.int64]:
    """[thread, value] -> index, of a layout with those two modes. Read only."""
    threads, values = layout.mode(0).size, layout.mode(1).size
    indices = layout.offsets().reshape(values, threads).T
    indices.flags.writeable = False
    return indices


def to_tile(operand: Operand, fragment: NDArray[Any]) -> NDArray[Any]:
    """The operand's tile [axis 0, axis 1] from the register file [thread, value]."""
    indices = table(operand.layout)
    _expect_shape(fragment, indices.shape)
    tile = np.empty(prod(operand.extents), dtype=fragment.dtype)
    tile[indices] = fragment
    return tile.reshape(operand.extents[::-1]).T


def from_tile(operand: Operand, tile: NDArray[Any]) -> NDArray[Any]:
    """The register file [thread, value] that holds `tile` [axis 0, axis 1]."""
    _expect_shape(tile, operand.extents)
    return np.asarray(tile).T.reshape(-1)[table(operand.layout)]


def multiply(
    row: MatrixRow,
    a: NDArray[Any],
    b: NDArray[Any],
    c: NDArray[Any],
    accumulator: str | None = None,
) -> NDArray[Any]:
    """D as a register file, from register files A, B and C of values [thread, value].

    The sum is exact (float64 or int64) and rounded once to `accumulator`, by default the row's
    first. For operands in shared memory see `multiply_shared`.
    """
    for name, operand in (("A", row.a), ("B", row.b)):
        if operand.scope != "register":
            raise LayoutError(
                "illegal-scope", f"{row.name}: {name} is in {operand.scope} memory, not register"
            )
    return _accumulate(row, to_tile(row.a, a), to_tile(row.b, b), c, accumulator)


def multiply_shared(
    row: MatrixRow,
    memory: Memory,
    a: NDArray[Any] | int,
    b: NDArray[Any] | int,
    c: NDArray[Any],
    *,
    majors: tuple[str, str] = ("k", "k"),
    dtypes: tuple[str, str] | None = None,
    accumulator: str | None = None,
) -> NDArray[Any]:
    """D of a wgmma row: a shared operand is a 64-bit descriptor, a register operand an array.

    `majors` of A and B, as in the instruction's transpose immediates; `dtypes` of A and B, by
    default the row's own. The descriptor is decoded, its addresses swizzled, `memory` read.
    """
    own = (row.a.dtype, row.b.dtype)
    tiles = [
        to_tile(operand, source)
        if isinstance(source, np.ndarray)
        else read_operand(operand, memory, decode_descriptor(source), major, dtype)
        for operand, source, major, dtype in zip(
            (row.a, row.b), (a, b), majors, dtypes or own, strict=True
        )
    ]
    return _accumulate(row, tiles[0], tiles[1], c, accumulator)


def read_operand(
    operand: Operand, memory: Memory, descriptor: Descriptor, major: str, dtype: str
) -> NDArray[Any]:
    """Values [row, k] of a shared operand; LayoutError "illegal-major", "illegal-dtype"."""
    if operand.scope != "shared":
        raise LayoutError("illegal-scope", f"a descriptor for a {operand.scope} operand")
    if dtype not in operand.dtypes:
        raise LayoutError("illegal-dtype", f"{dtype}: legal are {', '.join(operand.dtypes)}")
    rows, k = operand.extents
    return read(memory, operand_addresses(descriptor, major, rows, k, dtype), dtype)


def read(memory: Memory, addresses: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Values of `dtype` (8 bits or more) at byte `addresses`, in their shape."""
    return decode(_load(memory, addresses, bits(dtype) // 8).view(carrier(dtype))[..., 0], dtype)


def write(memory: Memory, addresses: NDArray[Any], values: NDArray[Any], dtype: str) -> None:
    """Round `values` to `dtype` and store them at byte `addresses` of the same shape."""
    patterns = np.ascontiguousarray(encode(values, dtype))
    _store(memory, addresses, patterns.view(np.uint8).reshape(*patterns.shape, -1))


def load(row: CopyRow, memory: Memory, addresses: NDArray[Any]) -> Memory:
    """Bytes [thread, bits / 8] of a vector load from `addresses` [thread]."""
    _aligned(row, addresses)
    return _load(memory, addresses, row.bits // 8)


def store(row: CopyRow, memory: Memory, addresses: NDArray[Any], data: Memory) -> None:
    """Write `data` [thread, bits / 8] at `addresses` [thread]; the last thread wins a race."""
    _aligned(row, addresses)
    _expect_shape(data, (len(addresses), row.bits // 8))
    _store(memory, addresses, data)


def cp_async(
    row: CopyRow,
    shared: Memory,
    shared_at: NDArray[Any],
    global_memory: Memory,
    global_at: NDArray[Any],
    valid: NDArray[Any] | None = None,
) -> None:
    """Copy global to shared for every thread; a thread's bytes from `valid` on become 0."""
    _aligned(row, shared_at)
    _aligned(row, global_at)
    size = row.bits // 8
    wanted = np.full(len(global_at), size) if valid is None else valid
    if np.any((wanted < 0) | (wanted > size)):
        raise LayoutError("illegal-size", f"{row.name}: {wanted.max()} bytes of {size}")
    inside = np.arange(size) < wanted[:, None]
    at = np.where(inside, global_at[:, None] + np.arange(size), 0)
    _store(shared, shared_at, np.where(inside, global_memory[at], 0).astype(np.uint8))


def ldmatrix(row: CopyRow, memory: Memory, addresses: NDArray[Any]) -> NDArray[np.uint32]:
    """Registers [lane, matrix] from row addresses [lane]; lanes past the last row are ignored."""
    rows = row.extents[1]
    _aligned(row, addresses[:rows])
    octets = _load(memory, addresses[:rows], row.extents[0] // 8).reshape(-1)
    return _bits_to_registers(octets, table(row.destination))


def stmatrix(
    row: CopyRow, memory: Memory, addresses: NDArray[Any], registers: NDArray[np.uint32]
) -> None:
    """Write registers [lane, matrix] to the row addresses [lane]."""
    rows = row.extents[1]
    _aligned(row, addresses[:rows])
    _expect_shape(registers, (row.threads, row.matrices))
    octets = _registers_to_bits(registers, table(row.source), prod(row.extents))
    _store(memory, addresses[:rows], octets.reshape(rows, -1))


def tma_load(
    tensor: TensorMap,
    global_memory: Memory,
    base: int,
    shared: Memory,
    at: int,
    coordinates: Sequence[int],
) -> int:
    """Copy the box at `coordinates` (innermost first, may be negative) to shared byte `at`.

    What lies outside the tensor becomes zero. Returns the bytes that the barrier counts.
    """
    check_map(tensor, base)
    sources, inside = _box_addresses(tensor, base, coordinates)
    octets = _load(global_memory, np.where(inside, sources, base), bits(tensor.dtype) // 8)
    octets[~inside] = 0
    _store(shared, shared_addresses(tensor, at), octets)
    return box_bytes(tensor)


def tma_store(
    tensor: TensorMap,
    global_memory: Memory,
    base: int,
    shared: Memory,
    at: int,
    coordinates: Sequence[int],
    *,
    add: bool = False,
) -> None:
    """Copy (or add) the box at shared byte `at` to `coordinates`; what lies outside is dropped."""
    check_map(tensor, base)
    if add and tensor.dtype not in REDUCIBLE:
        raise LayoutError(
            "illegal-dtype", f"adding {tensor.dtype}: legal are {', '.join(REDUCIBLE)}"
        )
    targets, inside = _box_addresses(tensor, base, coordinates)
    sources = shared_addresses(tensor, at)
    if add:
        total = read(global_memory, targets[inside], tensor.dtype)
        total = total + read(shared, sources[inside], tensor.dtype)
        write(global_memory, targets[inside], total, tensor.dtype)
        return
    _store(global_memory, targets[inside], _load(shared, sources[inside], bits(tensor.dtype) // 8))


def _accumulate(
    row: MatrixRow, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], accumulator: str | None
) -> NDArray[Any]:
    kind = accumulator or row.c.dtype
    if kind not in row.c.dtypes:
        raise LayoutError(
            "illegal-dtype", f"{row.name} into {kind}: legal are {', '.join(row.c.dtypes)}"
        )
    wide = np.int64 if is_integer(kind) else np.float64
    total = a.astype(wide) @ b.astype(wide).T + to_tile(row.c, c).astype(wide)
    return from_tile(row.c, decode(encode(total, kind), kind))


def _box_addresses(
    tensor: TensorMap, base: int, coordinates: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Global byte address and validity of every element of a box, colexicographic."""
    if len(coordinates) != len(tensor.extents):
        raise LayoutError(
            "tma-rank", f"{len(coordinates)} coordinates for rank {len(tensor.extents)}"
        )
    address = np.full((), base, dtype=np.int64)
    inside = np.ones((), dtype=np.bool_)
    strides = (bits(tensor.dtype) // 8, *tensor.strides)
    axes = zip(coordinates, tensor.box, tensor.extents, strides, strict=True)
    for first, count, extent, stride in axes:
        position = first + np.arange(count, dtype=np.int64)
        address = address[..., None] + position * stride
        inside = inside[..., None] & (position >= 0) & (position < extent)
    return address.T.reshape(-1), inside.T.reshape(-1)


def _bits_to_registers(octets: Memory, indices: NDArray[np.int64]) -> NDArray[np.uint32]:
    spread = np.unpackbits(octets, bitorder="little")[indices]
    packed = np.packbits(spread, axis=1, bitorder="little")
    return np.ascontiguousarray(packed).view(np.uint32)


def _registers_to_bits(
    registers: NDArray[np.uint32], indices: NDArray[np.int64], size: int
) -> Memory:
    octets = np.ascontiguousarray(registers, dtype=np.uint32).view(np.uint8)
    spread = np.empty(size, dtype=np.uint8)
    spread[indices] = np.unpackbits(octets, axis=1, bitorder="little")
    return np.packbits(spread, bitorder="little")


def _load(memory: Memory, addresses: NDArray[Any], size: int) -> Memory:
    at = np.asarray(addresses)[..., None] + np.arange(size)
    _in_bounds(memory, at)
    return memory[at]


def _store(memory: Memory, addresses: NDArray[Any], data: Memory) -> None:
    at = np.asarray(addresses)[..., None] + np.arange(data.shape[-1])
    _in_bounds(memory, at)
    memory[at] = data


def _in_bounds(memory: Memory, at: NDArray[Any]) -> None:
    if at.size and (at.min() < 0 or at.max() >= memory.size):
        raise LayoutError(
            "out-of-bounds", f"bytes {at.min()} to {at.max()} of a memory of {memory.size}"
        )


def _aligned(row: CopyRow, addresses: NDArray[Any]) -> None:
    for address in addresses:
        if address % row.alignment:
            raise LayoutError(
                "misaligned", f"{row.name}: address {address}, no multiple of {row.alignment}"
            )


def _expect_shape(array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if tuple(array.shape) != tuple(shape):
        raise LayoutError("row-extents", f"array of shape {array.shape} where {shape} is due")
