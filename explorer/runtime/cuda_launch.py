"""Runs of loaded work on a CUDA device, timed by events: one by one, as a graph, kernel by kernel.

A CUDA error spoils the process's context, so a launch that meets one ends the process.
"""

from __future__ import annotations

import os
import statistics
import sys
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from explorer.runtime import cuda

if TYPE_CHECKING:
    from explorer.runtime.cuda import CudaKernel

_GRAPH_BELOW = 2e-4  # seconds: shorter launches are timed as graphs
_GRAPH_RUNS = 24


class Queued(Protocol):
    """Work that a stream can be given."""

    def run(self, stream: int) -> None:
        """Queue it once."""
        ...


class CudaLaunch:
    """Work on each of its operand sets; a call returns seconds of device time.

    `keep` is what must live as long.
    """

    def __init__(self, sets: tuple[tuple[Queued, ...], ...], keep: object) -> None:
        self._sets, self._keep = sets, keep
        self._stream = cuda.cupy().cuda.Stream(non_blocking=True)
        self._events = (cuda.cupy().cuda.Event(), cuda.cupy().cuda.Event())
        self._graph: Any = None
        self._last = 0.0

    def __call__(self, times: int = 1) -> float:
        """Run `times` times, turning through the operand sets if more than once."""
        try:
            return self._timed(times)
        except (RuntimeError, MemoryError) as error:  # of CUDA: they stay, so this process ends
            _die(error)

    def _timed(self, times: int) -> float:
        cuda.cupy().cuda.Device().synchronize()
        if times > 1 and self._short():
            return self._replayed(times)
        return self._run_times(times)

    def _run_times(self, times: int) -> float:
        first, last = self._events
        first.record(self._stream)
        for number in range(times):
            self._run(number)
        last.record(self._stream)
        last.synchronize()
        self._last = cuda.cupy().cuda.get_elapsed_time(first, last) * 1e-3 / times
        return self._last * times

    def _run(self, number: int) -> None:
        """Queue a run on one operand set."""
        self._queue(number)

    def _queue(self, number: int) -> None:
        for call in self._sets[number % len(self._sets)]:
            call.run(self._stream.ptr)

    def _short(self) -> bool:
        """Whether a run is so short that the host's time for launching it would count."""
        return self._last < _GRAPH_BELOW

    def _captured(self, numbers: range) -> Any:
        """A graph of runs on those operand sets, launched once."""
        self._stream.begin_capture()
        for number in numbers:
            self._queue(number)
        graph = self._stream.end_capture()
        graph.upload(self._stream)
        graph.launch(self._stream)
        return graph

    def _replayed(self, times: int) -> float:
        """By a captured graph, so that the host's time between launches does not count."""
        if self._graph is None:
            self._graph = self._captured(range(_GRAPH_RUNS))
        first, last = self._events
        rounds = -(-times // _GRAPH_RUNS)
        first.record(self._stream)
        for _ in range(rounds):
            self._graph.launch(self._stream)
        last.record(self._stream)
        last.synchronize()
        seconds: float = cuda.cupy().cuda.get_elapsed_time(first, last) * 1e-3
        return seconds / (rounds * _GRAPH_RUNS) * times


class KernelLaunch(CudaLaunch):
    """The kernels of one run, in order, on each of its operand sets."""

    def __init__(self, sets: tuple[tuple[Queued, ...], ...], kernel: CudaKernel) -> None:
        super().__init__(sets, kernel)
        self._names = [part["name"] for part in kernel.plan["kernels"]]

    def parts(self, turns: int) -> tuple[tuple[str, float], ...]:
        """See `explorer.runtime.base.HasParts`: by events between the kernels of runs in turns,
        behind a run that keeps the device busy while the host queues them."""
        if len(self._names) < 2:
            return ()
        try:
            return self._parts(turns)
        except RuntimeError as error:
            _die(error)

    def _parts(self, turns: int) -> tuple[tuple[str, float], ...]:
        marks = [cuda.cupy().cuda.Event() for _ in range(len(self._names) + 1)]
        found: list[list[float]] = [[] for _ in self._names]
        for turn in range(turns):
            self._queue(turn)
            marks[0].record(self._stream)
            for call, mark in zip(self._sets[turn % len(self._sets)], marks[1:], strict=True):
                call.run(self._stream.ptr)
                mark.record(self._stream)
            marks[-1].synchronize()
            for seconds, first, last in zip(found, marks, marks[1:], strict=False):
                seconds.append(cuda.cupy().cuda.get_elapsed_time(first, last) * 1e-3)
        return tuple(zip(self._names, map(statistics.median, found), strict=True))


def _die(error: Exception) -> NoReturn:
    """A CUDA error spoils the context: leave the process, so that a fresh one takes over."""
    print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    os._exit(1)
