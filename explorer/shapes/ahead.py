"""The space of the next member of a family, made while another one is searched.

A search waits for compilers and devices most of its time; a space takes a second or more.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from explorer.shapes.family import Point
from explorer.shapes.members import Members


class Ahead:
    """Spaces of members under `pins`, made on a thread until it is closed."""

    def __init__(self, members: Members, pins: Mapping[str, object]) -> None:
        self._members, self._pins = members, pins
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="space")

    def make(self, point: Point) -> None:
        """Begin with a member's space; whoever asks for it gets it, or the error, as ever."""
        self._thread.submit(lambda: self._members(point).space(self._pins))

    def close(self) -> None:
        """Begin with no more of them; one under way is let be."""
        self._thread.shutdown(wait=False, cancel_futures=True)
