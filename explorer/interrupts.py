"""Ctrl-C: while a process starts it ends at once; then the first one ends a search in order, and
a second one the process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

EXIT_INTERRUPTED = 130
_SOON = 0.01  # seconds
_AGAIN = signal.SIGVTALRM  # an interrupt whose time had not come
_IMPORTING = "<frozen importlib"  # begins the file names of what imports
_waiting = threading.Event()  # the first one, for an import to end
_sent = threading.Event()  # it was sent anew
_SHOW_CURSOR = "\x1b[?25h"


def ends_at_once() -> None:
    """Ctrl-C ends the process with a line; nothing is at stake yet, and imports break off badly."""
    if _is(signal.default_int_handler):
        signal.signal(signal.SIGINT, _end)


def raises_from_now() -> None:
    """Ctrl-C raises KeyboardInterrupt, also where Python would lose it (in a callback).

    Within an import the first one waits for its end: what breaks off leaves modules that are half
    there, and other threads waiting for them.
    """
    if _is(_end):
        sys.unraisablehook = _send_again
        signal.signal(_AGAIN, _raise)
        signal.signal(signal.SIGINT, _raise)


def interrupt_again() -> None:
    """Interrupt this process once more, where the first one may have been lost; it does not count
    as a user's second one."""
    os.kill(os.getpid(), _AGAIN)


def ignored_from_now() -> None:
    """The process ends by itself, in a moment."""
    if _is(_end) or _is(_raise) or _is(signal.default_int_handler):
        signal.signal(_AGAIN, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _is(handler: Callable[..., Any]) -> bool:
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGINT) is handler


def _end(*_: object) -> None:
    os.write(2, b"tilewright: interrupted\n")
    os._exit(EXIT_INTERRUPTED)


def _raise(number: int, frame: FrameType | None) -> None:
    if number == _AGAIN and _sent.is_set():
        _sent.clear()
        if not _waiting.is_set():
            return  # the user's second one was quicker; this would interrupt who tidies up
    first = number == _AGAIN or not _waiting.is_set()
    if first and _imports(frame):
        _send_soon()
    else:
        _waiting.clear()
        raise KeyboardInterrupt


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTING):
            return True
        frame = frame.f_back
    return False


def _send_soon() -> None:
    """Not as SIGINT, which would count as the user's second one."""
    _waiting.set()
    threading.Timer(_SOON, _send).start()


def _send() -> None:
    _sent.set()
    os.kill(os.getpid(), _AGAIN)


def _send_again(lost: Any) -> None:
    """What Python reports for want of a caller: an interrupt is meant for someone."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _send_soon()
    else:
        sys.__unraisablehook__(lost)


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
