"""What excludes what among the decisions of plain kernels, by their names. Knows no kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

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


def not_both(beside: str, share: str) -> Constraint:
    """Points beside each other are of one block, whose lanes have one sum each."""

    def check(columns: Columns) -> Any:
        return (columns[beside] == 1) | (columns[share] == 1)

    names = (beside, share)
    needs = f"{beside} or {share}, not both"
    return Constraint(f"{beside} or {share}", needs, check, _told(*names), reads=names)


def teams_beside(team: str, beside: str, teams: Mapping[int, tuple[int, ...]]) -> Constraint:
    """Blocks that share points beside each other: `teams` by how many these are."""

    def check(columns: Columns) -> Any:
        fine = [
            (columns[beside] == count) & columns.among(team, list(own))
            for count, own in teams.items()
        ]
        return np.logical_or.reduce(fine)

    names = (team, beside)
    needs = "as many blocks as the steps of points beside each other are worth"
    return Constraint(f"{team} or {beside}", needs, check, _told(*names), reads=names)


def all_run(team: str, threads: str, beside: str, points: int, most: int) -> Constraint:
    """Blocks that wait for each other all have to run at a time: `most` threads do. `beside` is
    empty where each point is by itself."""

    def check(columns: Columns) -> Any:
        each = points // columns[beside] if beside else points
        return (columns[team] == 1) | (columns[team] * columns[threads] * each <= most)

    def explain(values: Mapping[str, Value]) -> str:
        each = points // int(values[beside]) if beside else points
        total = each * int(values[team]) * int(values[threads])
        return f"{team}={values[team]} makes {total:,} threads, of which {most:,} run at a time"

    needs = "blocks that wait for each other all run"
    reads = (team, threads, *((beside,) if beside else ()))
    return Constraint(team, needs, check, explain, reads=reads)


def _told(*names: str) -> Any:
    def explain(values: Mapping[str, Value]) -> str:
        return " with ".join(f"{name}={values[name]}" for name in names)

    return explain


def single(alone: str, other: str, stem: str) -> Constraint:
    """A point is one thread's, or several blocks', or beside others of one block."""

    def check(columns: Columns) -> Any:
        return ~columns.is_(alone, True) | (columns[other] == 1)

    def explain(values: Mapping[str, Value]) -> str:
        return f"{alone}={values[alone]} with {other}={values[other]}"

    needs = f"a point that a thread has alone has no {stem}"
    return Constraint(f"{alone} or {other}", needs, check, explain, reads=(alone, other))
