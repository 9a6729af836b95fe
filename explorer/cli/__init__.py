"""The command line: `tilewright VERB ...`. One module per verb; errors become one line and a code.

Exit codes are documented in docs/exit-codes.md.
"""

from __future__ import annotations

import difflib
import os
import sys
from typing import Any

EXIT_DONE = 0
EXIT_USAGE = 2
EXIT_NOTHING = 3
EXIT_TARGET = 6
EXIT_LOST = 7
EXIT_STORE = 8
EXIT_INTERRUPTED = 130


def main() -> None:
    """Entry point of the `tilewright` command."""
    sys.exit(invoke(sys.argv[1:]))


def invoke(arguments: list[str]) -> int:
    """Run a command line; returns the exit code. Never shows a traceback for a user's mistake."""
    import typer

    from explorer.cli.app import app

    try:
        result = app(args=arguments or ["--help"], prog_name="tilewright", standalone_mode=False)
        sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        return _failed("interrupted; what was measured is kept", EXIT_INTERRUPTED)
    except (BrokenPipeError, SystemExit):  # the latter is what typer makes of the former
        return _reader_left()
    except Exception as error:  # known kinds become a line and a code, others are raised again
        code = exit_code(error)
        if code is None:
            raise
        return _failed(_message(error), code)
    return result if isinstance(result, int) else EXIT_DONE


def _message(error: Exception) -> str:
    """A misspelt option is typer's own error, whose class is private and differs by version."""
    if hasattr(error, "option_name") and getattr(error, "ctx", None) is not None:
        return f"No such option: {error.option_name}{_nearest_option(error)}"
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
    usage = isinstance(error, TilewrightError) or hasattr(error, "format_message")
    return EXIT_USAGE if usage else None


def _failed(message: str, code: int) -> int:
    print(f"tilewright: {' '.join(message.split())}", file=sys.stderr)
    return code


def _reader_left() -> int:
    """Output goes to a pipe whose reader has seen enough (`| head`): end without complaint."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_DONE
