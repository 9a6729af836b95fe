"""A switch of the whole process that several want at a time: on for the first, off for the last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager


class Together:
    """Holders of one switch; what `turn` makes is entered by the first and left by the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._turned = ExitStack()

    @contextmanager
    def hold(self, turn: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
        """Have it on meanwhile."""
        with self._lock:
            if not self._holders:
                self._turned.enter_context(turn())
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if not self._holders:
                    self._turned.close()
