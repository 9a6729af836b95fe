"""Ctrl-C: the first one ends a search in order, a second one ends the process at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from explorer.cli import EXIT_INTERRUPTED

_SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def second_one_quits() -> Iterator[None]:
    """KeyboardInterrupt for the first SIGINT within; the second one ends the process.

    What was acknowledged is committed already, and worker processes end with their parent, so
    there is nothing to put in order.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before = signal.signal(signal.SIGINT, _first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _first(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, _second)
    raise KeyboardInterrupt


def _second(number: int, frame: FrameType | None) -> None:
    cursor = _SHOW_CURSOR if sys.stdout.isatty() else ""
    os.write(2, f"{cursor}tilewright: interrupted twice; what was measured is kept\n".encode())
    os._exit(EXIT_INTERRUPTED)
