"""The verbs by name, and what they share: options, words of the form name=value, output."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ir.errors import UsageError

if TYPE_CHECKING:
    from explorer.shapes.family import Family
    from explorer.workload import Workload
    from ir.columns import Decision
    from ir.schedule import Schedule

VERBS = (
    "tune",
    "space",
    "run",
    "explain",
    "report",
    "watch",
    "export",
    "show",
    "top",
    "jobs",
    "farm",
    "compare",
    "train",
    "evaluate",
    "db",
    "layout",
    "operators",
    "targets",
    "doctor",
)


class ReaderLeft(Exception):
    """Whoever read the output has seen enough."""


class Verbs(TyperGroup):
    """Commands by name; of a misspelt one it names the nearest."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is None and not ctx.resilient_parsing:
            known = self.list_commands(ctx)
            near = difflib.get_close_matches(cmd_name, known, 1, cutoff=0.5)
            hint = f" (did you mean {near[0]!r}?)" if near else f"; known are {', '.join(known)}"
            raise UsageError(f"No such command {cmd_name!r}{hint}")
        return found


class _Root(Verbs):
    """Keeps from typer what it would turn into silent codes of its own; lists verbs in order."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=VERBS.index)

    def invoke(self, ctx: Any) -> Any:
        from explorer.interrupts import raises_from_now

        raises_from_now()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Abort from None
        except BrokenPipeError as error:
            raise ReaderLeft from error
        except SystemExit as error:
            raise UsageError(f"something called sys.exit({error.code!r})") from error


app = typer.Typer(cls=_Root, pretty_exceptions_enable=False, rich_markup_mode=None)


def group(name: str, about: str, **settings: Any) -> typer.Typer:
    """A verb with verbs of its own."""
    found = typer.Typer(cls=Verbs, help=about, rich_markup_mode=None, **settings)
    app.add_typer(found, name=name)
    return found


def examples(*commands: str) -> str:
    """What stands at the end of a verb's help; a test runs each."""
    return "\n".join(["\b", "Examples:", *(f"  {command}" for command in commands)])


SCHEMA = 1  # of printed JSON: raised when an entry goes, or changes its meaning


class Format(StrEnum):
    """How results are printed."""

    text = "text"
    json = "json"


LARGEST = 1 << 62  # no extent comes near it


def operator_starts(incomplete: str) -> list[str]:
    """Operators that begin so, for a shell's completion."""
    from ir.registry import operator_names

    return [name for name in operator_names() if name.startswith(incomplete)]


def target_starts(incomplete: str) -> list[str]:
    """Targets that begin so, for a shell's completion."""
    from ir.target import target_names

    return [name for name in target_names() if name.startswith(incomplete)]


OperatorName = Annotated[
    str,
    typer.Argument(
        metavar="OPERATOR",
        help="a built-in operator, or FILE.py:NAME",
        autocompletion=operator_starts,
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SETTING] [NAME=VALUE]...",
        help="its extents and options: m=512 dtype=bf16; a setting, as small, names some of them",
    ),
]
Target = Annotated[
    str, typer.Option(help="what to generate code for", autocompletion=target_starts)
]
Threads = Annotated[int | None, typer.Option(help="threads of the kernel; default: all allowed")]
Machine = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="CARD",
        help="a card that the target knows by name, such as h200, instead of this machine's",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="what operands lie in: plain, as numpy and torch allocate (default), or huge pages",
    ),
]
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


def arguments_of(operator: str, words: list[str] | None) -> dict[str, object]:
    """The arguments that words give an operator: those of a setting, if the first is the name of
    one, and name=value words over them. Raises UsageError."""
    if not words or "=" in words[0]:
        return pairs(words)
    from ir.catalogue import setting
    from ir.registry import load_operator

    return {**setting(load_operator(operator), words[0]), **pairs(words[1:])}


def workload_of(
    operator: str,
    words: list[str] | None,
    target: str,
    threads: int | None,
    records: str | None,
    what: str,
    memory: str | None = None,
) -> Workload:
    """What the command line names; of a kernel that another tuner recorded, that there is nothing
    to do `what` with. Raises UsageError."""
    from explorer.recorded import refuse_recorded
    from explorer.workload import Workload

    try:
        return Workload.of(operator, arguments_of(operator, words), target, threads, memory)
    except UsageError:
        refuse_recorded(operator, what, records)
        raise


def family_of(
    operator: str,
    words: list[str] | None,
    target: str,
    threads: int | None,
    memory: str | None = None,
) -> Family | None:
    """The workloads that the command line names with lists or ranges; None if it names one.

    Raises UsageError.
    """
    if not any("," in word or ".." in word.partition("=")[2] for word in words or ()):
        return None
    from explorer.shapes.extents import parted
    from explorer.shapes.family import Family

    arguments = arguments_of(operator, words)
    if not parted(arguments)[1]:
        return None
    return Family.of(operator, arguments, target, threads, memory)


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


def print_json(value: Mapping[str, Any]) -> None:
    """A result for programs. SCHEMA tells them what they read."""
    print(json.dumps({"schema": SCHEMA} | dict(value), indent=2, sort_keys=True))


def load(words: Sequence[str]) -> None:
    """Import the verb that a command line begins with; all of them where it begins with none.

    To import them all, and to prepare their options, takes longer than most verbs do.
    """
    named = [word for word in words[:1] if word in VERBS]
    for verb in named or VERBS:
        import_module(f"explorer.cli.{verb}")
