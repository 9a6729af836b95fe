"""What excludes what among the decisions of plain kernels, by their names. Knows no kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ir.columns import Columns
from ir.schedule import Value
from ir.space import Constraint


def asking(fetch: str, alone: str) -> Constraint:
    """A thread that has a point alone asks for nothing ahead."""

    def check(columns: Columns) -> Any:
        return ~(columns.is_(alone, True) & columns.is_(fetch, True))

    needs = "what is asked for ahead is a block's"
    return Constraint(
        f"{alone} or {fetch}", needs, check, _told(alone, fetch), reads=(alone, fetch)
    )


def turns(fetch: str, steps: str) -> Constraint:
    """Memory is asked for what later turns of a loop read, where turns are several steps."""

    def check(columns: Columns) -> Any:
        return ~columns.is_(fetch, True) | (columns[steps] > 1)

    needs = "what is asked for ahead is for turns of several steps"
    return Constraint(
        f"{steps} or {fetch}", needs, check, _told(fetch, steps), reads=(steps, fetch)
    )


def staging(
    staged: str, steps: str, threads: str, pitches: Mapping[int, int], most: int
) -> Constraint:
    """Rows have room (`most` bytes), and turns words that lanes share out: `pitches` are bytes from
    row to row, a thread each, by the steps of a turn."""

    def check(columns: Columns) -> Any:
        taken = columns.lookup(steps, pitches) * columns[threads]
        return ~columns.is_(staged, True) | (taken <= most)

    needs = "rows in shared memory are of turns whose words lanes share, and have room"
    names = (staged, steps, threads)
    return Constraint(staged, needs, check, _told(*names), reads=names)


def _told(*names: str) -> Any:
    def explain(values: Mapping[str, Value]) -> str:
        return " with ".join(f"{name}={values[name]}" for name in names)

    return explain
