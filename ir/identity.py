"""Answers kept by which object was asked about, where to compare equal ones takes long."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

Of = TypeVar("Of")
Answer = TypeVar("Answer")
_KEPT = 1024


class _Same:
    """An object that equals itself alone."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.of is other.of

    def __hash__(self) -> int:
        return id(self.of)


def by_identity(function: Callable[[Of], Answer]) -> Callable[[Of], Answer]:
    """The function, its last answers kept: what it is asked about must not change."""

    @lru_cache(maxsize=_KEPT)
    def known(same: _Same) -> Answer:
        return function(same.of)

    @wraps(function)
    def answered(of: Of) -> Answer:
        return known(_Same(of))

    return answered
