"""A farm as a run sees it: the workloads that its machines make of a plan, and their measurers.

Knows plans, workloads and kinds of workers; Dask by the engine.
"""

from __future__ import annotations

from dataclasses import replace
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from explorer.errors import NoFarm
from explorer.farm.bench import MAKER, Bench
from explorer.farm.engine import Done, Engine, Result, Task
from explorer.farm.kinds import Described, Kind, Survey, Versions
from explorer.farm.measurer import FarmMeasurer
from explorer.farm.worker import PRELOAD, describe
from explorer.measuring import Measuring
from explorer.plan import Plan
from explorer.workload import Workload
from ir.printable import shortened

_PEAKS = 90.0  # seconds for which they are waited for
_SHOWN = 3  # workers named where there are none that would do


class Farm:
    """The workers of the Dask scheduler at `address`; use as a context manager.

    `maker` is what workers make their measurers with. Raises NoFarm where no scheduler answers.
    """

    def __init__(self, address: str, *, maker: str = MAKER) -> None:
        self._engine = Engine(address)
        self._maker = maker
        self._known: dict[tuple[str, int | None], Survey] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the scheduler; it stays, and so do its workers."""
        self._engine.close()

    def survey(self, target: str, threads: int | None = None) -> Survey:
        """The workers that there are now for a target; raises UsageError, NoFarm."""
        ours = Versions.here(target)
        said = self._engine.ask_all(describe, target, threads)
        return Survey.of({address: _words(answer) for address, answer in said.items()}, ours)

    def kinds(self, target: str, threads: int | None = None) -> tuple[Kind, ...]:
        """The kinds of workers as they were first found; raises NoFarm where there is none."""
        if (target, threads) not in self._known:
            found = self.survey(target, threads)
            if not found.kinds:
                raise NoFarm(self._nobody(target, found))
            self._known[target, threads] = found
        return self._known[target, threads].kinds

    def placed(self, plan: Plan) -> Plan:
        """The plan with a job for each kind of workers; its budget is that of all of them, and its
        batches are of one candidate for each that they take at a time, at least."""
        pairs = [(job, kind) for job in plan.jobs for kind in self.kinds(job.target, job.threads)]
        batch = max(plan.budget.batch, *(kind.slots for _, kind in pairs))
        jobs = tuple(replace(job, hardware=kind.key) for job, kind in pairs)
        return replace(plan, jobs=jobs, budget=replace(plan.budget, batch=batch))

    def on(self, workload: Workload, hardware: str | None) -> Workload:
        """The workload on the machine of workers; raises NoFarm where there are none of it."""
        there = replace(workload, machine=self._kind(workload, hardware).hardware)
        there.__dict__["program"] = workload.program
        return there

    def measurer(self, workload: Workload, seed: int, library: bool) -> Measuring:
        """What a search on a workload of `on` measures with."""
        kind = self._kind(workload, workload.hardware.key)
        bench = Bench.of(workload, seed, self._maker)

        def present() -> int:
            now = self.survey(workload.target, workload.threads).kinds
            return sum(len(other.workers) for other in now if other.tag == kind.tag)

        return FarmMeasurer(self._engine, kind, workload, bench, library, present)

    def peaks(self, workload: Workload) -> dict[str, float]:
        """What the machine of a workload's workers can do at most, measured by one of them."""
        kind, replies = self._kind(workload, workload.hardware.key), SimpleQueue[Result]()
        key = f"tilewright-peaks-{uuid4().hex}"
        task = Task(key, (workload.target, kind.hardware), replies.put)
        self._engine.send(kind.tag, "peaks", [task])
        try:
            reply = replies.get(timeout=_PEAKS)
        except Empty:
            self._engine.forget([key])
            return {}
        return reply.value if isinstance(reply, Done) and isinstance(reply.value, dict) else {}

    def _kind(self, workload: Workload, hardware: str | None) -> Kind:
        kinds = self.kinds(workload.target, workload.threads)
        found = [kind for kind in kinds if hardware in (None, kind.key)]
        if not found:
            there = ", ".join(kind.key for kind in kinds)
            raise NoFarm(f"{self._engine.address}: no worker of {hardware}; there are {there}")
        return found[0]

    def _nobody(self, target: str, found: Survey) -> str:
        address = self._engine.address
        if not found.left_out:
            return (
                f"{address}: the scheduler has no workers; start some with `dask worker {address} "
                f"--resources {target}=1 --preload {PRELOAD}`"
            )
        named = "; ".join(f"{worker}: {why}" for worker, why in found.left_out[:_SHOWN])
        more = len(found.left_out) - _SHOWN
        rest = f"; and {more} more" if more > 0 else ""
        return f"{address}: no worker measures target {target}: {named}{rest}"


def _words(answer: Any) -> Described | str:
    """What a worker said of itself, or why it could not."""
    if isinstance(answer, Described):
        return answer
    if isinstance(answer, ModuleNotFoundError):
        return f"it has no such Tilewright as this one: {answer}"
    return shortened(f"{type(answer).__name__}: {answer}")
