"""Who may be the fastest of a workload: few rows of many, chosen in the database.

Text in SQL that every engine knows: to compile statements takes longer than to answer them. What
is read at a glance is not compared with its hash: whoever relies on a trial reads its record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import BindParameter, Connection, Row, bindparam, text

from records.record import MEMORIES
from records.rows import Selection
from records.schema import VERSION, WITH_MEMORY, trials
from records.tellings import Glance, Rules

_COLUMNS = f"SELECT {', '.join(Glance._fields)} FROM trials WHERE "
_DECIDED = _COLUMNS + "{selected} AND (strategy = :final OR status IN :damning)"
_FASTER = """SELECT DISTINCT candidate FROM trials WHERE {selected} AND status = 'ok'
    AND strategy <> :final AND strategy NOT IN :others AND seconds < :limit"""
_NAMED = _COLUMNS + "candidate IN :names"
_MANY = 500  # candidates that a query names
_ENDLESS = 1e300  # seconds; not every engine takes an infinite number


def contenders(
    connection: Connection, selection: Selection, rules: Rules, version: int = VERSION
) -> list[Glance]:
    """All trials of the candidates of which one is best: of the finalists, and of those that were
    once faster than all trials of a finalist in the search. Oldest first."""
    selected = _selected(selection, version)
    values = dict(selection) | {"final": rules.final}
    decided = _glances(
        connection, _DECIDED.format(selected=selected), values, damning=rules.damning
    )
    damned = {trial.candidate for trial in decided if trial.status in rules.damning}
    finalists = {trial.candidate for trial in decided if trial.ok} - damned
    found = _named(connection, finalists)
    limit = min(_slowest(found, rules), default=math.inf)
    faster = text(_FASTER.format(selected=selected)).bindparams(_several("others", rules.others))
    rows = connection.execute(faster, values | {"limit": min(limit, _ENDLESS)})
    found += _named(connection, {row.candidate for row in rows} - damned - finalists)
    return sorted(found)


def _slowest(trials: Iterable[Glance], rules: Rules) -> Iterable[float]:
    """Of each candidate the longest time in a search."""
    times: dict[str, float] = {}
    for trial in trials:
        if trial.ok and trial.strategy != rules.final and trial.strategy not in rules.others:
            times[trial.candidate] = max(trial.seconds or 0.0, times.get(trial.candidate, 0.0))
    return times.values()


def _named(connection: Connection, candidates: set[str]) -> list[Glance]:
    """All trials of these candidates, each of which says of what workload and machine it is."""
    names, found = sorted(candidates), []
    for start in range(0, len(names), _MANY):
        found += _glances(connection, _NAMED, {}, names=names[start : start + _MANY])
    return found


def _glances(
    connection: Connection, query: str, values: Mapping[str, object], **several: Sequence[str]
) -> list[Glance]:
    bound = [_several(name, found) for name, found in several.items()]
    rows = connection.execute(text(query).bindparams(*bound), values)
    return [Glance._make(row) for row in rows]


def _several(name: str, values: Sequence[str]) -> BindParameter[Sequence[str]]:
    return bindparam(name, tuple(values), expanding=True)


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
