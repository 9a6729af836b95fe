"""How long one thread of this process computes before another has its turn.

A thread that does a dozen small things for each trial (a socket, a file, a row of a database) gives
the interpreter away at each of them, and gets it back from a strategy that computes only when that
has had its whole turn. Knows no search.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

TURN = 5e-4  # seconds; Python's own is ten times as long
_lock = threading.Lock()
_holders = 0
_before = 0.0


@contextmanager
def short_turns() -> Iterator[None]:
    """Threads take turns of `TURN`, until the last of those who want that leaves."""
    global _holders, _before
    with _lock:
        if not _holders:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(TURN, _before))
        _holders += 1
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if not _holders:
                sys.setswitchinterval(_before)
