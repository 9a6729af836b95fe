"""What jobs came to, counted where the trials are: no record is read whole for it.

Knows tables, and nothing of what a search is: whoever asks names the strategies under which it
records what decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from records.schema import trials


@dataclass(frozen=True, slots=True)
class Tally:
    """`trials` of a job's search with the `fastest` right one, and the right ones that `decided`.

    Those are pairs of seconds and notes, in the order of measuring.
    """

    trials: int = 0
    right: int = 0
    fastest: float | None = None
    decided: tuple[tuple[float, Mapping[str, Any]], ...] = ()


def tallies(connection: Connection, apart: Sequence[str], deciding: str) -> dict[str, Tally]:
    """By job: trials not recorded as any of the strategies `apart`; those of `deciding`."""
    decided: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    right = trials.c.status == "ok"
    query = select(trials.c.job, trials.c.seconds, trials.c.notes).order_by(trials.c.number)
    for job, seconds, notes in connection.execute(
        query.where(trials.c.strategy == deciding, right)
    ):
        decided.setdefault(job, []).append((seconds, json.loads(notes)))
    grouped = (
        select(trials.c.job, trials.c.status, func.count(), func.min(trials.c.seconds))
        .where(trials.c.strategy.not_in(apart))
        .group_by(trials.c.job, trials.c.status)
    )
    found = {job: Tally(decided=tuple(rows)) for job, rows in decided.items()}
    for job, status, count, fastest in connection.execute(grouped):
        before, ok = found.get(job, Tally()), status == "ok"
        found[job] = Tally(
            before.trials + count,
            before.right + (count if ok else 0),
            fastest if ok else before.fastest,
            before.decided,
        )
    return found
