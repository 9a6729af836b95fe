"""A tuned kernel for Python: a function of arrays, its files, its text.

Knows exports and checks; not how it was found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from explorer.errors import NothingValid
from explorer.kept import keep, kernel_function
from explorer.workload import Workload
from ir.dtypes import numpy_dtype
from ir.errors import UsageError
from ir.kernel import Kernel
from ir.program import Program
from ir.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Winner:
    """The best schedule of a workload, with the seconds that its kernel takes.

    It is called as the module is that `export` writes: inputs in their order, outputs by name if
    they are to be written in place. `checked` says that this process has just seen it be right; a
    kernel that records tell of is checked in a worker process before it is first called.
    """

    workload: Workload
    schedule: Schedule
    seconds: float
    job: str = ""
    checked: bool = False

    @property
    def gflops(self) -> float:
        """Billions of arithmetic operations of the program a second."""
        return self.workload.program.flops / self.seconds / 1e9 if self.seconds else 0.0

    def kernel(self) -> Kernel:
        """The kernel's text in every language of its target."""
        return self.workload.kernel(self.schedule)

    def export(self, folder: str | Path) -> Sequence[Path]:
        """Write files that need no Tilewright; returns them. Raises ExportError."""
        from explorer.job import export_best

        return export_best(
            self.workload, Path(folder), schedule=self.schedule, seconds=self.seconds
        )

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Run the kernel in this process; raises UsageError, NothingValid, ExportError."""
        if self.workload.program.is_void:
            return _empty(self.workload.program, len(arrays), named)
        return self.function()(*arrays, **named)

    def function(self) -> Callable[..., Any]:
        """The exported function, loaded once in a process; raises as a call does."""
        self._refuse_elsewhere()
        return kernel_function(self.workload, self.schedule, self._refuse_unchecked, self.export)

    def keep(self) -> None:
        """Have it ready in the cache for whoever asks for it, in any process."""
        keep(self.workload, self.schedule, self._refuse_unchecked, self.export)

    def _refuse_elsewhere(self) -> None:
        """What runs in this process was made for this machine."""
        if self.workload.machine is None:
            return
        here = self.workload.backend.hardware(self.workload.threads)
        if self.workload.hardware != here:
            there = self.workload.hardware.key
            raise UsageError(f"the kernel is of {there}, this machine is {here.key}: tune it here")

    def _refuse_unchecked(self) -> None:
        """What runs in this process was right on this machine."""
        from explorer.job import run_schedule

        if self.checked:
            return
        outcome = run_schedule(self.workload, self.schedule)
        if not outcome.ok:
            raise NothingValid(
                f"{self.workload.operator}: the recorded kernel is not right here "
                f"({outcome.status}: {outcome.detail}); tune it again"
            )


def _empty(program: Program, given: int, named: Mapping[str, Any]) -> Any:
    """The outputs of a program that has none with an element, as an exported module has them."""
    names = [spec.name for spec in program.inputs]
    missing = [name for name in names[given:] if name not in named]
    if missing or given > len(names):
        wanted = ", ".join(names)
        raise UsageError(f"{program.name} takes {wanted}: {given} arrays are given")
    results = [
        named.get(spec.name, np.empty(spec.shape, numpy_dtype(spec.dtype)))
        for spec in program.outputs
    ]
    return results[0] if len(results) == 1 else tuple(results)
