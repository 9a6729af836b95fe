"""Shared tiles that the machine itself addresses: TMA boxes and wgmma descriptors over digits.

Owns whether a placement is legal for them and what they then look like. Chooses no placement; those
that it is asked about have no gaps, and no swizzle or one of the machine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ir.layout.instructions.descriptor import MODES, SPAN, Descriptor
from ir.layout.instructions.tma import DTYPES as TMA_DTYPES
from ir.layout.instructions.tma import GRANULE, MAX_BOX, MAX_RANK, MAX_STRIDE
from ir.layout.synthesis.digits import Space
from ir.layout.synthesis.gemm import Rejection, Tiling
from ir.layout.synthesis.memory import Placement
from ir.layout.synthesis.problem import Tile


@dataclass(frozen=True, slots=True)
class Boxes:
    """`dims`: digits of each box dimension, innermost first; `outer`: digits that number the
    boxes."""

    dims: tuple[tuple[int, ...], ...]
    outer: tuple[int, ...]

    def count(self, space: Space) -> int:
        return space.size(self.outer)


def tma_boxes(
    space: Space, shared: Tile, memory: Placement, source: Tile, place: Placement
) -> Boxes | Rejection:
    """The box dimensions of a bulk copy between a global tile (`memory`) and a shared one
    (`place`).

    Digits that follow each other in both memories share a dimension. The innermost is cut at the
    line of the swizzle, each at 256, the rank at 5; what is over numbers the boxes.
    """
    strides = memory.strides
    for axis in source.names:
        if axis in space.bounds:
            text = f"{source.name}: {space.bounds[axis]} points are there on axis {axis}"
            return Rejection("tma-bound", text)
    refused = _unfit_tensor(space, source, strides)
    if refused is not None:
        return refused
    if place.order and strides[place.order[0]] != 1:
        return Rejection(
            "tma-inner-stride",
            f"{source.name}: innermost box stride is {strides[place.order[0]]} elements, needs 1",
        )
    cut = _cut(space, shared, strides, place)
    return _unfit_inner(space, source, place, cut) or cut


def _cut(space: Space, shared: Tile, strides: dict[int, int], place: Placement) -> Boxes:
    """Digits in the order of shared memory, shared out among dimensions; `strides` are those of
    the global tile."""
    line = place.line * 8 // shared.bits if place.line else 0
    dims: list[list[int]] = []
    outer: list[int] = []
    extent, step = 1, 0  # points of the last dimension, and its stride
    for digit in place.order:
        radix, stride = space.radix[digit], strides[digit]
        whole = extent * radix
        inside = len(dims) != 1 or not line or whole <= line
        if outer:
            outer.append(digit)
        elif dims and stride == step * extent and inside and whole <= MAX_BOX:
            dims[-1].append(digit)
            extent = whole
        elif len(dims) < MAX_RANK:
            dims.append([digit])
            extent, step = radix, stride
        else:
            outer.append(digit)
    return Boxes(tuple(map(tuple, dims)), tuple(outer))


def _unfit_inner(space: Space, source: Tile, place: Placement, boxes: Boxes) -> Rejection | None:
    """Why the innermost dimension of these boxes is none that TMA can copy."""
    if not boxes.dims:
        return Rejection(
            "tma-box", f"{source.name}: 1 element of {source.bits} bits, needs {GRANULE} bytes"
        )
    inner = space.size(boxes.dims[0]) * source.bits // 8
    if inner % GRANULE:
        return Rejection(
            "tma-box", f"{source.name}: inner box extent of {inner} bytes, no multiple of {GRANULE}"
        )
    span = 16 << place.swizzle.bits
    if not place.swizzle.plain and inner != span:
        return Rejection(
            "tma-box", f"{source.name}: inner box of {inner} bytes, the swizzle's rows have {span}"
        )
    return None


def _unfit_tensor(space: Space, source: Tile, strides: dict[int, int]) -> Rejection | None:
    """Why no box at all can read or write this tensor."""
    if source.dtype not in TMA_DTYPES:
        return Rejection("tma-dtype", f"{source.name}: {source.dtype} of {source.bits} bits")
    if source.alignment % GRANULE:
        return Rejection(
            "tma-alignment",
            f"{source.name}: address aligned to {source.alignment} B, needs {GRANULE} B",
        )
    contiguous, expected = set[int](), 1
    for digit in sorted(strides, key=lambda digit: strides[digit]):
        if strides[digit] == expected:
            contiguous.add(digit)
            expected *= space.radix[digit]
    if not contiguous:
        least = min(strides.values(), default=0)
        return Rejection("tma-inner-stride", f"{source.name}: smallest stride {least}, needs 1")
    bits = source.bits
    for digit, stride in strides.items():
        if stride == 0:
            return Rejection("tma-stride", f"{source.name}: stride 0 on axis {space.axis[digit]}")
        if digit not in contiguous and stride * bits % (GRANULE * 8):
            return Rejection(
                "tma-stride",
                f"{source.name}: stride of {stride} elements = {stride * bits / 8:g} B on "
                f"axis {space.axis[digit]}, no multiple of {GRANULE} B",
            )
        if stride * bits // 8 >= MAX_STRIDE:
            return Rejection(
                "tma-stride", f"{source.name}: stride of {stride * bits // 8} B, below {MAX_STRIDE}"
            )
    return None


@dataclass(frozen=True, slots=True)
class SharedOperand:
    """What a gemm asks of a shared tile: its digits along the instruction's m or n (`rows`) and k,
    and those it steps over: repeats and the digits of warp groups, with their threads."""

    role: str
    rows: tuple[int, ...]
    k: tuple[int, ...]
    row_repeats: tuple[int, ...]
    k_repeats: tuple[int, ...]
    groups: tuple[int, ...]


def shared_operand(tiling: Tiling, role: str) -> SharedOperand:
    letter = {"a": "m", "b": "n"}[role]
    groups = tuple(
        digit if along == letter else -1
        for digit, along in zip(tiling.warp, tiling.choice.slots, strict=True)
    )
    return SharedOperand(
        role,
        tiling.ordered(letter),
        tiling.ordered("k"),
        tiling.repeats[letter],
        tiling.repeats["k"],
        groups,
    )


@dataclass(frozen=True, slots=True)
class Canonical:
    """A placement seen as one of wgmma's forms, byte steps between row groups and between
    chunks."""

    major: str
    mode: str
    leading: int
    stride: int

    def word(self) -> int:
        """The 64-bit descriptor for start address 0."""
        return Descriptor(0, self.leading, self.stride, self.mode).encode()


def canonical(
    space: Space, tile: Tile, place: Placement, operand: SharedOperand, majors: Sequence[str]
) -> Canonical | Rejection:
    """The canonical form that a placement is of, for one instruction's operand."""
    mode = MODES[place.swizzle.bits]
    for major in majors:
        found = (_k_major if major == "k" else _mn_major)(space, tile, place, operand, mode)
        if found is not None:
            return found
    return Rejection(
        "wgmma-form",
        f"{tile.name}: no {mode} form, {'- or '.join(majors)}-major, of {SPAN[mode]}-byte rows",
    )


def _bytes(tile: Tile, place: Placement) -> dict[int, int]:
    return {digit: offset * tile.bits // 8 for digit, offset in place.strides.items()}


def _steps(space: Space, digits: Sequence[int], at: dict[int, int], step: int) -> bool:
    """Whether consecutive digits count on in units of `step` bytes."""
    for digit in digits:
        if at[digit] != step:
            return False
        step *= space.radix[digit]
    return True


def _k_major(
    space: Space, tile: Tile, place: Placement, operand: SharedOperand, mode: str
) -> Canonical | None:
    at, span = _bytes(tile, place), SPAN[mode]
    chunk = (16 * 8 // tile.bits).bit_length() - 1
    within = operand.k[:chunk] if mode == "none" else operand.k
    if not place.leads(within):
        return None
    if not _steps(space, operand.rows[:3], at, span):
        return None
    groups = operand.rows[3:]
    stride = at[groups[0]] if groups else 8 * span
    if not _steps(space, groups, at, stride) or not _aligned(operand, at, 8 * span, span):
        return None
    leading = at[operand.k[chunk]] if mode == "none" else 16
    return Canonical("k", mode, leading, stride)


def _mn_major(
    space: Space, tile: Tile, place: Placement, operand: SharedOperand, mode: str
) -> Canonical | None:
    at, span = _bytes(tile, place), SPAN[mode]
    line = (span * 8 // tile.bits).bit_length() - 1
    if len(operand.rows) < line or not place.leads(operand.rows[:line]):
        return None
    if not _steps(space, operand.k[:3], at, span):
        return None
    groups, deep = operand.rows[line:], operand.k[3:]
    across = at[groups[0]] if groups else 8 * span
    along = at[deep[0]] if deep else 8 * span
    if not _steps(space, groups, at, across) or not _steps(space, deep, at, along):
        return None
    if not _aligned(operand, at, 8 * span, 8 * span):
        return None
    leading, stride = (along, across) if mode == "none" else (across, along)
    return Canonical("mn", mode, leading, stride)


def _aligned(operand: SharedOperand, at: dict[int, int], pattern: int, within: int) -> bool:
    """Whether repeats start on whole patterns of the swizzle; those along k may also step inside a
    row of `within` bytes, because the swizzle acts on absolute addresses."""
    rows = [*operand.row_repeats, *(digit for digit in operand.groups if digit >= 0)]
    if any(at[digit] % pattern for digit in rows):
        return False
    return all(
        at[digit] % pattern == 0 or (at[digit] < within and at[digit] % 32 == 0)
        for digit in operand.k_repeats
    )


def tma_extents(space: Space, boxes: Boxes) -> tuple[int, ...]:
    return tuple(prod(space.radix[digit] for digit in dim) for dim in boxes.dims)
