"""Ctrl-C: the first one ends a search in order, a second one ends the process at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from explorer.cli import EXIT_INTERRUPTED

_SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def second_one_quits() -> Iterator[None]:
    """KeyboardInterrupt for the first SIGINT within; the second one ends the process.

    A thread counts signals, because the main thread may be held up where Python handles none (a
    locked database). What was acknowledged is committed already, and worker processes end with
    their parent, so there is nothing to put in order.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_count, args=(reading,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)


def _count(reading: int) -> None:
    """End the process at the second SIGINT; end with the other end of the pipe."""
    seen = 0
    while number := os.read(reading, 1):
        seen += number[0] == signal.SIGINT
        if seen == 2:
            _quit()
    os.close(reading)


def _quit() -> None:
    cursor = _SHOW_CURSOR if sys.stdout.isatty() else ""
    os.write(2, f"{cursor}tilewright: interrupted twice; what was measured is kept\n".encode())
    os._exit(EXIT_INTERRUPTED)
