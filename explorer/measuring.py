"""What a search needs of whoever gives outcomes: a machine, or records in its place.

Knows outcomes and schedules; nothing of how they are come by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from explorer.baseline import Baseline
from explorer.outcome import Outcome
from explorer.runtime.base import get_runtime
from explorer.runtime.known import RUNTIMES
from ir.schedule import Schedule

if TYPE_CHECKING:
    from explorer.plan import Plan
    from explorer.workload import Workload


class Measuring(Protocol):
    """What a search needs of whoever gives outcomes: `Measurer` here, records in `replay`.

    `best` (seconds) and `kernels` (outcomes by kernel) are what was known before, `depth` how many
    groups of `begin` are best under way at a time, each for so many devices as measure `abreast`.
    """

    depth: int
    abreast: int
    best: float | None
    kernels: dict[str, Outcome]

    @property
    def baseline(self) -> Baseline | None:
        """What is known of the library's time; None as long as it was not asked for."""
        ...

    @property
    def examined(self) -> tuple[float, ...]:
        """Seconds in which each device had a candidate; nothing where there is none."""
        ...

    def bounded_by(self, peaks: Mapping[str, Any]) -> None:
        """Take no time for true that a machine with these peaks cannot reach."""
        ...

    def begin(self, schedules: Sequence[Schedule]) -> None:
        """Have these measured, behind what is under way; does not wait."""
        ...

    def ended(self, alarm: int | None = None) -> tuple[Schedule, Outcome] | None:
        """The next outcome, of whichever schedule has one first; None when none is under way.

        `alarm` is a descriptor of somebody who works beside: when it can be read, or what is under
        way has to wait for that work to end, None is given as well.
        """
        ...

    def forget(self) -> None:
        """Give no outcome of what is under way."""
        ...

    def compete(
        self, schedules: Sequence[Schedule], rounds: int, library: bool = False
    ) -> list[Outcome]:
        """Outcomes of finalists; with `library` the baseline takes turns with them."""
        ...

    def rest(self) -> None:
        """Give back the device until the next call."""
        ...

    def close(self) -> None:
        """Let go of what was started."""
        ...


@runtime_checkable
class KeepsBinaries(Protocol):
    """What whoever compiles may tell besides: where the code of kernels is, by their keys."""

    binaries: Mapping[str, str]


class Machines(Protocol):
    """Other machines that measure in the place of this one; a workload is on one kind of them.

    `hardware` is the key of a kind, None for whichever there is. All raise NoFarm where there is
    no machine of the kind.
    """

    def placed(self, plan: Plan) -> Plan:
        """The plan with a job for each kind of machines."""
        ...

    def on(self, workload: Workload, hardware: str | None) -> Workload:
        """The workload on machines of a kind."""
        ...

    def measurer(self, workload: Workload, seed: int, library: bool) -> Measuring:
        """What a search on a workload of `on` measures with."""
        ...

    def peaks(self, workload: Workload) -> Mapping[str, float]:
        """What a machine of its kind can do at most, as measured; empty where that is unknown."""
        ...


def depth_of(runtime: str, devices: int = 1) -> int:
    """How many groups are best under way: one is measured while the next is chosen; beside a
    device that computes by itself, others are compiled, which takes longer. Of several devices none
    has to wait for the slowest candidate of a group."""
    known = runtime in RUNTIMES or ":" in runtime
    if known and get_runtime(runtime).exclusive:
        return 2
    return 4 if devices == 1 else 6
