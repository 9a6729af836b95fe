"""Exclusive seconds by phase, of a program whose functions are wrapped; knows nothing of search."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Phase = str | Callable[[Any], str]  # or what tells it of the object, before the call
Part = tuple[Any, str, Phase]  # a class, the name of its method, and the phase that it belongs to


class Stopwatch:
    """While a phase runs inside another, the outer one's time stands still. One thread only.

    `seconds` are of the clock on the wall, `processor` those that this thread had a processor.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.processor: dict[str, float] = defaultdict(float)
        self._inside: list[list[float]] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began, worked = time.perf_counter(), time.thread_time()
        self._inside.append([0.0, 0.0])
        try:
            yield
        finally:
            took = (time.perf_counter() - began, time.thread_time() - worked)
            inner = self._inside.pop()
            self.seconds[name] += took[0] - inner[0]
            self.processor[name] += took[1] - inner[1]
            if self._inside:
                outer = self._inside[-1]
                outer[:] = [outer[0] + took[0], outer[1] + took[1]]

    def timed(self, call: Callable[..., Any], name: Phase) -> Callable[..., Any]:
        @functools.wraps(call)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            with self.phase(name if isinstance(name, str) else name(arguments[0])):
                return call(*arguments, **named)

        return wrapped

    @contextmanager
    def watching(self, parts: Sequence[Part]) -> Iterator[None]:
        """Time these methods until the end of the block."""
        originals = [(owner, method, owner.__dict__[method]) for owner, method, _ in parts]
        try:
            for owner, method, name in parts:
                setattr(owner, method, self.timed(owner.__dict__[method], name))
            yield
        finally:
            for owner, method, original in originals:
                setattr(owner, method, original)
