"""The CUDA target: facts of the GPU, the space of any program, the lowering to CUDA C++.

Facts are asked for without spaces, so what makes these is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ir.errors import UsageError
from ir.roundoff import Accumulations
from ir.target import Hardware
from ir.targets.cuda.rows.hardware import (
    KNOWN,
    device_hardware,
    device_names,
    known_hardware,
    stated_peaks,
)
from ir.targets.cuda.rows.roundoff import ACCUMULATIONS

if TYPE_CHECKING:
    from ir.kernel import Kernel, Standalone
    from ir.kernel.listing import Listing
    from ir.program import Program
    from ir.rewrite.forms import Forms
    from ir.schedule import Schedule
    from ir.space import Space

GENERATOR = "45"


class CudaBackend:
    """NVIDIA GPUs: tensor cores by wgmma or mma.sync for products, ordinary units for the rest."""

    name = "cuda"
    generator = f"cuda-{GENERATOR}"
    machines = tuple(KNOWN)

    def hardware(self, threads: int | None = None) -> Hardware:
        """Facts of the first CUDA device; raises MissingTarget."""
        return device_hardware()

    def machine(self, name: str) -> Hardware:
        """Facts of a card by name; raises UsageError."""
        return known_hardware(name)

    def device_names(self) -> tuple[str, ...]:
        """The visible cards."""
        return device_names()

    def peaks(self, hardware: Hardware) -> Mapping[str, float]:
        """What the card's data sheet says of each type."""
        return stated_peaks(hardware)

    def accumulations(self, hardware: Hardware) -> Accumulations:
        """How tensor cores add up products."""
        return ACCUMULATIONS

    def forms(self, program: Program, hardware: Hardware) -> Forms:
        """Equal programs by the work they are here."""
        from ir.rewrite.forms import forms_of
        from ir.targets.cuda.space.engines import rates_of

        return forms_of(_written(program), rates_of(hardware))

    def space(self, program: Program, hardware: Hardware) -> Space:
        """Every decision for `program`; raises UsageError for types that the card lacks."""
        from ir.routes import space_of_forms
        from ir.targets.cuda.cost.costs import least_clocks
        from ir.targets.cuda.space.engines import rates_of, space_of
        from ir.targets.cuda.text.scalars import STORAGE

        for spec in program.tensors:
            if spec.dtype not in STORAGE:
                raise UsageError(
                    f"{program.name}: tensor {spec.name} is {spec.dtype}; the cuda target "
                    f"computes on {', '.join(STORAGE)}"
                )
        self._refuse_too_large(program, hardware)
        return space_of_forms(
            _written(program),
            rates_of(hardware),
            lambda form: least_clocks(form, hardware),
            lambda form, least, all_of_it: space_of(form, hardware, least, all_of_it),
        )

    def _refuse_too_large(self, program: Program, hardware: Hardware) -> None:
        have = hardware["memory_bytes"]
        if program.bytes > have:
            raise UsageError(
                f"{program.name}: its tensors take {program.bytes / 1e9:.1f} GB; "
                f"{hardware.name} has {have / 1e9:.1f} GB"
            )

    def lower(
        self, program: Program, schedule: Schedule, hardware: Hardware, full: bool = False
    ) -> Kernel:
        """Generate the kernel's text and launch plan; raises Refusal."""
        from ir.rewrite.undotted import as_named
        from ir.routes import as_given, formed
        from ir.targets.cuda.build.program_text import lower_all
        from ir.targets.cuda.space.engines import rates_of, route_of

        written = _written(program)
        form, schedule = formed(written, schedule, rates_of(hardware))
        route, values = route_of(form, schedule, hardware)
        kernel = lower_all(form, values, hardware, route.engine, route.residence)
        return as_named(as_given(kernel, written), program)

    def listings(
        self, program: Program, schedule: Schedule, hardware: Hardware
    ) -> tuple[Listing, ...]:
        """The kernels of a schedule, behind each pass; raises Refusal."""
        from ir.routes import formed
        from ir.targets.cuda.build.listings import listings_of
        from ir.targets.cuda.space.engines import rates_of

        form, own = formed(_written(program), schedule, rates_of(hardware))
        return listings_of(form, own, hardware)

    def standalone(self, kernel: Kernel, symbol: str = "") -> Standalone:
        """Unused: CUDA kernels are exported as text, cubin and a Python module."""
        raise UsageError("the cuda target exports text and cubins; there is no C form")


def _written(program: Program) -> Program:
    """What kernels are generated of."""
    from ir.rewrite.indexing import indexed
    from ir.rewrite.inhabited import inhabited
    from ir.rewrite.levelled import levelled
    from ir.rewrite.turned import turned
    from ir.rewrite.undotted import undotted

    return turned(levelled(undotted(indexed(inhabited(program)))))
