"""What a target's backend is to the rest: hardware facts, a space for any program, a lowering."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ir.errors import UsageError

if TYPE_CHECKING:
    from ir.kernel import Kernel, KernelTable, Standalone
    from ir.kernel.listing import Listing
    from ir.program import Program
    from ir.rewrite.forms import Forms
    from ir.roundoff import Accumulations
    from ir.schedule import Schedule
    from ir.space import Space

Fact = str | int | float | bool | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hardware:
    """Facts of one machine that code generation and records depend on (JSON scalars)."""

    target: str
    name: str
    isa: tuple[str, ...]
    threads: int
    facts: tuple[tuple[str, int | float | str], ...]

    @property
    def key(self) -> str:
        return f"{self.target}:{self.name}:{self.threads}"

    def __getitem__(self, name: str) -> int:
        return int(dict(self.facts)[name])


class Backend(Protocol):
    """One folder under `ir/targets/`."""

    name: str
    generator: str

    def hardware(self, threads: int | None = None) -> Hardware:
        """Facts of this host; raises MissingTarget."""
        ...

    def space(self, program: Program, hardware: Hardware) -> Space:
        """Every decision for `program`, with constraints and seeds."""
        ...

    def lower(
        self, program: Program, schedule: Schedule, hardware: Hardware, full: bool = False
    ) -> Kernel:
        """Generate the kernel, in every language of the target if `full`; raises Refusal."""
        ...

    def standalone(self, kernel: Kernel, symbol: str = "") -> Standalone:
        """What makes a kernel that was lowered in `full` run without Tilewright.

        `symbol` is the entry's name if it is not to be `kernel.symbol`.
        """
        ...


@runtime_checkable
class JoinsKernels(Protocol):
    """What a backend may offer besides: kernels of several extents in one library."""

    def standalone_table(self, table: KernelTable, symbol: str = "") -> Standalone:
        """As `standalone`, of all kernels of a table: its entry takes the extents that choose.

        The kernels are in `texts`, from the first one on, under names of their own.
        """
        ...


@runtime_checkable
class StatesPeaks(Protocol):
    """What a backend may offer besides: what the machine's data sheet says."""

    def peaks(self, hardware: Hardware) -> Mapping[str, float]:
        """Operations a second at most, by type of the factors (`peak_flops.DTYPE`), and what
        `ir.peaks` names."""
        ...


@dataclass(frozen=True, slots=True)
class PeakKernel:
    """A kernel that does one thing as fast as can be, and how much of it in a run: operations, or
    bytes that are read. `name` is that of the rate (`ir.peaks`) which it shows."""

    name: str
    kernel: Kernel
    work: int


@runtime_checkable
class HasPeakKernels(Protocol):
    """What a backend may offer besides: kernels by which its runtime measures the machine."""

    def arithmetic_kernels(self, hardware: Hardware) -> Iterable[PeakKernel]:
        """One for each engine and type of factors."""
        ...

    def reading_kernel(self, hardware: Hardware, share: int) -> PeakKernel:
        """Every thread reads so many bytes of its own."""
        ...


@runtime_checkable
class StatesRoundoff(Protocol):
    """What a backend may offer besides: how its instructions add up products."""

    def accumulations(self, hardware: Hardware) -> Accumulations:
        """For pairs of operand types, where it is not in the accumulator's own arithmetic."""
        ...


@runtime_checkable
class ListsLoops(Protocol):
    """What a backend may offer besides: the main loops of its kernels before they are text."""

    def listings(
        self, program: Program, schedule: Schedule, hardware: Hardware
    ) -> tuple[Listing, ...]:
        """Of every kernel of a schedule, in the order in which they run; raises Refusal."""
        ...


@runtime_checkable
class HasDevices(Protocol):
    """What a backend may offer besides: several devices in one machine, each by its number."""

    def device_names(self) -> tuple[str, ...]:
        """What each visible device is called; raises MissingTarget."""
        ...


@runtime_checkable
class HasForms(Protocol):
    """What a backend may offer besides: equal programs, of which a schedule chooses one."""

    def forms(self, program: Program, hardware: Hardware) -> Forms:
        """The forms of a program by the work they are on a machine, and what is left out."""
        ...


@runtime_checkable
class OffersMemories(Protocol):
    """What a backend may offer besides: kinds of memory in which callers' operands may lie."""

    memories: tuple[str, ...]  # the first one is where they lie unless a workload says otherwise


@runtime_checkable
class KnowsMachines(Protocol):
    """What a backend may offer besides: facts of machines by name, for spaces where none is."""

    machines: tuple[str, ...]

    def machine(self, name: str) -> Hardware:
        """The facts of one; raises UsageError."""
        ...


_BUILTIN: Mapping[str, str] = {
    "cpu": "ir.targets.cpu.backend:CpuBackend",
    "cuda": "ir.targets.cuda.backend:CudaBackend",
}


def target_names() -> tuple[str, ...]:
    """Built-in targets and those registered under the entry point group `tilewright.targets`."""
    return tuple(_registered(entry_points))


@cache
def _registered(installed: Callable[..., Iterable[EntryPoint]]) -> Mapping[str, str]:
    """The places of targets by name. Reading what is installed takes as long as many a kernel."""
    found = {entry.name: entry.value for entry in installed(group="tilewright.targets")}
    return {**_BUILTIN, **found}


def get_backend(name: str) -> Backend:
    """The backend called `name`; raises UsageError with the nearest name."""
    found = _registered(entry_points)
    if name not in found:
        near = difflib.get_close_matches(name, found, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"unknown target {name!r}: known are {', '.join(found)}{hint}")
    module, _, attribute = found[name].partition(":")
    backend: Backend = getattr(import_module(module), attribute)()
    return backend
