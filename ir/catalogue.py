"""Operators by family, with their formulas and settings: arguments that have a name.

A family is a module of operators. Its `EXTENTS`, if it has one, gives for each operator's name the
settings by theirs: "small", which is quick anywhere, and extents of real models. A user's file may
have one as well.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from ir.builder import Operator
from ir.errors import UsageError
from ir.ops.load import Index, Load
from ir.ops.store import Store
from ir.program import Program
from ir.registry import built_in_modules, nearest, operators_of

Setting = Mapping[str, object]
SMALL = "small"


@dataclass(frozen=True, slots=True)
class Family:
    """The operators of a module, in its order."""

    name: str
    about: str
    operators: tuple[Operator, ...]


def families() -> tuple[Family, ...]:
    """The built-in operators."""
    return tuple(_family(module) for module in built_in_modules())


def _family(module: ModuleType) -> Family:
    about = (inspect.getdoc(module) or "").partition("\n\n")[0]
    name = module.__name__.rpartition(".")[2]
    return Family(name, " ".join(about.split()), tuple(operators_of(module).values()))


def explained(operator: Operator) -> tuple[str, str]:
    """The first line of an operator's docstring, which is its formula, and what else it says."""
    first, _, rest = (inspect.getdoc(operator.function) or "").partition("\n")
    return first.rstrip("."), rest.strip()


def settings_of(operator: Operator) -> Mapping[str, Setting]:
    """The settings of an operator by name."""
    table = getattr(operator.function, "__globals__", {}).get("EXTENTS", {})
    found = table.get(operator.name, {}) if isinstance(table, Mapping) else {}
    return found if isinstance(found, Mapping) else {}


def setting(operator: Operator, name: str) -> Setting:
    """The arguments of a setting; raises UsageError with the nearest name."""
    known = settings_of(operator)
    if name in known:
        return known[name]
    form = f"{operator.name}: {name!r} is not of the form name=value"
    if not known:
        raise UsageError(f"{form}, and {operator.name} has no settings")
    near = nearest(name, known)
    raise UsageError(f"{form} and no setting{near}; settings are {', '.join(known)}")


def subscripts(program: Program) -> dict[str, tuple[str, ...]]:
    """How the dimensions of each tensor are read or written: axes, or sums and tiles of them."""
    found: dict[str, tuple[str, ...]] = {}
    for node in program.nodes:
        if isinstance(node.op, Load):
            sources = [_source(program, arg) for arg in node.args]
            shown = tuple(_subscript(index, sources) for index in node.op.index)
            found.setdefault(node.op.tensor, shown)
        elif isinstance(node.op, Store):
            found[node.op.tensor] = node.op.axes
    return found


def _source(program: Program, position: int) -> str:
    """A tile of indices, in a word: the tensor if it is one."""
    op = program.nodes[position].op
    return op.tensor if isinstance(op, Load) else "computed"


def _subscript(index: Index, sources: list[str]) -> str:
    if index.gather is None:
        return str(index)
    affine = Index(index.terms, index.constant)
    rest = f" + {affine}".replace("+ -", "- ") if affine != Index() else ""
    return sources[index.gather] + rest
