"""A workload: an operator with its arguments on a target. Builds programs, spaces and kernels.

Knows nothing of searching, measuring or records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ir.errors import TilewrightError, UsageError
from ir.kernel import Kernel
from ir.printable import shortened
from ir.program import Program
from ir.registry import checked_arguments
from ir.schedule import Schedule
from ir.sources import OperatorLike, build, find_source, lasting_name
from ir.target import Backend, Hardware, KnowsMachines, OffersMemories, get_backend
from records import MEMORIES

if TYPE_CHECKING:
    from ir.space import Space

_COPIES = 4  # two sets of operands, the oracle's result, and what is timed


@dataclass(frozen=True)
class Workload:
    """`operator` is a name or `file.py:name`; `arguments` its extents and options, converted.

    `machine` stands for the hardware of this host where records of another one are read. `given`
    is the program itself, where records carry it or no other process could find its operator by
    the name: then no operator is looked up. `memory` is what the operands lie in (`memories_of`).
    """

    operator: str
    arguments: tuple[tuple[str, Any], ...]
    target: str = "cpu"
    threads: int | None = None
    machine: Hardware | None = None
    given: Program | None = None
    memory: str = ""  # becomes the target's first kind

    def __post_init__(self) -> None:
        if not self.memory:
            object.__setattr__(self, "memory", memories_of(self.target)[0])

    @classmethod
    def of(
        cls,
        operator: OperatorLike,
        arguments: Mapping[str, object],
        target: str = "cpu",
        threads: int | None = None,
        memory: str | None = None,
    ) -> Workload:
        """A workload whose program is built; raises UsageError for a wrong name or value."""
        _refuse_memory(target, memory)
        source, lasting = find_source(operator), lasting_name(operator)
        checked = checked_arguments(source, arguments)
        program = build(source, checked, lasting or "")
        told = checked or (dict(program.extents) if isinstance(operator, Program) else {})
        named = tuple((name, _told(value)) for name, value in told.items())
        lasts = lasting is not None and all(_told(value) is value for value in checked.values())
        given = None if lasts else program
        workload = cls(lasting or program.name, named, target, threads, None, given, memory or "")
        workload.__dict__["program"] = program  # what the property would build again
        if not isinstance(operator, Program):
            workload.__dict__["origin"] = operator, checked
        return workload

    @cached_property
    def origin(self) -> tuple[OperatorLike, Mapping[str, Any]] | None:
        """What it was built of; None where there is nothing but a program."""
        return (self.operator, dict(self.arguments)) if self.given is None else None

    def at(self, extents: Mapping[str, Any]) -> Workload:
        """The same operator at other extents; raises UsageError where nothing builds it there."""
        if self.origin is None:
            raise UsageError(f"{self.operator}: a program alone, which has no other extents")
        operator, arguments = self.origin
        where = (self.target, self.threads, self.memory)
        found = Workload.of(operator, {**arguments, **extents}, *where)
        return found if self.machine is None else found._there(self.machine)

    def on(self, machine: str | None) -> Workload:
        """The same on a machine that the target knows by name; raises UsageError."""
        if machine is None:
            return self
        if not isinstance(self.backend, KnowsMachines):
            raise UsageError(
                f"hardware {machine!r}: target {self.target} knows no machine by name; give none"
            )
        return self._there(self.backend.machine(machine))

    def _there(self, machine: Hardware) -> Workload:
        there = replace(self, machine=machine)
        there.__dict__.update(program=self.program, origin=self.origin)
        return there

    @cached_property
    def program(self) -> Program:
        if self.given is not None:
            return self.given
        return build(find_source(self.operator), dict(self.arguments), self.operator)

    @cached_property
    def backend(self) -> Backend:
        return get_backend(self.target)

    @cached_property
    def hardware(self) -> Hardware:
        return self.machine or self.backend.hardware(self.threads)

    def space(self, pins: Mapping[str, object] | None = None) -> Space:
        """The schedule space, with the program's own pins and then `pins` fixed."""
        space = self.space_on(self.hardware)
        return space.pin({**dict(self.program.pins), **(pins or {})})

    def space_on(self, hardware: Hardware) -> Space:
        """The whole space on a machine; raises UsageError where records' program has none."""
        try:
            return self.backend.space(self.program, hardware)
        except TilewrightError:
            raise
        except Exception as error:
            if self.given is None:
                raise
            said = shortened(repr(error))
            raise UsageError(f"{self.program.name}: no space of this program: {said}") from error

    def kernel(self, schedule: Schedule) -> Kernel:
        """The kernel of a schedule in every language that the target prints."""
        return self.backend.lower(self.program, schedule, self.hardware, full=True)

    def refuse_illegal(self, schedule: Schedule) -> None:
        """Raises UsageError if `schedule` is none of this workload's, or breaks a constraint."""
        refusal = self.backend.space(self.program, self.hardware).refusal(schedule)
        if refusal is not None:
            raise UsageError(f"the schedule is illegal: {refusal}")

    def refuse_unmeasurable(self) -> None:
        """Raises UsageError if there is nothing to compute, or if the operands do not fit this
        machine's memory, checks included."""
        self.program.refuse_void()
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        needed = _COPIES * self.program.bytes
        if needed > there:
            raise UsageError(
                f"{self.program.name}: checking it takes {needed / 2**30:,.0f} GiB, this machine "
                f"has {there / 2**30:,.0f} GiB; choose smaller extents"
            )

    @property
    def placed(self) -> str:
        """What the operands lie in, for people; empty where the target leaves no choice."""
        return f"{self.memory} memory" if len(memories_of(self.target)) > 1 else ""

    @property
    def extents_json(self) -> str:
        """The arguments as they are recorded."""
        return json.dumps(dict(self.arguments), sort_keys=True)


def memories_of(target: str) -> tuple[str, ...]:
    """The kinds of memory in which a target's operands may lie, the usual one first.

    A target without a choice has what records call the first of their kinds.
    """
    try:
        backend = get_backend(target)
    except UsageError:  # records tell of targets that are not installed
        return MEMORIES[:1]
    return backend.memories if isinstance(backend, OffersMemories) else MEMORIES[:1]


def _refuse_memory(target: str, memory: str | None) -> None:
    offered = memories_of(target)
    if memory is None or memory in offered:
        return
    if len(offered) == 1:
        raise UsageError(f"memory {memory!r}: target {target} has one kind of memory; give none")
    raise UsageError(f"no memory {memory!r}; operands lie in one of {', '.join(offered)}")


def _told(value: object) -> object:
    """An argument as it can be written down."""
    if value is None or isinstance(value, str | int | float):
        return value
    return str(getattr(value, "__name__", value))
