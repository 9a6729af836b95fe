"""What reaches the terminal: letters and line ends. The one way out for all that verbs print.

Names, messages and facts may come from records of strangers. An escape code in one of them would
be obeyed by the terminal, so it is spelt out, whoever printed it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TextIO, TypeVar, cast

from ir.printable import printable

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


class PlainStream:
    """A text stream on which nothing but printable text, line ends and tabs are written."""

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        shown = printable(text, keep="\n\t")
        encoding = self.unfiltered.encoding or "utf-8"
        self.unfiltered.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)


def unfiltered(stream: TextIO) -> TextIO:
    """The stream below, for who draws with escape codes and takes care of what it shows."""
    return cast(TextIO, getattr(stream, "unfiltered", stream))


@contextmanager
def _plain_streams() -> Iterator[None]:
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, s and PlainStream(unfiltered(s))) for s in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def shown_plainly(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """What `function` prints goes through `PlainStream`."""

    @wraps(function)
    def plain(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with _plain_streams():
            return function(*args, **kwargs)

    return plain
