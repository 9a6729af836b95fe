"""What a machine could do at best on a program: the roofline of its peak and its memory.

Williams, Waterman and Patterson (Communications of the ACM 52, 2009). The program is counted as
`ir` counts it: arithmetic of one run, every tensor moved once. Where all tensors fit the last
cache, memory is no bound, because kernels are timed again and again on the same operands. Facts
that are not known are left out. What a mask hides is counted as well, so that a kernel may do with
less than that: `explorer.bound` has what no right one can do without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from explorer.runtime.products import product_at
from ir.dtypes import DTYPES
from ir.ops.map import Map
from ir.peaks import rates_in
from ir.program import Program
from ir.rewrite.forms import forms_of
from ir.rewrite.work import Rates

ABOVE = 1.005  # of what is possible: a share from which it would be shown as more than 100 %
PEAK_FLOPS = "peak_flops"  # operations a second
PEAK_BYTES = "peak_bytes"  # bytes a second between memory and processor
_CACHES = ("l1_bytes", "l2_bytes", "l3_bytes")


def operations(program: Program) -> dict[tuple[str, ...], int]:
    """Arithmetic operations by the types that they work on.

    Those of a matrix product count for the types of its factors, all others for f32, or f64 where
    they compute in that.
    """
    found: dict[tuple[str, ...], int] = {}
    for position, node in enumerate(program.nodes):
        args = [program.nodes[arg] for arg in node.args]
        count = node.op.flops([arg.type for arg in args], node.type, program.scope)
        product = product_at(program, position)
        if product is not None and product.rows and product.columns:
            factors = (program.nodes[factor].dtype for factor in (product.left, product.right))
            types = tuple(sorted(set(factors)))
        else:
            types = ("f64",) if node.dtype == "f64" else ("f32",)
        if count:
            found[types] = found.get(types, 0) + count
    return found


def _peak(types: tuple[str, ...], facts: Mapping[str, Any]) -> float:
    """That of the faster type of two, to which a kernel may round; 0 if it is not known."""
    peaks = [float(facts.get(f"{PEAK_FLOPS}.{dtype}") or _fastest(dtype, facts)) for dtype in types]
    return max(peaks) if all(peaks) else float(facts.get(PEAK_FLOPS) or 0)


def _fastest(dtype: str, facts: Mapping[str, Any]) -> float:
    """The rate of the fastest engine for factors of a type; 0 if none is known."""
    return max((rate.per_second for rate in rates_in(facts) if rate.factors == dtype), default=0.0)


def _arithmetic(program: Program, facts: Mapping[str, Any]) -> float:
    """Seconds of the busiest unit; 0 where the rate of one is not known."""
    work = operations(program)
    known = {types: _peak(types, facts) for types in work}
    return max((work[t] / known[t] for t in work), default=0.0) if all(known.values()) else 0.0


def _forms(program: Program, facts: Mapping[str, Any]) -> list[Program]:
    """The program, it with factors as they are multiplied, and equal ones of less arithmetic."""
    found = [program]
    peak = _peak(("f32",), facts)
    if peak:
        products = {
            dtype: rate for dtype in DTYPES if (rate := float(_peak((dtype,), facts) or peak))
        }
        rates = Rates(products, peak / 2, float(facts.get(PEAK_BYTES) or peak))
        found += [form.program for form in forms_of(program, rates).offered]
    return found


@dataclass(frozen=True, slots=True)
class Roofline:
    """Counts of one run of a program, and the machine's peaks where they are known.

    `peak_flops` is what the units that the program needs do together; where an equal program needs
    less arithmetic, it is that with which the program as written would take no longer.
    """

    flops: int
    bytes: int
    peak_flops: float | None = None
    peak_bytes: float | None = None
    masked: bool = False  # whether the program chooses, so that kernels may leave out work

    @classmethod
    def of(cls, program: Program, facts: Mapping[str, Any]) -> Roofline:
        """From hardware facts, of which 0 means unknown.

        Peaks for element types ("peak_flops.bf16") go before the general one. Units for different
        types work side by side, so that the slowest of them decides.
        """
        times = [_arithmetic(form, facts) for form in _forms(program, facts)]
        least = min(filter(None, times), default=0.0) if times[0] else 0.0
        flops = program.flops / least if least else None
        cached = program.bytes <= max(int(facts.get(name, 0)) for name in _CACHES)
        memory = None if cached else float(facts.get(PEAK_BYTES) or 0) or None
        chooses = any(isinstance(n.op, Map) and n.op.function == "where" for n in program.nodes)
        return cls(program.flops, program.bytes, flops, memory, chooses)

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
        """How much of what is possible a kernel reaches; None where `exceeded` or not known."""
        if self.seconds is None or self.exceeded(seconds):
            return None
        return min(1.0, self.seconds / seconds)

    def exceeded(self, seconds: float) -> bool:
        """Whether a right kernel took less than what is counted takes."""
        return self.seconds is not None and self.seconds > ABOVE * seconds

    def doubts(self, seconds: float) -> bool:
        """Whether that shows that a peak is known too low."""
        return self.exceeded(seconds) and not self.masked

    def words(self, seconds: float) -> str:
        """The share for people, or why there is none; empty where no peak is known."""
        share = self.share(seconds)
        if share is not None:
            return f"{100 * share:.0f} % of the machine's peak"
        if self.doubts(seconds):
            return "no share of the machine's peak, which was measured too low"
        return "no share of the machine's peak: masks spare it work" * self.exceeded(seconds)
