"""The command line: `tilewright VERB ...`. One module per verb; errors become one line and a code.

Exit codes are documented in docs/exit-codes.md.
"""

from __future__ import annotations

import difflib
import gc
import os
import sys
from typing import Any

from explorer.cli.plain import shown_plainly
from explorer.interrupts import EXIT_INTERRUPTED as EXIT_INTERRUPTED

_BLAS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_ALLOCATIONS = 100_000  # between two looks for garbage: imports leave none, and take long enough
EXIT_DONE = 0
EXIT_USAGE = 2
EXIT_NOTHING = 3
EXIT_TARGET = 6
EXIT_LOST = 7
EXIT_STORE = 8


def main() -> None:
    """Entry point of the `tilewright` command."""
    for name in _BLAS:  # of this process, which compares few numbers while others measure
        os.environ.setdefault(name, "1")
    gc.set_threshold(_ALLOCATIONS)
    try:
        from explorer.cli.boot import boot_for
        from explorer.cli.streams import open_missing
        from explorer.interrupts import ends_at_once, ignored_from_now

        ends_at_once()  # until a verb has something to keep
        if open_missing():
            boot_for(sys.argv[1:])
            code = invoke(sys.argv[1:])
        else:
            code = _failed("standard output is closed; /dev/null takes what none reads", EXIT_USAGE)
        ignored_from_now()
    except KeyboardInterrupt:
        code = _failed("interrupted", EXIT_INTERRUPTED)
    sys.exit(code)


@shown_plainly
def invoke(arguments: list[str]) -> int:
    """Run a command line; returns the exit code. Never shows a traceback for a user's mistake."""
    import typer

    from explorer.cli.app import ReaderLeft, app, load
    from explorer.cli.streams import is_output_error

    try:
        _refuse_no_text(arguments)
        load(arguments)
        result = app(args=arguments or ["--help"], prog_name="tilewright", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        return _failed("interrupted; what was measured is kept", EXIT_INTERRUPTED)
    except (BrokenPipeError, ReaderLeft):
        return _reader_left()
    except Exception as error:  # known kinds become a line and a code, others are raised again
        if is_output_error(error):
            return _output_lost(error)
        code = exit_code(error)
        if code is None:
            raise
        return _failed(_message(error), code)
    return result if isinstance(result, int) else EXIT_DONE


def _refuse_no_text(arguments: list[str]) -> None:
    """Raises UsageError for bytes that no name, path or value can hold."""
    from ir.errors import UsageError

    for argument in arguments:
        if "\0" in argument or (not argument.isascii() and _surrogates(argument)):
            raise UsageError(f"argument {argument!r} is not text (UTF-8, without NUL)")


def _surrogates(text: str) -> bool:
    """Whether it stands for bytes that are no UTF-8."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _message(error: Exception) -> str:
    """A misspelt option is typer's own error, whose class is private and differs by version."""
    if hasattr(error, "option_name") and getattr(error, "ctx", None) is not None:
        return f"No such option: {error.option_name}{_nearest_option(error)}"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror or error}"
    return str(error.format_message()) if hasattr(error, "format_message") else str(error)


def _nearest_option(error: Any) -> str:
    """The option of the verb that is spelt most alike."""
    options = [name for option in error.ctx.command.get_params(error.ctx) for name in option.opts]
    known = [name for name in options if name.startswith("--")]
    near = difflib.get_close_matches(error.option_name, known, n=1, cutoff=0.0)
    return f" (did you mean {near[0]}?)" if near else ""


def exit_code(error: BaseException) -> int | None:
    """The documented code of an error that is meant for the user; None for a defect."""
    from explorer.errors import DeviceLost, NothingValid, ServerLost, WorkerError
    from ir.errors import MissingTarget, TilewrightError
    from records.errors import StoreError

    if isinstance(error, StoreError):
        return error.exit_code
    if isinstance(error, NothingValid):
        return EXIT_NOTHING
    if isinstance(error, DeviceLost | ServerLost):
        return EXIT_LOST
    if isinstance(error, MissingTarget | WorkerError):
        return EXIT_TARGET
    if isinstance(error, OSError) and error.filename is not None:
        return EXIT_USAGE  # a place that was named cannot be used
    usage = isinstance(error, TilewrightError) or hasattr(error, "format_message")
    return EXIT_USAGE if usage else None


def _failed(message: str, code: int) -> int:
    from explorer.cli.streams import discard_output, one_line

    try:
        print(f"tilewright: {one_line(message)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):  # nobody may be there to read it
        discard_output(sys.stderr)
    return code


def _reader_left() -> int:
    """Output goes to a pipe whose reader has seen enough (`| head`): end without complaint."""
    from explorer.cli.streams import discard_output

    discard_output()
    return EXIT_DONE


def _output_lost(error: BaseException) -> int:
    from explorer.cli.streams import discard_output

    discard_output()
    why = error.strerror if isinstance(error, OSError) else str(error)
    return _failed(f"standard output cannot be written: {why}", EXIT_USAGE)
