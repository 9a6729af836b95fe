"""What may stand for an operator: its name, itself, a program, a function that returns a program.

All become values with a name, parameters and `build`. Knows no target and no search.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ir.author import run_author
from ir.builder import UNNAMED, Operator
from ir.errors import UsageError
from ir.program import Program
from ir.registry import checked_arguments, is_built_in, load_operator

OperatorLike: TypeAlias = str | Operator | Program | Callable[..., Program]
"""An operator: its name or `FILE.py:NAME`, itself, a program, or a function that returns one."""


class Source(Protocol):
    """Builds programs from arguments."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]: ...

    def build(self, **arguments: Any) -> Program: ...


@dataclass(frozen=True, slots=True)
class Ready:
    """A program that is there already and takes nothing."""

    program: Program

    @property
    def name(self) -> str:
        return self.program.name

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return {}

    def build(self, **arguments: Any) -> Program:
        checked_arguments(self, arguments)
        return self.program


@dataclass(frozen=True, slots=True)
class Returning:
    """A function whose result is the program, and whose parameters are all its own."""

    function: Callable[..., Program]

    @property
    def name(self) -> str:
        name = str(getattr(self.function, "__name__", type(self.function).__name__))
        return name if name.isidentifier() else UNNAMED

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        try:
            return dict(inspect.signature(self.function).parameters)
        except (TypeError, ValueError) as error:
            raise UsageError(f"{self.name} does not tell its parameters: {error}") from None

    def build(self, **arguments: Any) -> Program:
        found = self.function(**checked_arguments(self, arguments))
        if not isinstance(found, Program):
            raise UsageError(
                f"{self.name} returned {type(found).__name__}, not a Program; a function that "
                "fills a graph is made an operator by @operator"
            )
        return found


def find_source(what: OperatorLike) -> Source:
    """What `what` stands for; raises UsageError for an unknown name, and for what is no operator.

    A name is a built-in operator's, "path/to/file.py:name", or that of an operator of `__main__`:
    a notebook's, or the running script's.
    """
    if isinstance(what, str):
        return load_operator(what)
    if isinstance(what, Operator):
        return what
    if isinstance(what, Program):
        return Ready(what)
    if callable(what) and not isinstance(what, type):
        return _returning(what)
    raise UsageError(
        f"{what!r} is no operator: give a name, an @operator, a Program or a function that "
        "returns one"
    )


def _returning(function: Callable[..., Program]) -> Source:
    """Refuses the function of an operator that nobody has decorated."""
    source = Returning(function)
    first = next(iter(source.parameters.values()), None)
    annotation = getattr(first, "annotation", "")
    if getattr(annotation, "__name__", annotation) == "Graph":
        raise UsageError(f"{source.name} fills a graph: decorate it with @operator")
    return source


def lasting_name(what: OperatorLike) -> str | None:
    """The name by which any process finds the very same operator; None if there is none."""
    if isinstance(what, Operator):
        return what.name if is_built_in(what) else None
    if not isinstance(what, str):
        return None
    return what if what.rpartition(":")[0] or what.endswith(".py") or is_built_in(what) else None


def build(source: Source, arguments: Mapping[str, Any], what: str = "") -> Program:
    """The program for arguments; an author's function may raise anything, that is a UsageError."""
    return run_author(what or source.name, lambda: source.build(**arguments))
