"""Exports for torch: the best kernels of an operator and of its derivatives, as one package.

Knows records and exports; not what is in a package.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from explorer.errors import ExportError
from explorer.exporter import export_table
from explorer.exporters.base import refuse_alike
from explorer.exporters.torch_package import Derivative, Part, package_files, refuse_untaken
from explorer.recall import best_winner
from explorer.settings import cache_dir
from explorer.shapes.exporting import found_table, refuse_many
from explorer.shapes.family import Family, Point
from explorer.workload import Workload
from ir.errors import UsageError
from ir.printable import shortened
from ir.registry import checked_arguments
from ir.schedule import Schedule
from ir.sources import OperatorLike, find_source

FORWARD = "forward"  # the folder of the operator's own kernel


@dataclass(frozen=True, slots=True)
class Backward:
    """An operator that computes gradients of another's inputs.

    Its arguments are the other's where it takes them and `arguments` says nothing else: a value, or
    which of the other's arguments it is, as in `{"k": "m"}`. Its tensors
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
        known = dict(forward.arguments)
        same = {n: v for n, v in known.items() if n in source.parameters}
        own = {n: _meant(v, known) for n, v in self.arguments.items()}
        arguments = checked_arguments(source, same | own)
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
    build: bool = False,
) -> Sequence[Path]:
    """Write a package whose functions are operators of torch; returns its files, none on an error.

    The schedule of `workload` is given or the best recorded, those of derivatives are the best
    recorded. With `build` its operators are built in C++ for the torch of this Python. Raises
    UsageError, NothingValid, ExportError.
    """
    called = name or workload.program.name
    refuse_untaken(workload.program, called)
    return _written((), {(): workload}, folder, backward, schedule, store, name, build)


def export_package_family(
    family: Family,
    folder: Path,
    *,
    backward: Sequence[Backward] = (),
    store: str | Path | None = None,
    name: str | None = None,
    build: bool = False,
) -> Sequence[Path]:
    """As `export_package`: its operator has a kernel for each member, chosen by the shapes."""
    refuse_many(family)
    first = family.workload(family.lowest).program
    refuse_untaken(first, name or first.name)
    members = {point: family.workload(point) for point in family.points()}
    return _written(family.names, members, folder, backward, None, store, name, build)


def _meant(value: Any, known: Mapping[str, Any]) -> Any:
    """An argument's value, which may be that of one of the other operator's."""
    other = known.get(value) if isinstance(value, str) else None
    return other if isinstance(other, int) and not isinstance(other, bool) else value


Members = Mapping[Point, Workload]


def _written(
    names: tuple[str, ...],
    members: Members,
    folder: Path,
    backward: Sequence[Backward],
    schedule: Schedule | None,
    store: str | Path | None,
    name: str | None,
    build: bool,
) -> Sequence[Path]:
    """The package of one workload, or of several that differ in `names`."""
    if not folder.absolute().name.isidentifier():
        raise ExportError(f"{folder}: a package's folder has a Python name; choose another")
    pairs = [(one, {p: one.workload(w) for p, w in members.items()}) for one in backward]
    derivatives = [_derivative(members, backs, one) for one, backs in pairs]
    _refuse_twice(derivatives)
    first = _chosen(names, members, FORWARD, schedule, store, name)
    rest = [
        _chosen(names, backs, derivative.folder, None, store, None)
        for (_, backs), derivative in zip(pairs, derivatives, strict=True)
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as scratch:
            room = Path(scratch)
            for chosen in (first, *rest):
                chosen.write(room)
            parts = list(zip([chosen.part for chosen in rest], derivatives, strict=True))
            files = package_files(first.part, parts, _facts(names, members))
            for file, text in files.items():
                (room / file).write_text(text)
            if build:
                _build(room)
            return _moved(room, folder)
    except OSError as error:
        raise ExportError(f"{folder}: {error.strerror or error}") from None


def _build(package: Path) -> None:
    """Run the package's own build.py, with the Python and thus the torch that is here."""
    script = package / "build.py"
    if not script.exists():
        raise ExportError("operators of a GPU are Python's alone: there is nothing to build")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr.strip() or f"build.py ended with {done.returncode}").splitlines()
        raise ExportError(f"the operators cannot be built in C++: {shortened(said[-1])}")


def _facts(names: tuple[str, ...], members: Members) -> dict[str, object]:
    workload = members[min(members)]
    arguments = {n: v for n, v in workload.arguments if n not in names}
    varying = {
        name: sorted({point[place] for point in members}) for place, name in enumerate(names)
    }
    return {
        "operator": workload.operator,
        "arguments": arguments | varying,
        "hardware": workload.hardware.key,
        "generator": workload.backend.generator,
    }


def _derivative(members: Members, backs: Members, backward: Backward) -> Derivative:
    """What a backward operator takes and gives: the same with every member."""
    found = [
        Derivative.of(members[point].program, back.program, backward.tensors)
        for point, back in backs.items()
    ]
    return found[0]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The kernels of one operator of a package, and who writes them to its folder."""

    part: Part
    write_to: Callable[[Path], Sequence[Path]]

    def write(self, room: Path) -> None:
        """The kernels' own files, below `room`."""
        written = self.write_to(room / self.part.folder)
        library = self.part.library
        if library and library not in {path.name for path in written}:
            raise ExportError(
                f"{self.part.kernel.name}: a package for torch has a shared library, and no C "
                "compiler is found to link it; install one (cc, gcc or clang)"
            )


def _chosen(
    names: tuple[str, ...],
    members: Members,
    folder: str,
    schedule: Schedule | None,
    store: str | Path | None,
    name: str | None,
) -> _Chosen:
    """The best recorded kernels, or that of the schedule; raises NothingValid."""
    first = members[min(members)]
    if len({workload.program.key for workload in members.values()}) == 1:
        return _alone(first, folder, schedule or best_winner(first, store).schedule, name)
    found = found_table(names, members, store)
    table = replace(found.table, name=name or found.table.name)
    refuse_alike(table)
    kernel = replace(table.first, name=table.name)

    def write(place: Path) -> Sequence[Path]:
        return export_table(found.table, found.facts, place, name=name, cache_dir=cache_dir())

    return _Chosen(Part(kernel, folder, name or "", table), write)


def _alone(workload: Workload, folder: str, schedule: Schedule, name: str | None) -> _Chosen:
    from explorer.job import export_best

    kernel = workload.kernel(schedule)
    kernel = replace(kernel, name=name) if name is not None else kernel

    def write(place: Path) -> Sequence[Path]:
        return export_best(workload, place, schedule=schedule, name=name)

    return _Chosen(Part(kernel, folder, name or ""), write)


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
    found.sort(key=lambda path: (path.parent == room, path.name == "__init__.py"))
    moved = []
    for path in found:
        place = folder / path.relative_to(room)
        place.parent.mkdir(exist_ok=True)
        os.replace(path, place)
        moved.append(place)
    return tuple(moved)
