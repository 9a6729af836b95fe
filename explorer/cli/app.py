"""The verbs by name, and what they share: options, words of the form name=value, output."""

from __future__ import annotations

import json
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ir.errors import UsageError

if TYPE_CHECKING:
    from ir.columns import Decision
    from ir.schedule import Schedule

VERBS = (
    "tune",
    "space",
    "run",
    "explain",
    "report",
    "export",
    "show",
    "top",
    "train",
    "evaluate",
    "db",
    "layout",
    "targets",
    "doctor",
)


class ReaderLeft(Exception):
    """Whoever read the output has seen enough."""


class _Root(TyperGroup):
    """Keeps from typer what it would turn into silent codes of its own."""

    def invoke(self, ctx: Any) -> Any:
        from explorer.cli.interrupt import raises_from_now

        raises_from_now()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None
        except BrokenPipeError as error:
            raise ReaderLeft from error
        except SystemExit as error:
            raise UsageError(f"something called sys.exit({error.code!r})") from error


app = typer.Typer(
    cls=_Root,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Format(StrEnum):
    """How results are printed."""

    text = "text"
    json = "json"


LARGEST = 1 << 62  # no extent comes near it

OperatorName = Annotated[
    str, typer.Argument(metavar="OPERATOR", help="a built-in operator, or FILE.py:NAME")
]
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[NAME=VALUE]...", help="its extents and options: m=512 dtype=bf16"),
]
Target = Annotated[str, typer.Option(help="what to generate code for")]
Threads = Annotated[int | None, typer.Option(help="threads of the kernel; default: all allowed")]
Pins = Annotated[
    list[str] | None, typer.Option("--pin", metavar="DECISION=VALUE", help="fix a decision")
]
ExportName = Annotated[
    str | None,
    typer.Option("--name", help="what files, functions and symbols are called, not the operator"),
]
Records = Annotated[str | None, typer.Option(help="record store: a path or a database URL")]
OperatorFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--operators",
        metavar="FILE.py",
        help="operators of records of older versions, which kept no programs; may be repeated",
    ),
]
OutputFormat = Annotated[Format, typer.Option("--format", help="how to print the result")]
ScheduleText = Annotated[
    str, typer.Option(metavar="JSON", help="a schedule, or @FILE; default: the best recorded one")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"tilewright {version('tilewright')}")
        except PackageNotFoundError:
            print("tilewright, not installed")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="show it")
    ] = False,
) -> None:
    """Find the fastest kernel of an operator on this machine."""


def pairs(words: list[str] | None, what: str = "argument") -> dict[str, object]:
    """name=value words as a dict; raises UsageError."""
    found: dict[str, object] = {}
    for word in words or []:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"{what} {word!r} is not of the form name=value")
        if name in found:
            raise UsageError(f"{what} {name!r} is given twice")
        found[name] = value
    return found


def whole(text: str) -> int:
    """A whole number that is not negative, in digits alone; raises ValueError."""
    if not text.isdecimal() or len(text) > len(str(LARGEST)) or int(text) >= LARGEST:
        raise ValueError(text)
    return int(text)


def read_schedule(text: str) -> Schedule:
    """A schedule from JSON text or @file; raises UsageError."""
    from ir.schedule import Schedule

    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--schedule {text}: {error}") from None
    return Schedule.from_json(text)


def domain_text(decision: Decision, shown: int = 12) -> str:
    """The first values of a domain, and how many there are more."""
    values = ", ".join(str(value) or "-" for value in decision.domain[:shown])
    more = len(decision.domain) - shown
    return f"{values} and {more} more" if more > 0 else values


def milliseconds(seconds: float) -> str:
    """A time for people: four significant digits."""
    return f"{seconds * 1e3:#.4g} ms"


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, sort_keys=True))


for verb in VERBS:
    import_module(f"explorer.cli.{verb}")
