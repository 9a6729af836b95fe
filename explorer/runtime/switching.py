"""How long one thread of this process computes before another has its turn.

A thread that does a dozen small things for each trial (a socket, a file, a row of a database) gives
the interpreter away at each of them, and gets it back from a strategy that computes only when that
has had its whole turn. Knows no search.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from explorer.runtime.together import Together

TURN = 5e-4  # seconds; Python's own is ten times as long
_holders = Together()


def short_turns() -> AbstractContextManager[None]:
    """Threads take turns of `TURN`, until the last of those who want that leaves."""
    return _holders.hold(_shortened)


@contextmanager
def _shortened() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(TURN, before))
    yield
    sys.setswitchinterval(before)
