"""Analytic costs of plain kernels: how many threads go along how many iterations, and traffic."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from ir.columns import Columns
from ir.plain.accesses import every
from ir.plain.code import Accumulate, Loop, Spread
from ir.targets.cuda.plain import RUN, THREADS, PlainCudaKernel

Array = NDArray[np.float64]
Table = dict[str, Array]
LANES_PER_CLOCK = 128.0
MEMORY_BYTES_PER_CLOCK = 20.0  # a processor's share
FILL_CLOCKS = 1500.0
STEP_CLOCKS = 40.0  # of an iteration that waits for the one before
MEET_CLOCKS = 300.0  # of a chunk's shuffles and its meeting
THREADS_PER_PROCESSOR = 2048.0


class PlainCosts:
    """Costs of one plain kernel."""

    def __init__(self, kernel: PlainCudaKernel) -> None:
        self.kernel, self.program, self.hardware = kernel, kernel.program, kernel.hardware

    def table(self, columns: Columns) -> Table:
        """Features of the kernel, and under "clocks" and "traffic" estimates of its time."""
        kernel, sms = self.kernel, float(self.hardware["sms"])
        threads = np.asarray(columns[kernel.name(THREADS)], dtype=np.float64)
        grouped = np.asarray(kernel.grouped(columns), dtype=bool)
        run = np.ones(columns.rows)
        if kernel.name(RUN) in columns:
            run = np.asarray(columns[kernel.name(RUN)], dtype=np.float64)
        blocks = np.where(grouped, kernel.points, np.ceil(kernel.points / threads))
        resident = np.clip(np.floor(THREADS_PER_PROCESSOR / threads), 1.0, 32.0)
        waves = blocks / resident / sms
        trips = self._trips(threads * run, grouped)
        busy = np.minimum(blocks * threads / (1024.0 * sms), 1.0)
        traffic = np.full(columns.rows, self.program.bytes / MEMORY_BYTES_PER_CLOCK / sms)
        work = self.program.flops / LANES_PER_CLOCK / sms / busy
        steps = np.ceil(waves) * trips * np.where(grouped, MEET_CLOCKS + run, STEP_CLOCKS)
        clocks = np.maximum(np.maximum(traffic / busy, work), steps) + FILL_CLOCKS
        return {
            "threads": np.log2(threads), "blocks": np.log2(blocks), "trips": np.log2(trips),
            "resident": resident, "waves": np.log2(waves), "busy": busy, "reduced.own": run,
            "clocks": clocks, "traffic": traffic,
        }  # fmt: skip

    def _trips(self, chunk: Array, grouped: NDArray[np.bool_]) -> Array:
        """Iterations, or chunks of them, one after the other."""
        found = np.ones(len(chunk))
        shared = {id(fold) for fold in self.kernel.folds}
        for statement in every(self.kernel.plain.body):
            if isinstance(statement, Loop | Accumulate):
                together = grouped if id(statement) in shared else np.zeros_like(grouped)
                long = np.full(len(chunk), float(statement.extent))
                found = found + np.where(together, np.ceil(long / chunk), long)
            elif isinstance(statement, Spread):
                total = float(prod(extent for _, extent in statement.variables))
                found = found + np.where(grouped, np.ceil(total / chunk), total)
        return np.asarray(found, dtype=np.float64)
