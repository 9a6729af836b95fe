"""Solutions as plain data, which is all that the checker knows of them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ir.layout.synthesis import Solution


def as_data(solution: Solution) -> dict[str, Any]:
    """Dicts with the fields' names, lists, strings, numbers, None; a step also has its "kind"."""
    return dict(_plain(solution))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if not hasattr(value, "__dataclass_fields__"):
        return value
    data = {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    kind = getattr(value, "kind", None)
    return {"kind": kind, **data} if kind is not None else data
