"""Learning what is right of a program, before its kernels can be judged.

A device that finds out by itself is given the recipe, and its library's kernels are compiled ahead;
elsewhere a process asks the oracle. Knows worker processes and recipes; no schedules.
"""

from __future__ import annotations

import os
from pathlib import Path

from explorer.errors import Uncheckable, WorkerError
from explorer.expectation import Expectation, Recipe
from explorer.rehearsal import rehearse
from explorer.runtime.base import get_runtime
from explorer.runtime.process import Answer, ProcessServer, Reply, Worker
from explorer.stages import detail_of, is_uncheckable

_ORACLE_DEADLINE = 900.0
_MAKER = "explorer.expectation:ExpectationMaker"


class Learning:
    """`source` is what devices judge by, None until it is known; `apart` says whether they find
    out themselves. `folder` takes what the oracle leaves for them."""

    def __init__(self, server: ProcessServer, runtime: str, recipe: Recipe, folder: str) -> None:
        self._server, self._runtime, self._recipe = server, runtime, recipe
        self._folder = folder
        self.apart = get_runtime(runtime).apart
        self.source: Expectation | Recipe | None = recipe if self.apart else None
        self._maker: Worker | None = None
        self._rehearsal: tuple[Worker, ...] = ()

    def begin(self, cache_dir: Path) -> None:
        """Compile ahead what devices find out with, or have a process here ask the oracle."""
        if self.apart:
            kept = get_runtime(self._runtime).compiled_arrays(cache_dir)
            self._rehearsal = rehearse(
                self._server, self._runtime, self._recipe, kept, cores_here()
            )
            return
        self._maker = Worker(self._server, _MAKER, self._recipe, self._folder)
        self._maker.post(_ORACLE_DEADLINE, "make")

    @property
    def pending(self) -> Worker | None:
        """Who is at it, as long as nothing is known."""
        return self._maker if self.source is None else None

    @property
    def workers(self) -> tuple[Worker, ...]:
        """All processes that were started."""
        return (*(() if self._maker is None else (self._maker,)), *self._rehearsal)

    def hear(self, reply: Reply) -> None:
        """What is right, as the oracle said; raises Uncheckable or WorkerError."""
        assert self._maker is not None
        self._maker.close()
        if is_uncheckable(reply):
            raise Uncheckable(reply.message)
        if not isinstance(reply, Answer):
            name = self._recipe.program.name
            raise WorkerError(f"{name}: the oracle failed: {detail_of(reply)}")
        self.source = reply.value


def cores_here() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
