"""Exclusive seconds by phase of a program whose functions are wrapped; knows nothing of search."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Part = tuple[Any, str, str]  # a class, the name of its method, and the phase that it belongs to


class Stopwatch:
    """While a phase runs inside another, the outer one's time stands still. One thread only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside: list[float] = []

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        self._inside.append(0.0)
        try:
            yield
        finally:
            took = time.perf_counter() - began
            self.seconds[name] += took - self._inside.pop()
            if self._inside:
                self._inside[-1] += took

    def timed(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(call)
        def wrapped(*arguments: Any, **named: Any) -> Any:
            with self.phase(name):
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
