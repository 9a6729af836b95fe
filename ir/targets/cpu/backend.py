"""The CPU target: hardware facts, the space of any program, the lowering to a kernel.

Facts are asked for without spaces, so what makes these is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ir.target import Hardware, PeakKernel
from ir.targets.cpu.hardware import host_hardware

if TYPE_CHECKING:
    from ir.kernel import Kernel, KernelTable, Standalone
    from ir.program import Program
    from ir.rewrite.forms import Forms
    from ir.schedule import Schedule
    from ir.space import Space

GENERATOR = "21"


class CpuBackend:
    """x86-64 with AVX-512, AVX2 or SSE; real kernels through LLVM."""

    name = "cpu"
    generator = f"cpu-{GENERATOR}"
    memories = ("plain", "huge")

    def hardware(self, threads: int | None = None) -> Hardware:
        """Facts of this host; `threads` defaults to all that the process may use."""
        return host_hardware(threads)

    def forms(self, program: Program, hardware: Hardware) -> Forms:
        """Equal programs by the work they are here."""
        from ir.rewrite.forms import forms_of
        from ir.rewrite.inhabited import inhabited
        from ir.targets.cpu.candidates import rates_of

        return forms_of(inhabited(program), rates_of(hardware))

    def space(self, program: Program, hardware: Hardware) -> Space:
        """Every decision for `program`; raises UsageError for dtypes that no scalar holds."""
        from ir.rewrite.inhabited import inhabited
        from ir.targets.cpu.candidates import space_of

        return space_of(inhabited(program), hardware)

    def lower(
        self, program: Program, schedule: Schedule, hardware: Hardware, full: bool = False
    ) -> Kernel:
        """Generate the kernel (with C text too if `full`); raises Refusal."""
        from ir.rewrite.inhabited import inhabited
        from ir.targets.cpu.candidates import lower

        return lower(inhabited(program), schedule, hardware, full)

    def standalone(self, kernel: Kernel, symbol: str = "") -> Standalone:
        """Pool, plain entry and flags of an exported kernel."""
        from ir.targets.cpu.standalone import standalone

        return standalone(kernel, symbol)

    def standalone_table(self, table: KernelTable, symbol: str = "") -> Standalone:
        """Several kernels in one, with entries that choose by extents."""
        from ir.targets.cpu.standalone import standalone_table

        return standalone_table(table, symbol)

    def arithmetic_kernels(self, hardware: Hardware) -> Iterator[PeakKernel]:
        """Kernels that multiply and add, one for each engine and type that the host has."""
        from ir.targets.cpu.peak_kernels import arithmetic

        return arithmetic(hardware)

    def reading_kernel(self, hardware: Hardware, share: int) -> PeakKernel:
        """A kernel of whose threads each reads so many bytes of its own."""
        from ir.targets.cpu.peak_kernels import reading

        return reading(hardware, share)
