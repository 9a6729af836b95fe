"""Decisions, and the columns of many schedules at once: integer index matrices read by name.

A matrix row holds, for each decision, an index into its domain. Nothing here knows constraints.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.errors import UsageError
from ir.gathered import Matrix as Matrix
from ir.gathered import Rows
from ir.schedule import Value

Mask = NDArray[np.bool_]
Column = NDArray[np.int64]

GROUPS = ("tile", "binding", "layout", "pipeline", "tensorize", "split", "epilogue", "order")
MAX_DOMAIN = 32_767


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice: its domain, the axis, value or stage that owns it, and why it exists.

    With `when`, it is in force only where another decision, which stands before it, is in force and
    has that value; elsewhere it keeps its first value, so that no two rows mean the same.
    `unsaid` is what a schedule means that was written before there was this choice. One that
    `routes` chooses among programs, or among places where values live.
    """

    name: str
    domain: tuple[Value, ...]
    group: str
    owner: str
    why: str
    initial: Value | None = None
    when: tuple[str, Value] | None = None
    unsaid: Value | None = None
    routes: bool = False
    _places: dict[Value, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places = {value: place for place, value in enumerate(self.domain)}
        object.__setattr__(self, "_places", places)
        if not self.domain or len(places) != len(self.domain):
            raise ValueError(f"{self.name}: a domain has at least one value, each once")
        if len(self.domain) > MAX_DOMAIN:
            raise ValueError(f"{self.name}: {len(self.domain)} values; {MAX_DOMAIN} is the limit")
        if any(type(value) not in (int, str, bool) for value in self.domain):
            raise ValueError(f"{self.name}: values are Python integers, strings or booleans")
        if self.group not in GROUPS:
            raise ValueError(f"{self.name}: group {self.group!r} is none of {', '.join(GROUPS)}")
        for what, value in (("initial value", self.initial), ("value unsaid", self.unsaid)):
            if value is not None and value not in self.domain:
                raise ValueError(f"{self.name}: {what} {value!r} is not in the domain")

    @property
    def numeric(self) -> bool:
        return not any(isinstance(value, str) for value in self.domain)

    @property
    def ordered(self) -> bool:
        """Whether a step to the next index is a small change: three or more rising integers."""
        if len(self.domain) < 3 or not self.numeric:
            return False
        values = [int(value) for value in self.domain]
        return values == sorted(values)

    def index(self, value: object) -> int:
        """Where `value` stands in the domain; its text form will do. Raises UsageError."""
        try:
            return self._places[value]  # type: ignore[index]
        except (KeyError, TypeError):  # none of them as it is, or no value at all
            pass
        if isinstance(value, str):
            for position, known in enumerate(self.domain):
                if str(known).lower() == value.lower():
                    return position
        shown = ", ".join(str(known) for known in self.domain)
        raise UsageError(f"{self.name}: {value!r} is not in its domain: {shown}")


class Columns(Mapping[str, Column]):
    """Values of each decision over the rows of a matrix, gathered when first asked for.

    `columns[name]` is int64 (booleans as 0 and 1). Decisions over strings are read by
    `codes(name)` and `is_(name, value)`, since comparing a code with a string would be silently
    false. `asked` collects the names of the decisions read so far.
    """

    __slots__ = ("_cache", "_derived", "_parts", "_rows", "_tables", "asked", "rows")

    def __init__(
        self, tables: Tables, matrix: Matrix | Rows, asked: set[str] | None = None
    ) -> None:
        self._tables = tables
        self._rows = matrix if isinstance(matrix, Rows) else Rows(matrix)
        self.rows = self._rows.count
        self._cache: dict[str, Column] = {}
        self._parts: dict[str, Columns] = {}
        self._derived: dict[Hashable, Any] = {}
        self.asked: set[str] = set() if asked is None else asked

    @property
    def matrix(self) -> Matrix:
        """The rows themselves, as indices into the domains."""
        return self._rows.whole()

    def __getitem__(self, name: str) -> Column:
        column = self._cache.get(name)
        if column is not None:
            return column
        table = self._table(name)
        if table.values is None:
            raise TypeError(f"{name} is over strings: use codes({name!r}) or is_({name!r}, value)")
        column = table.values[self._rows.column(table.position)]
        column.flags.writeable = False
        self._cache[name] = column
        return column

    def matrix_of(self, names: Sequence[str]) -> Matrix:
        """Indices into the domains of some decisions."""
        return self._rows.columns([self._table(name).position for name in names])

    def codes(self, name: str) -> Matrix:
        """Indices into the decision's domain."""
        return self._rows.column(self._table(name).position)

    def is_(self, name: str, value: Value) -> Mask:
        """Where the decision has this value; nowhere if its domain lacks it."""
        table = self._table(name)
        code = table.codes.get(value, -1)
        return np.asarray(self._rows.column(table.position) == code)

    def among(self, name: str, values: Sequence[Value]) -> Mask:
        """Where the decision has one of these values."""
        table = self._table(name)
        wanted = np.zeros(table.size, dtype=np.bool_)
        wanted[[table.codes[value] for value in values if value in table.codes]] = True
        return wanted[self._rows.column(table.position)]

    def lookup(self, name: str, by_value: Mapping[Any, float]) -> NDArray[np.float64]:
        """A number for each row by a table over the decision's values (0 where it has none)."""
        table = self._table(name)
        numbers = np.zeros(table.size, dtype=np.float64)
        for value, code in table.codes.items():
            numbers[code] = by_value.get(value, 0.0)
        return numbers[self._rows.column(table.position)]

    def derived(self, key: Hashable, compute: Callable[[Columns], Any]) -> Any:
        """What `compute` makes of these columns, once for each key: rules share many sizes."""
        if key not in self._derived:
            self._derived[key] = compute(self)
        return self._derived[key]

    def where(self, rows: Mask | NDArray[np.intp]) -> Columns:
        """The rows that a mask picks, or those with these numbers."""
        return Columns(self._tables, self._rows.picked(rows))

    def part(self, prefix: str) -> Columns:
        """The decisions whose names begin with `prefix`, by what follows it."""
        if prefix not in self._parts:
            own = self._tables.part(prefix)
            self._parts[prefix] = type(self)(own, self._rows, self.asked)
        return self._parts[prefix]

    def _table(self, name: str) -> Table:
        table = self._tables[name]
        self.asked.add(table.name)
        return table

    def __contains__(self, name: object) -> bool:
        return name in self._tables

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)


class Watched(Columns):
    """Columns of which several rules are asked, one after the other, each of which should tell all
    that it depends on: what is known already is asked for again."""

    __slots__ = ("_behind",)

    def __init__(
        self, tables: Tables, matrix: Matrix | Rows, asked: set[str] | None = None
    ) -> None:
        super().__init__(tables, matrix, asked)
        self._behind: dict[Hashable, frozenset[str]] = {}

    def __getitem__(self, name: str) -> Column:
        self._table(name)
        return super().__getitem__(name)

    def derived(self, key: Hashable, compute: Callable[[Columns], Any]) -> Any:
        if key not in self._derived:
            before = frozenset(self.asked)
            self.asked.clear()
            self._derived[key] = compute(self)
            self._behind[key] = frozenset(self.asked)
            self.asked |= before
        self.asked |= self._behind[key]
        return self._derived[key]


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A decision prepared for gathering: its column, its numbers, the code of each value."""

    name: str
    position: int
    size: int
    values: Column | None
    codes: dict[Value, int]


class Tables(dict[str, Table]):
    """Tables by the names under which they are read: those of the decisions, or of a part."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        super().__init__(tables)
        self._parts: dict[str, Tables] = {"": self}

    def part(self, prefix: str) -> Tables:
        """The tables whose names begin with `prefix`, by what follows it."""
        if prefix not in self._parts:
            own = {n[len(prefix) :]: t for n, t in self.items() if n.startswith(prefix)}
            self._parts[prefix] = Tables(own)
        return self._parts[prefix]

    def filled(
        self, decisions: Sequence[Decision], initial: Matrix, rows: Sequence[Mapping[str, Value]]
    ) -> Matrix:
        """For each row of values by name the `initial` codes, and what it says of the decisions
        that there are."""
        matrix = np.repeat(initial[None, :], len(rows), axis=0)
        for number, row in enumerate(rows):
            places, codes = list[int](), list[int]()
            for name, value in row.items():
                table = self.get(name)
                if table is not None:
                    places.append(table.position)
                    codes.append(decisions[table.position].index(value))
            matrix[number, places] = codes
        return matrix


def columns_of(
    decisions: Sequence[Decision], rows: Iterable[Mapping[str, Value]]
) -> Columns:  # fmt: skip
    """Rows of values by name; a decision that one does not name has its first value."""
    codes = [[d.index(row.get(d.name, d.domain[0])) for d in decisions] for row in rows]
    return Columns(tables_of(decisions), np.array(codes, dtype=np.int16))


def tables_of(decisions: Sequence[Decision]) -> Tables:
    tables = {}
    for position, decision in enumerate(decisions):
        values = np.array(decision.domain, dtype=np.int64) if decision.numeric else None
        codes = {value: code for code, value in enumerate(decision.domain)}
        tables[decision.name] = Table(decision.name, position, len(decision.domain), values, codes)
    return Tables(tables)
