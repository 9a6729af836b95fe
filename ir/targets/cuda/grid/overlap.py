"""Programmatic dependent launch: a run's kernels start beside those before them in the stream.

Such a kernel is launched and sets itself up while the one before it still runs; it touches memory
only when that one has ended.
"""

from __future__ import annotations

from collections.abc import Mapping

from ir.columns import Decision
from ir.program import Program
from ir.schedule import Value
from ir.target import Hardware
from ir.targets.cuda.text.writer import Writer

NAME = "early"
PREFETCH = "prefetch"


def early_decision(program: Program, hardware: Hardware) -> Decision | None:
    """The decision, where the hardware has the mechanism."""
    if hardware["major"] < 9:
        return None
    why = "starting while the kernel before in the stream still runs"
    return Decision(NAME, (False, True), "pipeline", next(iter(program.axes), ""), why, True)


def starts_early(values: Mapping[str, Value]) -> bool:
    """The choice of a schedule; without one, kernels start when those before them have ended."""
    return bool(values.get(NAME, False))


def await_kernel_before(w: Writer, early: bool) -> None:
    """What comes before a thread's first access to memory.

    Only then may the next kernel start: of kernels that start sooner, several would wait on the
    processors at a time, and leave the blocks of those that run unevenly spread.
    """
    if early:
        w.line("tw_grid_wait();")
        w.line("tw_grid_launch();")
