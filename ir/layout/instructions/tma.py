"""Bulk tensor copies: the rows, the tensor map and its limits, where a box lies in shared memory.

Source: CUDA driver API, cuTensorMapEncodeTiled; PTX ISA, "Tensor". Axis 0 is the innermost.
Executes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ir.layout.errors import LayoutError
from ir.layout.instructions.descriptor import SPAN, check_mode
from ir.layout.instructions.rows import Cost, TmaRow
from ir.layout.widths import bits

MAX_RANK = 5
MAX_BOX = 256
MAX_EXTENT = 1 << 32
MAX_STRIDE = 1 << 40
GRANULE = 16
DTYPES = ("u8", "i8", "e4m3", "e5m2", "i32", "i64", "f16", "bf16", "f32", "tf32", "f64")

ROWS: tuple[TmaRow, ...] = (
    TmaRow("tma.load", "tma", "global", "shared", 1, "sm_90", Cost(2, 280), dtypes=DTYPES),
    TmaRow("tma.store", "tma", "shared", "global", 1, "sm_90", Cost(2, 0), dtypes=DTYPES),
)


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tiled tensor map. `strides`: bytes between neighbours along axes 1, 2, ...; the innermost
    axis is contiguous. `box`: extents in elements, every one of which is copied. Nothing is checked
    before `refusals` are asked for.
    """

    dtype: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    mode: str = "none"


def refusals(tensor: TensorMap, base: int = 0) -> tuple[LayoutError, ...]:
    """Everything that forbids this map at global byte `base`."""
    return tuple(_structure(tensor)) or tuple(_limits(tensor, base))


def _structure(tensor: TensorMap) -> Iterator[LayoutError]:
    rank = len(tensor.extents)
    check_mode(tensor.mode)
    if tensor.dtype not in DTYPES:
        yield LayoutError(
            "tma-dtype", f"{tensor.dtype} of {bits(tensor.dtype)} bits: known are {DTYPES}"
        )
    if not 1 <= rank <= MAX_RANK:
        yield LayoutError("tma-rank", f"rank {rank}: 1 to {MAX_RANK} are legal")
    for name, axes, due in (
        ("strides", len(tensor.strides), rank - 1),
        ("box", len(tensor.box), rank),
    ):
        if axes != due:
            yield LayoutError("tma-rank", f"{name} has {axes} entries, rank {rank} needs {due}")


def _limits(tensor: TensorMap, base: int) -> Iterator[LayoutError]:
    yield from _ranges("tma-extent", "extent", tensor.extents, 1, MAX_EXTENT)
    yield from _ranges("tma-box", "box extent", tensor.box, 1, MAX_BOX)
    yield from _ranges("tma-stride", "stride in bytes", tensor.strides, 0, MAX_STRIDE - 1)
    for axis, stride in enumerate(tensor.strides, start=1):
        if stride % GRANULE:
            yield LayoutError(
                "tma-stride", f"axis {axis}: stride of {stride} bytes, no multiple of {GRANULE}"
            )
    yield from _inner(tensor)
    if base % GRANULE:
        yield LayoutError("tma-alignment", f"global address {base}, no multiple of {GRANULE}")


def _ranges(
    code: str, what: str, values: tuple[int, ...], least: int, most: int
) -> Iterator[LayoutError]:
    for axis, value in enumerate(values):
        if not least <= value <= most:
            yield LayoutError(code, f"axis {axis}: {what} {value}, legal are {least} to {most}")


def _inner(tensor: TensorMap) -> Iterator[LayoutError]:
    inner = tensor.box[0] * bits(tensor.dtype) // 8
    span = SPAN[tensor.mode]
    if inner % GRANULE:
        yield LayoutError("tma-box", f"inner box extent of {inner} bytes, no multiple of {GRANULE}")
    if tensor.mode != "none" and inner > span:
        yield LayoutError(
            "tma-box", f"inner box extent of {inner} bytes, swizzle {tensor.mode} spans {span}"
        )
