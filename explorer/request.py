"""What kernels are asked for: the request, the key of a question, the workload that it means.

Knows no records and no kernels.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer.budget import Budget
from explorer.plan import JobPlan, Plan
from explorer.recall import address_of
from explorer.runtime.known import target_of
from explorer.workload import Workload
from ir.builder import Operator
from ir.errors import UsageError
from ir.fitting import Example, fitted_arguments
from ir.sources import OperatorLike, find_source

MISSING = ("error", "tune", "background")  # what to do where nothing is recorded


@dataclass(frozen=True, slots=True)
class Request:
    """How kernels are asked for, besides what they compute."""

    missing: str = "error"
    trials: int | None = None
    seconds: float | None = None
    effort: str = "standard"
    target: str | None = None  # None: where the arrays lie
    threads: int | None = None
    memory: str | None = None
    store: str | Path | None = None

    def __post_init__(self) -> None:
        if self.missing not in MISSING:
            known = ", ".join(MISSING)
            raise UsageError(f"missing={self.missing!r}: what to do is one of {known}")
        Budget.of(self.effort, self.trials, self.seconds)

    @property
    def where(self) -> Hashable:
        """What of it says which kernel is meant."""
        return self.target, self.threads, self.memory, self.address

    @property
    def address(self) -> str:
        """Of the store."""
        return str(address_of(self.store))


def question(
    operator: OperatorLike,
    arrays: tuple[Any, ...],
    arguments: Mapping[str, Any],
    request: Request,
) -> Hashable | None:
    """What tells one question from another at once; None for what has no such thing."""
    looks = tuple(_look(array) for array in arrays)
    key = (_meaning(operator), looks, tuple(sorted(arguments.items())), request.where)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _look(array: Any) -> Hashable:
    try:
        return array.shape, array.dtype, hasattr(array, "__cuda_array_interface__")
    except AttributeError:
        return Example.of(array)


def _meaning(operator: OperatorLike) -> Hashable:
    """The operator; where a name may come to mean another one, with what it means now."""
    if not isinstance(operator, str):
        return operator
    file = operator if operator.endswith(".py") else operator.rpartition(":")[0]
    if file:
        try:
            found = os.stat(file)
        except OSError:
            return operator
        return operator, found.st_mtime_ns, found.st_size
    own = getattr(sys.modules["__main__"], operator, None)
    return (operator, own) if isinstance(own, Operator) else operator


def workload_of(
    operator: OperatorLike,
    arrays: tuple[Any, ...],
    arguments: Mapping[str, Any],
    request: Request,
) -> Workload:
    """What is to be computed; raises UsageError where arrays do not fit."""
    target = request.target or target_of(arrays)
    if arrays:
        examples = [Example.of(array) for array in arrays]
        arguments = fitted_arguments(find_source(operator), examples, arguments)
    return Workload.of(operator, arguments, target, request.threads, request.memory)


def untuned(workload: Workload, request: Request) -> str:
    """One line with the command that would tune it."""
    words = [f"{name}={value}" for name, value in workload.arguments]
    title = " ".join([workload.operator, *words])
    if workload.given is not None:
        how = f"explorer.tune({workload.operator}, {', '.join(words)})"
    else:
        how = " ".join(["tilewright tune", title, *_options(workload, request)])
    return (
        f"{title}: no kernel of it is recorded for this machine; `{how}` finds one, as does asking "
        'with missing="tune" or missing="background"'
    )


def _options(workload: Workload, request: Request) -> list[str]:
    """Those of the command line that say what was asked for."""
    options = [] if workload.target == "cpu" else ["--target", workload.target]
    if request.threads is not None:
        options += ["--threads", str(request.threads)]
    if request.memory is not None:
        options += ["--memory", request.memory]
    if request.store is not None:
        options += ["--records", str(address_of(request.store))]
    return options


def plan_of(workload: Workload, request: Request) -> Plan:
    """The search that was asked for."""
    job = JobPlan(
        workload.operator, workload.arguments, workload.target, workload.threads,
        program=workload.program, memory=workload.memory, baseline=False,
    )  # fmt: skip
    return Plan((job,), Budget.of(request.effort, request.trials, request.seconds))
