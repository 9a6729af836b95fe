"""Finding operators by name, in an author's file or in `__main__`, and checking their arguments.

Every Operator in a module of `ir.operators` is built in; no name is listed anywhere.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
import pkgutil
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from numbers import Integral, Real
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from ir import operators
from ir.author import run_author
from ir.builder import Operator
from ir.errors import UsageError

_FEW = 16  # operators that a message names all


@cache
def _built_in() -> Mapping[str, Operator]:
    return {name: op for module in built_in_modules() for name, op in operators_of(module).items()}


def built_in_modules() -> tuple[ModuleType, ...]:
    """The modules of built-in operators, by name."""
    names = sorted(info.name for info in pkgutil.iter_modules(operators.__path__))
    return tuple(import_module(f"{operators.__name__}.{name}") for name in names)


def operators_of(module: ModuleType) -> dict[str, Operator]:
    """The operators that a module defines (not those that it imports)."""
    return {
        value.name: value
        for value in vars(module).values()
        if isinstance(value, Operator) and value.function.__module__ == module.__name__
    }


def operator_names() -> tuple[str, ...]:
    """Names of the built-in operators, sorted."""
    return tuple(sorted(_built_in()))


def is_built_in(what: str | Operator) -> bool:
    """Whether it is one of the built-in operators, or the name of one."""
    if isinstance(what, str):
        return what in _built_in()
    return _built_in().get(what.name) == what


def load_operator(spec: str) -> Operator:
    """The operator that `spec` names: "matmul", or "path/to/file.py:name" for a user's own.

    A name that is not built in may be that of an operator of `__main__`, as a notebook has them.
    """
    path, colon, name = spec.rpartition(":")
    if colon and path.endswith(".py"):
        return _pick(operators_of(_import_file(Path(path))), name, path)
    if spec.endswith(".py"):
        return _only(operators_of(_import_file(Path(spec))), spec)
    own = operators_of(sys.modules["__main__"])
    return _pick({**own, **_built_in()}, spec, "the built-in operators")


def operators_in(spec: str) -> tuple[Operator, ...]:
    """The operators of a user's file, "path/to/file.py", or the one that ":name" picks."""
    path, colon, _ = spec.rpartition(":")
    if colon and path.endswith(".py"):
        return (load_operator(spec),)
    return tuple(operators_of(_import_file(Path(spec))).values())


def _pick(found: Mapping[str, Operator], name: str, where: str) -> Operator:
    if name in found:
        return found[name]
    if len(found) > _FEW:
        some = difflib.get_close_matches(name, list(found), 3, 0.3) or sorted(found)[:3]
        known = f"{', '.join(some)}, ...; `tilewright operators` lists all {len(found)}"
    else:
        known = ", ".join(sorted(found)) or "none (decorate a function with @operator)"
    raise UsageError(f"no operator {name!r}{nearest(name, found)} in {where}: known are {known}")


def _only(found: Mapping[str, Operator], path: str) -> Operator:
    if len(found) == 1:
        return next(iter(found.values()))
    known = ", ".join(sorted(found)) or "none"
    raise UsageError(f"{path}: name one of its operators, as in {path}:NAME; it has {known}")


def nearest(name: str, known: Iterable[str]) -> str:
    """A question after the name that was probably meant; empty if none is like it."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"{path}: no such operator file")
    name = f"tilewright_user_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: not a Python file")
    module, loader = module_from_spec(spec), spec.loader
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))  # so that it may import its neighbours
    try:
        run_author(f"{path}: does not import", lambda: loader.exec_module(module))
    except BaseException:
        sys.modules.pop(name, None)
        raise
    finally:
        if str(path.resolve().parent) in sys.path:
            sys.path.remove(str(path.resolve().parent))
    return module


# --- arguments --------------------------------------------------------------------------------


class Parametric(Protocol):
    """What is called by arguments: an operator, or what stands for one."""

    @property
    def name(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]: ...


_OPTIONS = {  # that Python calls otherwise than the command line does
    command: f" (the command line has --{command.replace('_', '-')}, Python {python})"
    for command, python in {"records": "store", "pin": "pins", "no_baseline": "baseline"}.items()
}
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def checked_arguments(
    operator: Parametric, arguments: Mapping[str, Any], *, partial: bool = False
) -> dict[str, Any]:
    """`arguments` by name, each converted to its parameter's type; strings are parsed.

    Raises UsageError for an unknown, missing (unless `partial`) or unreadable argument.
    """
    declared = operator.parameters
    parameters = {name: p for name, p in declared.items() if p.kind not in _REST}
    rest = next((p for p in declared.values() if p.kind is inspect.Parameter.VAR_KEYWORD), None)
    for name in arguments:
        if name not in parameters and rest is None:
            known = ", ".join(signature(p) for p in parameters.values())
            near = _OPTIONS.get(name) or nearest(name, parameters)
            raise UsageError(f"{operator.name}: unknown argument {name!r}{near}; it takes {known}")
    missing = [
        name
        for name, parameter in parameters.items()
        if name not in arguments and parameter.default is inspect.Parameter.empty
    ]
    if missing and not partial:
        known = ", ".join(signature(p) for p in parameters.values())
        raise UsageError(f"{operator.name}: missing {', '.join(missing)}; it takes {known}")
    return {
        name: _convert(f"{operator.name}: {name}", value, kind_of(parameters.get(name, rest)))
        for name, value in arguments.items()
    }


def signature(parameter: inspect.Parameter) -> str:
    """A parameter as a person writes it: with its default, if it has one."""
    if parameter.default is inspect.Parameter.empty:
        return parameter.name
    return f"{parameter.name}={parameter.default!r}"


_KINDS: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}


def kind_of(parameter: inspect.Parameter | None) -> type | None:
    """The scalar type of a parameter: from its annotation, else its default, else unknown."""
    if parameter is None:
        return None
    annotation = parameter.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    if name in _KINDS:
        return _KINDS[name]
    if parameter.default is inspect.Parameter.empty:
        return None
    return _KINDS.get(type(parameter.default).__name__)


def _convert(what: str, value: Any, kind: type | None) -> Any:
    if kind is None:
        return _guess(value)
    if kind is str:
        if isinstance(value, str):
            return value
        raise UsageError(f"{what}={value!r} is not a string")
    if kind is bool:
        return _boolean(what, value)
    return _number(what, value, kind)


def _guess(value: Any) -> Any:
    """A string of an undeclared type: a number or a truth value if it reads as one."""
    if not isinstance(value, str):
        return _plain(value)
    for reader in (int, float):
        try:
            return reader(value)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(value.lower(), value)


def _plain(value: Any) -> Any:
    """Numbers of numpy as Python's own, which JSON knows."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _boolean(what: str, value: Any) -> bool:
    if isinstance(value, bool) or value in (0, 1):
        return bool(value)
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise UsageError(f"{what}={value!r} is neither true nor false")


def _number(what: str, value: Any, kind: type) -> int | float:
    known = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if known or isinstance(value, str):
        with suppress(ValueError, OverflowError):
            return int(value) if kind is int else float(value)
    raise UsageError(f"{what}={value!r} is not a {'whole ' if kind is int else ''}number")
