"""Kernels of several extents as one library: the best that is recorded of each.

Knows records and exports; not what is in a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from explorer.errors import NothingValid
from explorer.exporter import export_table, refuse_name
from explorer.exporters.base import TableFacts
from explorer.recall import best_winner
from explorer.settings import cache_dir
from explorer.shapes.family import MOST_POINTS, Family, Point, words_of
from explorer.winner import Winner
from explorer.workload import Workload
from ir.errors import UsageError
from ir.kernel import KernelTable


def export_family(
    family: Family, folder: Path, *, store: str | Path | None = None, name: str | None = None
) -> Sequence[Path]:
    """Write one library with the best recorded kernel of each member; returns the files.

    Of members that were never measured it is the schedule of a range that was tuned around them.
    Raises UsageError for too many members, NothingValid with all of which nothing is known, and
    ExportError.
    """
    refuse_many(family)
    refuse_name(family.target, family.workload(family.lowest).program.name, name, several=True)
    members = {point: family.workload(point) for point in family.points()}
    found = found_table(family.names, members, store)
    return export_table(found.table, found.facts, folder, name=name, cache_dir=cache_dir())


def refuse_many(family: Family) -> None:
    """Raises UsageError for more members than one export takes."""
    if family.count > MOST_POINTS:
        raise UsageError(
            f"{family.title}: {family.count:,} kernels in one library, {MOST_POINTS} at most; list "
            "the extents that are used, as in m=64,128"
        )


@dataclass(frozen=True, slots=True)
class Found:
    """The best kernels of several workloads, and what is known of them."""

    table: KernelTable
    facts: TableFacts


def found_table(
    names: tuple[str, ...], members: Mapping[Point, Workload], store: str | Path | None
) -> Found:
    """The best recorded kernel of each member, by its values of `names`.

    Raises NothingValid that names what is missing.
    """
    first = members[min(members)]
    winners = _winners(names, members, store)
    rows = tuple((point, winner.kernel()) for point, winner in winners)
    facts = TableFacts(_common(names, members), tuple(_facts(winner) for _, winner in winners))
    return Found(KernelTable(first.program.name, names, rows), facts)


def _winners(
    names: tuple[str, ...], members: Mapping[Point, Workload], store: str | Path | None
) -> list[tuple[Point, Winner]]:
    """By ascending extents."""
    found, missing, said = [], [], ""
    for point, workload in sorted(members.items(), key=lambda member: member[0]):
        workload.program.refuse_void()
        try:
            found.append((point, best_winner(workload, store)))
        except NothingValid as error:
            missing.append(words_of(names, point))
            said = said or str(error)
    if missing:
        raise NothingValid(f"no kernel for {', '.join(missing)}: {said}")
    return found


def _common(names: tuple[str, ...], members: Mapping[Point, Workload]) -> dict[str, object]:
    """What the members have in common, and the values of what they have not."""
    workload = members[min(members)]
    given = [dict(member.arguments) for member in members.values()]
    same = {n: v for n, v in workload.arguments if all(one.get(n) == v for one in given)}
    columns = [sorted(set(column)) for column in zip(*members, strict=True)]
    return {
        "operator": workload.operator,
        "arguments": {n: v for n, v in same.items() if n not in names},
        "varying": {n: ",".join(map(str, c)) for n, c in zip(names, columns, strict=True)},
        "hardware": workload.hardware.key,
        "memory": workload.memory,
        "isa": list(workload.hardware.isa),
        "generator": workload.backend.generator,
    }


def _facts(winner: Winner) -> dict[str, object]:
    return {"schedule": json.loads(winner.schedule.to_json()), "seconds": winner.seconds}
