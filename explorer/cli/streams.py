"""The standard streams of the process: closed ones, full ones, and those that nobody reads."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from typing import TextIO

_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EFBIG, errno.EPIPE)


def open_missing() -> bool:
    """Whether there is a standard output.

    A closed descriptor would be the next file's that is opened, so all three are made to exist.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    there = sys.stdout is not None
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 (open as long as the process)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # names of files need not be text in any encoding
            stream.reconfigure(errors="backslashreplace")
    return there


def is_output_error(error: BaseException) -> bool:
    """Whether it is the standard output that could not be written."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT


def discard_output(stream: TextIO | None = None) -> None:
    """What is still to be printed (on standard output) has no reader: let it go, or Python
    complains at its end, with an exit code of its own."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (stream or sys.stdout).fileno())
        os.close(nowhere)


def one_line(text: str) -> str:
    """Text in one line, in which nothing steers a terminal."""
    flat = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in flat)
