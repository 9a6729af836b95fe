"""What a machine could do at best on a program: the roofline of its peak and its memory.

Williams, Waterman and Patterson (Communications of the ACM 52, 2009). The program is counted as
`ir` counts it: arithmetic of one run, every tensor moved once. Where all tensors fit the last
cache, memory is no bound, because kernels are timed again and again on the same operands. Facts
that are not known are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ir.program import Program

PEAK_FLOPS = "peak_flops"  # operations a second
PEAK_BYTES = "peak_bytes"  # bytes a second between memory and processor
_CACHES = ("l1_bytes", "l2_bytes", "l3_bytes")


@dataclass(frozen=True, slots=True)
class Roofline:
    """Counts of one run of a program, and the machine's peaks where they are known."""

    flops: int
    bytes: int
    peak_flops: float | None = None
    peak_bytes: float | None = None

    @classmethod
    def of(cls, program: Program, facts: Mapping[str, Any]) -> Roofline:
        """From hardware facts, of which 0 means unknown.

        A peak for the dtype of the program's inputs ("peak_flops.f32") goes before the general one.
        """
        dtype = program.inputs[0].dtype if program.inputs else ""
        flops = facts.get(f"{PEAK_FLOPS}.{dtype}") or facts.get(PEAK_FLOPS)
        cached = program.bytes <= max(int(facts.get(name, 0)) for name in _CACHES)
        memory = None if cached else facts.get(PEAK_BYTES)
        peaks = (float(peak or 0) or None for peak in (flops, memory))
        return cls(program.flops, program.bytes, *peaks)

    @property
    def known(self) -> bool:
        """Whether there is a roof over the arithmetic; memory's alone would say little."""
        return self.peak_flops is not None

    @property
    def arithmetic_seconds(self) -> float | None:
        return self.flops / self.peak_flops if self.peak_flops else None

    @property
    def memory_seconds(self) -> float | None:
        return self.bytes / self.peak_bytes if self.peak_bytes else None

    @property
    def seconds(self) -> float | None:
        """The least time that the known peaks allow; None if that of arithmetic is not known."""
        if not self.known:
            return None
        known = [t for t in (self.arithmetic_seconds, self.memory_seconds) if t is not None]
        return max(known) if known and max(known) > 0 else None

    @property
    def bound(self) -> str:
        """Which peak decides: "arithmetic" or "memory"; empty if none is known."""
        if self.seconds is None:
            return ""
        return "arithmetic" if self.seconds == self.arithmetic_seconds else "memory"

    @property
    def intensity(self) -> float:
        """Operations for each byte that has to be moved."""
        return self.flops / self.bytes if self.bytes else 0.0

    def share(self, seconds: float) -> float | None:
        """How much of what is possible a kernel reaches."""
        return None if self.seconds is None else self.seconds / seconds
