"""Spaces that are made before they are asked for."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

from explorer.shapes.ahead import Ahead
from explorer.shapes.members import Members
from explorer.workload import Workload
from ir.errors import UsageError


def test_a_space_is_made_on_another_thread() -> None:
    made, asked = threading.Event(), list[Any]()

    class Member:
        def space(self, pins: object) -> None:
            asked.append((threading.current_thread() is threading.main_thread(), pins))
            made.set()

    member: Any = lambda _: Member()  # noqa: E731
    with closing(Ahead(Members(member), {"tile.m.0": 8})) as ahead:
        ahead.make((3,))
        assert made.wait(10)
    assert asked == [(False, {"tile.m.0": 8})]


def test_an_error_is_for_whoever_asks_for_the_space() -> None:
    tried = threading.Event()

    def member(point: tuple[int, ...]) -> Workload:
        tried.set()
        raise UsageError("no such member")

    with closing(Ahead(Members(member), {})) as ahead:
        ahead.make((3,))
        assert tried.wait(10)
