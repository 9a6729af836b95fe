"""A workload: an operator with its arguments on a target. Builds programs, spaces and kernels.

Knows nothing of searching, measuring or records.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ir.errors import TilewrightError, UsageError
from ir.kernel import Kernel
from ir.program import Program
from ir.registry import checked_arguments, load_operator
from ir.schedule import Schedule
from ir.space import Space
from ir.target import Backend, Hardware, get_backend

_COPIES = 3  # two sets of operands and the oracle's result


@dataclass(frozen=True)
class Workload:
    """`operator` is a name or `file.py:name`; `arguments` its extents and options, converted.

    `machine` stands for the hardware of this host where records of another one are read.
    """

    operator: str
    arguments: tuple[tuple[str, Any], ...]
    target: str = "cpu"
    threads: int | None = None
    machine: Hardware | None = None

    @classmethod
    def of(
        cls,
        operator: str,
        arguments: Mapping[str, object],
        target: str = "cpu",
        threads: int | None = None,
    ) -> Workload:
        """A workload whose program is built; raises UsageError for a wrong name or value."""
        checked = checked_arguments(load_operator(operator), arguments)
        workload = cls(operator, tuple(checked.items()), target, threads)
        _ = workload.program
        return workload

    @cached_property
    def program(self) -> Program:
        try:
            return load_operator(self.operator).build(**dict(self.arguments))
        except TilewrightError:
            raise
        except Exception as error:  # an author's function may raise anything
            raise UsageError(f"{self.operator}: {_where(error)}") from error

    @cached_property
    def backend(self) -> Backend:
        return get_backend(self.target)

    @cached_property
    def hardware(self) -> Hardware:
        return self.machine or self.backend.hardware(self.threads)

    def space(self, pins: Mapping[str, object] | None = None) -> Space:
        """The schedule space, with the program's own pins and then `pins` fixed."""
        space = self.backend.space(self.program, self.hardware)
        return space.pin({**dict(self.program.pins), **(pins or {})})

    def kernel(self, schedule: Schedule) -> Kernel:
        """The kernel of a schedule in every language that the target prints."""
        return self.backend.lower(self.program, schedule, self.hardware, full=True)

    def refuse_illegal(self, schedule: Schedule) -> None:
        """Raises UsageError if `schedule` is none of this workload's, or breaks a constraint."""
        refusal = self.backend.space(self.program, self.hardware).refusal(schedule)
        if refusal is not None:
            raise UsageError(f"the schedule is illegal: {refusal}")

    def refuse_unmeasurable(self) -> None:
        """Raises UsageError if the operands do not fit this machine's memory, checks included."""
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        needed = _COPIES * self.program.bytes
        if needed > there:
            raise UsageError(
                f"{self.program.name}: checking it takes {needed / 2**30:,.0f} GiB, this machine "
                f"has {there / 2**30:,.0f} GiB; choose smaller extents"
            )

    @property
    def extents_json(self) -> str:
        """The arguments as they are recorded."""
        return json.dumps(dict(self.arguments), sort_keys=True)


def _where(error: Exception) -> str:
    """The line that raised `error`, and what it said."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    said = f"{type(error).__name__}: {error}".rstrip(": ")
    return f"{frame.filename}, line {frame.lineno}: {said}"
