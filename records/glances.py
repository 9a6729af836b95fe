"""Who may be the fastest of a workload: few rows of many, chosen in the database.

Text in SQL that every engine knows, given to its driver: to compile statements takes longer than to
answer them. What is read at a glance is not compared with its hash: whoever relies on a trial reads
its record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from sqlalchemy import Connection, CursorResult, Row

from records.record import MEMORIES
from records.rows import Selection
from records.schema import VERSION, WITH_MEMORY, trials
from records.tellings import Glance, Rules

_COLUMNS = f"SELECT {', '.join(Glance._fields)} FROM trials WHERE "
_GOOD = "FROM trials WHERE {where} AND status = 'ok'"
_FINALS = f"SELECT DISTINCT candidate {_GOOD} AND strategy = {{final}}"
_DAMNED = "SELECT DISTINCT candidate FROM trials WHERE {where} AND status IN {damning}"
# Each by a search of the index from the one before, however many trials there are of it.
_STRATEGIES = f"""WITH RECURSIVE kinds(name) AS (
    SELECT MIN(strategy) {_GOOD}
    UNION ALL
    SELECT (SELECT MIN(strategy) {_GOOD} AND strategy > kinds.name) FROM kinds
    WHERE kinds.name IS NOT NULL
) SELECT name FROM kinds WHERE name IS NOT NULL"""
_FASTER = f"""SELECT seconds, candidate {_GOOD} AND strategy = {{strategy}} AND seconds < {{limit}}
    ORDER BY seconds LIMIT {{most}}"""
_NAMED = f"{_COLUMNS}candidate IN {{names}}"
_MANY = 500  # candidates that a query names
_SOME, _ALL = 64, 1 << 62  # of the fastest trials in searches
_ENDLESS = 1e300  # seconds; not every engine takes an infinite number


def contenders(
    connection: Connection, selection: Selection, rules: Rules, version: int = VERSION
) -> list[Glance]:
    """All trials of the candidates of which one is best: of the finalists, and of those that were
    once faster than all trials of a finalist in the search. Oldest first."""
    ask = _Asking(connection, selection, version)
    damned = ask.names(_DAMNED, damning=rules.damning)
    finalists = ask.names(_FINALS, final=rules.final) - damned
    found = _named(ask, finalists)
    limit = min([_ENDLESS, *_searched(found, rules, max)])
    searches = sorted(ask.names(_STRATEGIES) - {rules.final, *rules.others})
    for most in (_SOME, _ALL):
        fast = _fastest(ask, searches, limit, most)
        late = _named(ask, set(fast) - damned - finalists)
        if len(fast) < most or _settled(late, rules):
            break
    return sorted(found + late)


def _fastest(ask: _Asking, searches: Sequence[str], limit: float, most: int) -> list[str]:
    """The candidates of the fastest trials of these strategies, one for each trial."""
    found = [
        (row.seconds, row.candidate)
        for strategy in searches
        for row in ask.rows(_FASTER, strategy=strategy, limit=limit, most=most)
    ]
    return [candidate for _, candidate in sorted(found)[:most]]


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


def _named(ask: _Asking, candidates: set[str]) -> list[Glance]:
    """All trials of these candidates, each of which says of what workload and machine it is."""
    names, found = sorted(candidates), []
    for start in range(0, len(names), _MANY):
        rows = ask.rows(_NAMED, names=names[start : start + _MANY])
        found += [Glance._make(row) for row in rows]
    return found


class _Asking:
    """Puts questions about the trials of a selection, with values by name, as the driver of the
    connection wants them."""

    def __init__(
        self, connection: Connection, selection: Mapping[str, Any], version: int = VERSION
    ) -> None:
        self._connection = connection
        self._mark = "%({})s" if connection.dialect.paramstyle == "pyformat" else ":{}"
        self._values = dict(selection)
        terms = (f"{_column(name, version)} = {self._mark.format(name)}" for name in selection)
        self._where = " AND ".join(terms)

    def rows(self, query: str, **more: object) -> CursorResult[Any]:
        """What a query gives, in which `{name}` stands for a value, or for a list of them."""
        values, marks = dict(self._values), {"where": self._where}
        for name, value in more.items():
            named = {name: value}
            if isinstance(value, list | tuple):
                named = {f"{name}_{number}": one for number, one in enumerate(value)}
            told = ", ".join(map(self._mark.format, named))
            marks[name] = told if name in named else f"({told})"
            values |= named
        return self._connection.exec_driver_sql(query.format(**marks), values)

    def names(self, query: str, **more: object) -> set[str]:
        """The one column that a query gives."""
        return {row[0] for row in self.rows(query, **more)}


def _column(name: str, version: int) -> str:
    """A column of the trials, or what stands for it in tables of a version that lacked it."""
    if name == "memory" and version < WITH_MEMORY:
        return f"'{MEMORIES[0]}'"
    return f"trials.{trials.c[name].name}"


def numbered(connection: Connection, number: int, version: int = VERSION) -> Row[tuple[object]]:
    """The row of a trial, as `rows.to_record` takes it."""
    columns = (f"{_column(column.name, version)} AS {column.name}" for column in trials.columns)
    query = f"SELECT {', '.join(columns)}, facts.text AS hardware_facts FROM trials "
    query += "LEFT OUTER JOIN facts ON facts.key = trials.facts WHERE trials.number = {number}"
    return _Asking(connection, {}, version).rows(query, number=number).one()
