"""Which of many alike cases run by default; the others are long: `pytest -m long` runs those."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pytest
from _pytest.mark import MarkDecorator, ParameterSet


def few(
    values: Iterable[object], kept: Collection[int], names: Iterable[str] | None = None
) -> list[ParameterSet]:
    """Parameters of a test, one value each; those whose place is not in `kept` are long."""
    return few_rows([(value,) for value in values], kept, names)


def few_rows(
    rows: Iterable[Sequence[object]], kept: Collection[int], names: Iterable[str] | None = None
) -> list[ParameterSet]:
    """The same of several parameters at once: a row has a value for each."""
    listed = list(rows)
    ids = [None] * len(listed) if names is None else list(names)
    return [
        pytest.param(*row, id=name, marks=_marks(place in kept))
        for place, (row, name) in enumerate(zip(listed, ids, strict=True))
    ]


def by_turns(first: Iterable[object], second: Iterable[object]) -> list[ParameterSet]:
    """Every pair; those are not long that have each of the first, and in turn one of the second."""
    others = list(second)
    return [
        pytest.param(one, other, marks=_marks(place % len(others) == turn))
        for place, one in enumerate(first)
        for turn, other in enumerate(others)
    ]


def draws(some: int, many: int) -> MarkDecorator:
    """Gives a test its `count`: of what it draws some by default, and many if it may be long."""
    return pytest.mark.parametrize("count", [some, pytest.param(many, marks=pytest.mark.long)])


def _marks(kept: bool) -> list[MarkDecorator]:
    return [] if kept else [pytest.mark.long]
