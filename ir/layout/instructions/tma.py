"""Bulk tensor copies: the rows, the tensor map and its limits, where a box lies in shared memory.

Source: CUDA driver API, cuTensorMapEncodeTiled; PTX ISA, "Tensor". Axis 0 is the innermost.
Executes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ir.layout.errors import LayoutError
from ir.layout.instructions.descriptor import (
    SPAN,
    check_mode,
    pattern_bytes,
)
from ir.layout.instructions.rows import Cost, TmaRow
from ir.layout.widths import bits

MAX_RANK = 5
MAX_BOX = 256
MAX_EXTENT = 1 << 32
MAX_STRIDE = 1 << 40
MAX_ELEMENT_STRIDE = 8
GRANULE = 16
SHARED_ALIGNMENT = 128
DTYPES = ("u8", "i8", "e4m3", "e5m2", "i32", "i64", "f16", "bf16", "f32", "tf32", "f64")

ROWS: tuple[TmaRow, ...] = (
    TmaRow("tma.load", "tma", "global", "shared", 1, "sm_90", Cost(2, 280), dtypes=DTYPES),
    TmaRow("tma.store", "tma", "shared", "global", 1, "sm_90", Cost(2, 0), dtypes=DTYPES),
)


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tiled tensor map. `strides`: bytes between neighbours along axes 1, 2, ...; the innermost
    axis is contiguous. `box`: extents in the tensor's elements; `element_strides`: step of each
    axis, every one if empty (1 on the innermost, where the hardware knows no other). Nothing is
    checked before `refusals` are asked for.
    """

    dtype: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    mode: str = "none"
    element_strides: tuple[int, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        return self.element_strides or (1,) * len(self.extents)

    @property
    def copied(self) -> tuple[int, ...]:
        """Elements that land in shared memory along each axis."""
        return tuple(-(-box // step) for box, step in zip(self.box, self.steps, strict=True))


def refusals(tensor: TensorMap, base: int = 0, shared: int = 0) -> tuple[LayoutError, ...]:
    """Everything that forbids this map at global byte `base` with boxes at shared byte `shared`."""
    return tuple(_structure(tensor)) or tuple(_limits(tensor, base, shared))


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
        ("element strides", len(tensor.steps), rank),
    ):
        if axes != due:
            yield LayoutError("tma-rank", f"{name} has {axes} entries, rank {rank} needs {due}")


def _limits(tensor: TensorMap, base: int, shared: int) -> Iterator[LayoutError]:
    yield from _ranges("tma-extent", "extent", tensor.extents, 1, MAX_EXTENT)
    yield from _ranges("tma-box", "box extent", tensor.box, 1, MAX_BOX)
    yield from _ranges("tma-element-stride", "element stride", tensor.steps, 1, MAX_ELEMENT_STRIDE)
    if tensor.steps[0] != 1:
        yield LayoutError(
            "tma-element-stride",
            f"axis 0: element stride {tensor.steps[0]}, legal is 1: the innermost axis is whole",
        )
    yield from _ranges("tma-stride", "stride in bytes", tensor.strides, 0, MAX_STRIDE - 1)
    for axis, stride in enumerate(tensor.strides, start=1):
        if stride % GRANULE:
            yield LayoutError(
                "tma-stride", f"axis {axis}: stride of {stride} bytes, no multiple of {GRANULE}"
            )
    yield from _inner(tensor)
    if base % GRANULE:
        yield LayoutError("tma-alignment", f"global address {base}, no multiple of {GRANULE}")
    due = max(SHARED_ALIGNMENT, pattern_bytes(tensor.mode) if tensor.mode != "none" else 0)
    if shared % due:
        yield LayoutError("tma-alignment", f"shared address {shared}, no multiple of {due}")


def _ranges(
    code: str, what: str, values: tuple[int, ...], least: int, most: int
) -> Iterator[LayoutError]:
    for axis, value in enumerate(values):
        if not least <= value <= most:
            yield LayoutError(code, f"axis {axis}: {what} {value}, legal are {least} to {most}")


def _inner(tensor: TensorMap) -> Iterator[LayoutError]:
    inner = tensor.copied[0] * bits(tensor.dtype) // 8
    span = SPAN[tensor.mode]
    if inner % GRANULE:
        yield LayoutError("tma-box", f"inner box extent of {inner} bytes, no multiple of {GRANULE}")
    if tensor.mode != "none" and inner > span:
        yield LayoutError(
            "tma-box", f"inner box extent of {inner} bytes, swizzle {tensor.mode} spans {span}"
        )
