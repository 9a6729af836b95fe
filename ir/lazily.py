"""Names that a package gives and another of its modules has, imported when first asked for.

A package whose own import imports its modules can make two threads wait for each other: one that
imports the package holds it and wants a module, one that imports the module holds that and wants
the package first. Python ends that with an error in one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `homes` are the names it gives, and where each of them is."""

    def found(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return found
