"""Exports for torch: the best kernels of an operator and of its derivatives, as one package.

Knows records and exports; not what is in a package.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from explorer.errors import ExportError
from explorer.exporters.torch_package import Derivative, Part, package_text, refuse_untaken
from explorer.recall import best_winner
from explorer.workload import Workload
from ir.errors import UsageError
from ir.registry import checked_arguments
from ir.schedule import Schedule
from ir.sources import OperatorLike, find_source

FORWARD = "forward"  # the folder of the operator's own kernel


@dataclass(frozen=True, slots=True)
class Backward:
    """An operator that computes gradients of another's inputs.

    Its arguments are the other's where it takes them and `arguments` says nothing else. Its tensors
    are the other's of the same names, a gradient's name having a "d" before it, or what `tensors`
    says: `Backward("matmul", {"tb": True}, {"A": "dC", "C": "dA"})`.
    """

    operator: OperatorLike
    arguments: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Backward:
        """Of words as the command line has them; other names than arguments are tensors."""
        operator, *words = text.split() or [""]
        known = find_source(operator).parameters
        pairs: dict[str, str] = {}
        for word in words:
            name, equals, value = word.partition("=")
            if not equals:
                raise UsageError(f"--backward {text!r}: {word!r} is not of the form name=value")
            pairs[name] = value
        arguments = {name: value for name, value in pairs.items() if name in known}
        tensors = {name: value for name, value in pairs.items() if name not in known}
        return cls(operator, arguments, tensors)

    def workload(self, forward: Workload) -> Workload:
        """What computes it; raises UsageError."""
        source = find_source(self.operator)
        same = {n: v for n, v in forward.arguments if n in source.parameters}
        arguments = checked_arguments(source, same | dict(self.arguments))
        return Workload.of(
            self.operator, arguments, forward.target, forward.threads, forward.memory
        )


def export_package(
    workload: Workload,
    folder: Path,
    *,
    backward: Sequence[Backward] = (),
    schedule: Schedule | None = None,
    store: str | Path | None = None,
    name: str | None = None,
) -> Sequence[Path]:
    """Write a package whose functions are operators of torch; returns its files, none on an error.

    The schedule of `workload` is given or the best recorded, those of derivatives are the best
    recorded. Raises UsageError, NothingValid, ExportError.
    """
    called = name or workload.program.name
    refuse_untaken(workload.program, called)
    if not folder.absolute().name.isidentifier():
        raise ExportError(f"{folder}: a package's folder has a Python name; choose another")
    pairs = [(one, one.workload(workload)) for one in backward]
    derivatives = [Derivative.of(workload.program, w.program, one.tensors) for one, w in pairs]
    _refuse_twice(derivatives)
    if schedule is None:
        schedule = best_winner(workload, store).schedule
    chosen = [best_winner(back, store).schedule for _, back in pairs]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as scratch:
            room = Path(scratch)
            first = _part(workload, schedule, room, FORWARD, name)
            rest = [
                (_part(back, best, room, derivative.folder, None), derivative)
                for (_, back), best, derivative in zip(pairs, chosen, derivatives, strict=True)
            ]
            facts = {
                "operator": workload.operator,
                "arguments": dict(workload.arguments),
                "hardware": workload.hardware.key,
                "generator": workload.backend.generator,
            }
            (room / "__init__.py").write_text(package_text(first, rest, facts))
            return _moved(room, folder)
    except OSError as error:
        raise ExportError(f"{folder}: {error.strerror or error}") from None


def _part(
    workload: Workload, schedule: Schedule, room: Path, folder: str, name: str | None
) -> Part:
    """The kernel's own files, below `room`."""
    from explorer.job import export_best

    written = export_best(workload, room / folder, schedule=schedule, name=name)
    kernel = workload.kernel(schedule)
    kernel = replace(kernel, name=name) if name is not None else kernel
    part = Part(kernel, folder, name or "")
    if part.library and part.library not in {path.name for path in written}:
        raise ExportError(
            f"{kernel.name}: a package for torch has a shared library, and no C compiler is found "
            "to link it; install one (cc, gcc or clang)"
        )
    return part


def _refuse_twice(derivatives: Sequence[Derivative]) -> None:
    """Raises ExportError where two kernels give one gradient."""
    given: set[str] = set()
    for derivative in derivatives:
        if twice := given & set(derivative.gives):
            raise ExportError(f"{min(twice)} is given by two derivatives; leave one out")
        given |= set(derivative.gives)


def _moved(room: Path, folder: Path) -> tuple[Path, ...]:
    """Put the files in their places; the one that says what there is comes last."""
    found = sorted(path for path in room.rglob("*") if path.is_file())
    found.sort(key=lambda path: path.parent == room)
    moved = []
    for path in found:
        place = folder / path.relative_to(room)
        place.parent.mkdir(exist_ok=True)
        os.replace(path, place)
        moved.append(place)
    return tuple(moved)
