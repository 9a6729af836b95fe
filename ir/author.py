"""Running what an author wrote: a file of operators, or the function of one.

Whatever it raises becomes one line that says where; a deadline ends what does not end. Knows
neither operators nor programs.
"""

from __future__ import annotations

import signal
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from ir.errors import ProgramError, TilewrightError, UsageError

PATIENCE = 60.0  # seconds; a file may well import a large library
_AGAIN = 0.5  # seconds after which code that swallowed the deadline meets it again
_OWN = str(Path(__file__).parent)
_STDLIB = sysconfig.get_path("stdlib")
_INSTALLED = {"site-packages", "dist-packages"}

Result = TypeVar("Result")


class _Late(BaseException):
    """Not an Exception, so that authors' own handlers let it through."""


def run_author(what: str, action: Callable[[], Result]) -> Result:
    """What `action` returns; raises UsageError, which begins with `what`, for all it raises."""
    try:
        with _deadline(PATIENCE):
            return action()
    except KeyboardInterrupt:
        raise
    except _Late:
        raise UsageError(
            f"{what}: not done after {PATIENCE:g} s; a file of operators only defines them, and an "
            "operator only builds a graph: look for a loop that does not end"
        ) from None
    except UsageError as error:
        place = _authors_place(error)
        if not place or place in str(error):
            raise
        kind = ProgramError if isinstance(error, ProgramError) else UsageError
        raise kind(f"{error} ({place})") from error
    except TilewrightError:
        raise
    except BaseException as error:
        place = _authors_place(error)
        raise UsageError(f"{what}: {said(error)}" + (f" ({place})" if place else "")) from error


def said(error: BaseException) -> str:
    """Kind and message of an error, in one line; its message may itself be broken.

    Without the place that Python puts behind the message of a SyntaxError.
    """
    try:
        message = error.msg if isinstance(error, SyntaxError) else error
        detail = " ".join(str(message).split())
    except Exception:  # noqa: BLE001 (an author's class)
        detail = ""
    kind = type(error).__name__
    return f"{kind}: {detail}" if detail else kind


def _authors_place(error: BaseException) -> str:
    """The innermost line that neither Python, a library nor this package has written; or ''."""
    if isinstance(error, SyntaxError) and error.filename:
        return _place(error.filename, error.lineno)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not (_foreign(Path(frame.filename)) or _made(frame))]
    return _place(own[-1].filename, own[-1].lineno) if own else ""


def _foreign(file: Path) -> bool:
    libraries = file.is_relative_to(_OWN) or file.is_relative_to(_STDLIB)
    return libraries or bool(_INSTALLED & set(file.parts)) or str(file).startswith("<frozen ")


def _made(frame: traceback.FrameSummary) -> bool:
    """Whether Python itself wrote a function, as it does for dataclasses."""
    return frame.filename == "<string>" and frame.name.startswith("__")


def _place(file: str, line: int | None) -> str:
    """As seen from the working folder, where it is below it."""
    with suppress(OSError, ValueError):
        file = str(Path(file).relative_to(Path.cwd()))
    return f"{file}, line {line}"


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raise `_Late` within, in the main thread, unless someone else uses the timer."""
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "setitimer") or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def late(_: int, frame: FrameType | None) -> None:
        if next(times):
            _strike_at_each_line(frame)
        raise _Late

    times, tracing = count(), sys.gettrace()
    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)
        sys.settrace(tracing)


def _strike_at_each_line(frame: FrameType | None) -> None:
    """For code that catches everything: raise again in its handler, which is outside its `try`."""

    def strike(_: FrameType, event: str, __: object) -> Any:
        if event == "line":
            raise _Late
        return strike

    while frame is not None and not _foreign(Path(frame.f_code.co_filename)):
        frame.f_trace = strike
        frame = frame.f_back
    sys.settrace(strike)
