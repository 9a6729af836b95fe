"""A workload: an operator with its arguments on a target. Builds programs, spaces and kernels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ir.kernel import Kernel
from ir.program import Program
from ir.registry import load_operator
from ir.schedule import Schedule
from ir.space import Space
from ir.target import Backend, Hardware, get_backend


@dataclass(frozen=True)
class Workload:
    """`operator` is a name or `file.py:name`; `arguments` its extents and options."""

    operator: str
    arguments: tuple[tuple[str, object], ...]
    target: str = "cpu"
    threads: int | None = None

    @classmethod
    def of(cls, operator: str, arguments: Mapping[str, object], target: str = "cpu",
           threads: int | None = None) -> Workload:
        """A checked workload; raises UsageError for what is wrong with the names or values."""
        workload = cls(operator, tuple(arguments.items()), target, threads)
        _ = workload.program, workload.hardware
        return workload

    @cached_property
    def program(self) -> Program:
        return load_operator(self.operator).build(**dict(self.arguments))

    @cached_property
    def backend(self) -> Backend:
        return get_backend(self.target)

    @cached_property
    def hardware(self) -> Hardware:
        return self.backend.hardware(self.threads)

    def space(self, pins: Mapping[str, object] | None = None) -> Space:
        """The schedule space, with the program's own pins and `pins` fixed."""
        space = self.backend.space(self.program, self.hardware)
        return space.pin({**dict(self.program.pins), **(pins or {})})

    def kernel(self, schedule: Schedule) -> Kernel:
        """The kernel of a schedule in every language that the target prints."""
        return self.backend.lower(self.program, schedule, self.hardware, full=True)

    @property
    def extents_json(self) -> str:
        return json.dumps(dict(self.arguments), sort_keys=True)
