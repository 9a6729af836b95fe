"""How wgmma reads a shared operand: descriptors decoded, the canonical forms, their addresses.

Source: PTX ISA, "Shared memory matrix layout" and "Matrix descriptor". A swizzle acts on byte
addresses.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ir.layout.errors import LayoutError
from ir.layout.instructions.descriptor import (
    CHUNK,
    MODES,
    SPAN,
    TYPE_FIELD,
    Descriptor,
    check_mode,
)
from ir.layout.layout import Layout
from ir.layout.swizzle import Swizzle
from ir.layout.widths import bits

SWIZZLE_BITS = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
MODE_OF_FIELD = {field: mode for mode, field in TYPE_FIELD.items()}
GROUP = 8
"""Rows of a core matrix (and k of one, when the other axis is contiguous)."""
INSTRUCTION_K_BYTES = 32
USED_BITS = 0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 0x3 << 62


def element_swizzle(mode: str, dtype: str) -> Swizzle:
    """The mode's swizzle on offsets in elements of `dtype`, for a tile aligned to its pattern."""
    return Swizzle(SWIZZLE_BITS[check_mode(mode)], 8 - bits(dtype).bit_length(), 3)


def swizzle_addresses(addresses: NDArray[np.int64], mode: str) -> NDArray[np.int64]:
    """Byte addresses after the mode's XOR of bits 4.. with bits 7.."""
    mask = (1 << SWIZZLE_BITS[check_mode(mode)]) - 1
    turned: NDArray[np.int64] = addresses ^ ((addresses >> 7 & mask) << 4)
    return turned


def decode(word: int) -> Descriptor:
    """The fields of a 64-bit word; LayoutError "descriptor-reserved" if an unused bit is set."""
    if word & ~USED_BITS:
        raise LayoutError(
            "descriptor-reserved", f"{word:#x} sets {word & ~USED_BITS:#x} outside {USED_BITS:#x}"
        )
    return Descriptor(
        start=(word & 0x3FFF) << 4,
        leading=(word >> 16 & 0x3FFF) << 4,
        stride=(word >> 32 & 0x3FFF) << 4,
        mode=MODE_OF_FIELD[word >> 62],
    )


def check_major(major: str, dtype: str) -> None:
    """LayoutError "illegal-major" unless wgmma reads `dtype` with this axis contiguous."""
    legal = ("k", "mn") if bits(dtype) == 16 else ("k",)
    if major not in legal:
        raise LayoutError(
            "illegal-major",
            f"{major!r} for {dtype} of {bits(dtype)} bits: wgmma takes {', '.join(legal)}, "
            "and mn for 16 bits only",
        )


def operand_addresses(
    descriptor: Descriptor, major: str, rows: int, k: int, dtype: str
) -> NDArray[np.int64]:
    """Byte address of every element [row, k] of one instruction's operand, swizzle applied."""
    check_major(major, dtype)
    width = bits(dtype) // 8
    row, depth = np.arange(rows, dtype=np.int64)[:, None], np.arange(k, dtype=np.int64)[None, :]
    span, step, leap = SPAN[descriptor.mode], descriptor.stride, descriptor.leading
    plain = descriptor.mode == "none"
    if major == "k":
        in_row = depth * width
        chunks = in_row // CHUNK * leap + in_row % CHUNK if plain else in_row
        offsets = row % GROUP * span + row // GROUP * step + chunks
    else:
        across, along = (step, leap) if plain else (leap, step)
        in_row = row * width
        offsets = in_row % span + in_row // span * across
        offsets = offsets + depth % GROUP * span + depth // GROUP * along
    return swizzle_addresses(descriptor.start + offsets, descriptor.mode)


@dataclass(frozen=True, slots=True)
class CanonicalForm:
    """A whole shared tile of extents (rows, k) as wgmma can read it.

    `layout`: row + rows * k -> offset in elements before the swizzle; `swizzle`: on offsets in
    elements, valid for a tile aligned to `alignment` bytes; `leading`, `stride`: descriptor
    fields in bytes; `atom`: the extents (rows, k) of the mode's smallest tile.
    """

    dtype: str
    major: str
    mode: str
    extents: tuple[int, int]
    layout: Layout
    swizzle: Swizzle
    leading: int
    stride: int
    atom: tuple[int, int]

    @property
    def bytes(self) -> int:
        return self.extents[0] * self.extents[1] * bits(self.dtype) // 8

    @property
    def alignment(self) -> int:
        return GROUP * SPAN[self.mode]

    def start(self, row: int = 0, k: int = 0) -> int:
        """Byte offset of an instruction's operand that begins at (row, k).

        LayoutError "operand-start" unless the atoms allow a start there.
        """
        rows_step = self.atom[0] if self.major == "mn" else GROUP
        k_step = INSTRUCTION_K_BYTES * 8 // bits(self.dtype)
        for name, value, step, extent in (
            ("row", row, rows_step, self.extents[0]),
            ("k", k, k_step, self.extents[1]),
        ):
            if value % step or not 0 <= value < extent:
                raise LayoutError(
                    "operand-start",
                    f"{name} {value}: starts are multiples of {step} below {extent}",
                )
        return self.layout(row + self.extents[0] * k) * bits(self.dtype) // 8

    def descriptor(self, address: int, row: int = 0, k: int = 0) -> Descriptor:
        """Descriptor of the operand at (row, k) of the tile stored at byte `address`.

        LayoutError "descriptor-field" if the address is not aligned to the swizzle's pattern.
        """
        if address % self.alignment:
            raise LayoutError(
                "descriptor-field",
                f"tile at {address}: mode {self.mode} is aligned to {self.alignment} bytes",
            )
        return Descriptor(address + self.start(row, k), self.leading, self.stride, self.mode)


def canonical(
    major: str, mode: str, rows: int, k: int, dtype: str, packed: str | None = None
) -> CanonicalForm:
    """The canonical form of a dense tile of `rows` (m or n) by `k` elements.

    `packed` names the axis along which neighbouring atoms follow each other in memory: "mn"
    (a K-major tile's default, what one TMA box a panel writes) or "k" (an MN-major tile's).
    LayoutError "atom-does-not-divide" with both extents, "illegal-major", "unknown-swizzle-mode".
    """
    check_major(major, dtype)
    span = SPAN[check_mode(mode)] * 8 // bits(dtype)
    atom = (GROUP, span) if major == "k" else (span, GROUP)
    for axis, extent, part in (("mn", rows, atom[0]), ("k", k, atom[1])):
        if extent % part or extent < part:
            raise LayoutError(
                "atom-does-not-divide",
                f"{axis} extent {extent}: the {mode} atom of {dtype} spans {part}",
            )
    return _pack(major, mode, (rows, k), dtype, atom, packed or ("mn" if major == "k" else "k"))


def canonical_forms(
    rows: int, k: int, dtype: str, majors: tuple[str, ...] = ("k", "mn")
) -> tuple[CanonicalForm, ...]:
    """Every form that a tile of `rows` by `k` may have, the widest swizzle of a major first."""
    found = []
    for major in majors:
        for mode in MODES[::-1]:
            for packed in ("mn", "k"):
                with suppress(LayoutError):
                    found.append(canonical(major, mode, rows, k, dtype, packed))
    return tuple(dict.fromkeys(found))


def _pack(
    major: str, mode: str, extents: tuple[int, int], dtype: str, atom: tuple[int, int], packed: str
) -> CanonicalForm:
    size = atom[0] * atom[1]
    counts = (extents[0] // atom[0], extents[1] // atom[1])
    behind = size * counts[0 if packed == "mn" else 1]
    steps = (size, behind) if packed == "mn" else (behind, size)
    steps = (steps[0] if counts[0] > 1 else size, steps[1] if counts[1] > 1 else size)
    inner = (atom[1], 1) if major == "k" else (1, atom[0])
    in_bytes = tuple(step * bits(dtype) // 8 for step in steps)
    rows_lead = major == "mn" and mode != "none"
    leading, stride = in_bytes if rows_lead else in_bytes[::-1]
    ignored = major == "k" and mode != "none"
    return CanonicalForm(
        dtype=dtype,
        major=major,
        mode=mode,
        extents=extents,
        layout=Layout(
            ((atom[0], counts[0]), (atom[1], counts[1])),
            ((inner[0], steps[0]), (inner[1], steps[1])),
        ),
        swizzle=element_swizzle(mode, dtype),
        leading=CHUNK if ignored else leading,
        stride=stride,
        atom=atom,
    )
