"""Which of many alike cases run by default; the others are long: `pytest -m long` runs those."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest
from _pytest.mark import ParameterSet


def few(
    values: Iterable[object], kept: Collection[int], names: Iterable[str] | None = None
) -> list[ParameterSet]:
    """Parameters of a test, one value each; those whose place is not in `kept` are long."""
    listed = list(values)
    ids = [None] * len(listed) if names is None else list(names)
    return [
        pytest.param(value, id=name, marks=[] if place in kept else [pytest.mark.long])
        for place, (value, name) in enumerate(zip(listed, ids, strict=True))
    ]
