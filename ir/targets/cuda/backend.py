"""The CUDA target: facts of the GPU, the space of any program, the lowering to CUDA C++."""

from __future__ import annotations

from ir.errors import UsageError
from ir.kernel import Kernel, Standalone
from ir.program import Program
from ir.schedule import Schedule
from ir.space import Space
from ir.target import Hardware
from ir.targets.cuda.features import Features
from ir.targets.cuda.hardware import device_hardware
from ir.targets.cuda.kernels import (
    constraints_of,
    decisions_of,
    kernels_of,
    lower_all,
    seeds_of,
)
from ir.targets.cuda.scalars import STORAGE

GENERATOR = "1"


class CudaBackend:
    """NVIDIA GPUs: Hopper's wgmma and TMA where the program is a product, else any unit."""

    name = "cuda"
    generator = f"cuda-{GENERATOR}"

    def hardware(self, threads: int | None = None) -> Hardware:
        """Facts of the first CUDA device; raises MissingTarget."""
        return device_hardware()

    def space(self, program: Program, hardware: Hardware) -> Space:
        """Every decision for `program`; raises UsageError for types that the card lacks."""
        for spec in program.tensors:
            if spec.dtype not in STORAGE:
                raise UsageError(
                    f"{program.name}: tensor {spec.name} is {spec.dtype}; the cuda target "
                    f"computes on {', '.join(STORAGE)}"
                )
        self._refuse_too_large(program, hardware)
        kernels = kernels_of(program, hardware)
        return Space(
            "cuda",
            decisions_of(program, kernels),
            constraints_of(program, kernels),
            seeds_of(program, kernels),
            Features(program, kernels, hardware),
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
        return lower_all(program, schedule.as_dict(), hardware)

    def standalone(self, kernel: Kernel) -> Standalone:
        """Unused: CUDA kernels are exported as text, cubin and a Python module."""
        raise UsageError("the cuda target exports text and cubins; there is no C form")
