"""Answers are kept by which object was asked about."""

from __future__ import annotations

import gc
import weakref

from ir import identity
from ir.identity import by_identity


class Thing:
    """Equal to all of its kind, and hashed alike."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thing)

    def __hash__(self) -> int:
        return 1


def test_equal_objects_are_asked_apart_and_each_once() -> None:
    asked: list[Thing] = []

    @by_identity
    def number(thing: Thing) -> int:
        """How many were asked before."""
        asked.append(thing)
        return len(asked)

    first, second = Thing(), Thing()
    assert [number(first), number(second), number(first)] == [1, 2, 1]
    assert number.__doc__ == "How many were asked before."


def test_what_is_new_is_never_taken_for_what_is_gone() -> None:
    """What is known keeps its objects, so that no other has their place in memory; the oldest are
    let go."""

    @by_identity
    def number(thing: Thing) -> int:
        return id(thing)

    gone = weakref.ref(first := Thing())
    number(first)
    del first
    gc.collect()
    assert gone() is not None
    for _ in range(identity._KEPT + 1):
        one = Thing()
        assert number(one) == id(one)
    gc.collect()
    assert gone() is None
