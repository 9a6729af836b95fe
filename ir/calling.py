"""Operators called on arrays: by whoever has kernels, which is not this package.

It is named in the entry point group `tilewright.callers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from ir.errors import UsageError

if TYPE_CHECKING:
    from ir.builder import Operator

GROUP = "tilewright.callers"
Caller = Callable[["Operator", tuple[Any, ...], Mapping[str, Any]], Any]


def call_operator(operator: Operator, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """What the operator makes of arrays; raises UsageError where nothing has kernels of it."""
    from ir.builder import Graph
    from ir.tiles import Tile

    if any(isinstance(array, Graph | Tile) for array in arrays):
        raise UsageError(
            f"{operator.name}: called within an operator: it takes arrays; what several operators "
            "are made of belongs in a function without @operator"
        )
    return _caller(entry_points)(operator, arrays, named)


@cache
def _caller(installed: Callable[..., Iterable[EntryPoint]]) -> Caller:
    entry = next(iter(installed(group=GROUP)), None)
    if entry is None:
        raise UsageError(f"nothing here calls operators: no package has an entry point {GROUP}")
    found: Caller = entry.load()
    return found
