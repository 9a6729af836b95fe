"""Who may be the fastest of a workload: few rows of many, chosen in the database.

Text in SQL that every engine knows: to compile statements takes longer than to answer them. What
is read at a glance is not compared with its hash: whoever relies on a trial reads its record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from sqlalchemy import BindParameter, Connection, CursorResult, Row, bindparam, text

from records.record import MEMORIES
from records.rows import Selection
from records.schema import VERSION, WITH_MEMORY, trials
from records.tellings import Glance, Rules

_COLUMNS = f"SELECT {', '.join(Glance._fields)} FROM trials WHERE "
_FINALS = "SELECT DISTINCT candidate FROM trials WHERE {} AND status = 'ok'"
_FINALS += " AND strategy = :final"
_DAMNED = "SELECT DISTINCT candidate FROM trials WHERE {} AND status IN :damning"
_FASTER = """SELECT candidate, MIN(seconds) AS least FROM trials WHERE {} AND status = 'ok'
    AND strategy <> :final AND strategy NOT IN :others AND seconds < :limit
    GROUP BY candidate ORDER BY least LIMIT :most"""
_NAMED = _COLUMNS + "candidate IN :names"
_MANY = 500  # candidates that a query names
_SOME, _ALL = 64, 1 << 62  # of the fastest candidates in searches
_ENDLESS = 1e300  # seconds; not every engine takes an infinite number


def contenders(
    connection: Connection, selection: Selection, rules: Rules, version: int = VERSION
) -> list[Glance]:
    """All trials of the candidates of which one is best: of the finalists, and of those that were
    once faster than all trials of a finalist in the search. Oldest first."""
    where = _selected(selection, version)
    values = dict(selection) | {"final": rules.final, "most": _SOME}
    damning, others = {"damning": rules.damning}, {"others": rules.others}
    damned = _candidates(connection, _DAMNED.format(where), values, **damning)
    finalists = _candidates(connection, _FINALS.format(where), values) - damned
    found = _named(connection, finalists)
    values["limit"] = min([_ENDLESS, *_searched(found, rules, max)])
    for values["most"] in (_SOME, _ALL):
        fast = _candidates(connection, _FASTER.format(where), values, **others)
        late = _named(connection, fast - damned - finalists)
        if len(fast) < _SOME or _settled(late, rules):
            break
    return sorted(found + late)


def _settled(trials: Sequence[Glance], rules: Rules) -> bool:
    """Whether the median of one, which lost no heat, is less than the least time of another: than
    all times of those that are not among these."""
    lost = {trial.candidate for trial in trials if trial.strategy in rules.others}
    rest = [trial for trial in trials if trial.candidate not in lost]
    least = max(_searched(trials, rules, min), default=0.0)
    return any(middle < least for middle in _searched(rest, rules, median))


def _searched(
    trials: Iterable[Glance], rules: Rules, of: Callable[[list[float]], float]
) -> list[float]:
    """One number for the times of each candidate in searches."""
    times: dict[str, list[float]] = {}
    for trial in trials:
        if trial.ok and trial.strategy != rules.final and trial.strategy not in rules.others:
            times.setdefault(trial.candidate, []).append(trial.seconds or 0.0)
    return [of(found) for found in times.values()]


def _named(connection: Connection, candidates: set[str]) -> list[Glance]:
    """All trials of these candidates, each of which says of what workload and machine it is."""
    names, found = sorted(candidates), []
    for start in range(0, len(names), _MANY):
        rows = _rows(connection, _NAMED, {}, names=names[start : start + _MANY])
        found += [Glance._make(row) for row in rows]
    return found


def _candidates(
    connection: Connection, query: str, values: Mapping[str, object], **lists: Sequence[str]
) -> set[str]:
    return {row.candidate for row in _rows(connection, query, values, **lists)}


def _rows(
    connection: Connection, query: str, values: Mapping[str, object], **lists: Sequence[str]
) -> CursorResult[Any]:
    """What a query gives, whose `IN :name` are of `lists`."""
    bound: list[BindParameter[Any]] = [
        bindparam(name, tuple(some), expanding=True) for name, some in lists.items()
    ]
    return connection.execute(text(query).bindparams(*bound), values)


def numbered(connection: Connection, number: int, version: int = VERSION) -> Row[tuple[object]]:
    """The row of a trial, as `rows.to_record` takes it."""
    names = [column.name for column in trials.columns]
    columns = ", ".join(
        f"'{MEMORIES[0]}' AS memory"
        if name == "memory" and version < WITH_MEMORY
        else f"trials.{name}"
        for name in names
    )
    query = f"SELECT {columns}, facts.text AS hardware_facts FROM trials "
    query += "LEFT OUTER JOIN facts ON facts.key = trials.facts WHERE trials.number = :number"
    return connection.execute(text(query), {"number": number}).one()


def _selected(selection: Mapping[str, object], version: int) -> str:
    """Conditions on columns, whose values are bound under their names."""
    terms = []
    for name in selection:
        if name == "memory" and version < WITH_MEMORY:
            terms.append(f"'{MEMORIES[0]}' = :memory")
        else:
            terms.append(f"{trials.c[name].name} = :{name}")
    return " AND ".join(terms)
