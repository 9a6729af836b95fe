"""Kernels of several extents as one library: the best that is recorded of each.

Knows records and exports; not what is in a file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from explorer.errors import NothingValid
from explorer.exporter import export_table, refuse_name
from explorer.exporters.base import TableFacts
from explorer.recall import best_winner
from explorer.settings import cache_dir
from explorer.shapes.family import MOST_POINTS, Family
from explorer.winner import Winner
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
    if family.count > MOST_POINTS:
        raise UsageError(
            f"{family.title}: {family.count:,} kernels in one library, {MOST_POINTS} at most; list "
            "the extents that are used, as in m=64,128"
        )
    first = family.workload(family.lowest)
    refuse_name(family.target, first.program.name, name, several=True)
    winners = _winners(family, store)
    rows = [(point, winner.kernel()) for point, winner in winners]
    table = KernelTable(first.program.name, family.names, tuple(rows))
    facts = TableFacts(_common(family), tuple(_facts(winner) for _, winner in winners))
    return export_table(table, facts, folder, name=name, cache_dir=cache_dir())


def _winners(family: Family, store: str | Path | None) -> list[tuple[tuple[int, ...], Winner]]:
    """By ascending extents; raises NothingValid that names what is missing."""
    found, missing, said = [], [], ""
    for point in sorted(family.points()):
        workload = family.workload(point)
        workload.program.refuse_void()
        try:
            found.append((point, best_winner(workload, store)))
        except NothingValid as error:
            missing.append(family.words(point))
            said = said or str(error)
    if missing:
        raise NothingValid(f"no kernel for {', '.join(missing)}: {said}")
    return found


def _common(family: Family) -> dict[str, object]:
    workload = family.workload(family.lowest)
    return {
        "operator": workload.operator,
        "arguments": {n: v for n, v in workload.arguments if n not in family.names},
        "varying": {name: str(extents) for name, extents in family.varying},
        "hardware": workload.hardware.key,
        "memory": workload.memory,
        "isa": list(workload.hardware.isa),
        "generator": workload.backend.generator,
    }


def _facts(winner: Winner) -> dict[str, object]:
    return {"schedule": json.loads(winner.schedule.to_json()), "seconds": winner.seconds}
