"""How wgmma finds a shared operand: the 64-bit descriptor, the modes of its swizzle.

Source: PTX ISA, "Shared memory matrix layout" and "Matrix descriptor". Knows no instruction's
shape.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.layout.errors import LayoutError

MODES = ("none", "32B", "64B", "128B")
TYPE_FIELD = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
SPAN = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
"""Bytes of one row of a mode's atom."""
CHUNK = 16
GROUP = 8  # rows of a core matrix
FIELD_LIMIT = 1 << 18


def check_mode(mode: str) -> str:
    """`mode` itself; LayoutError "unknown-swizzle-mode" names the four."""
    if mode not in MODES:
        raise LayoutError(
            "unknown-swizzle-mode", f"swizzle mode {mode!r}: known are {', '.join(MODES)}"
        )
    return mode


@dataclass(frozen=True, slots=True)
class Descriptor:
    """The fields of a shared-memory matrix descriptor, all in bytes but the last.

    `start`, `leading`, `stride`: multiples of 16 below 262,144. `leading` steps between the two
    16-byte k chunks ("none", K-major), along k ("none", MN-major) or along MN (swizzled,
    MN-major), and is ignored in swizzled K-major forms; `stride` steps between groups of 8 rows,
    or along k in swizzled MN-major forms. LayoutError "descriptor-field" names value and limit.
    """

    start: int
    leading: int
    stride: int
    mode: str

    def __post_init__(self) -> None:
        check_mode(self.mode)
        for name in ("start", "leading", "stride"):
            value = getattr(self, name)
            if value % CHUNK:
                raise LayoutError(
                    "descriptor-field", f"{name} of {value} bytes is no multiple of {CHUNK}"
                )
            if not 0 <= value < FIELD_LIMIT:
                raise LayoutError(
                    "descriptor-field", f"{name} of {value} bytes: its field ends at {FIELD_LIMIT}"
                )

    def encode(self) -> int:
        """The 64-bit word."""
        return (
            self.start >> 4
            | self.leading >> 4 << 16
            | self.stride >> 4 << 32
            | TYPE_FIELD[self.mode] << 62
        )
