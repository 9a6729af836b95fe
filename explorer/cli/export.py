"""tilewright export: the best recorded (or a given) schedule as files that need no Tilewright."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.app import (
    ExportName,
    Memory,
    OperatorName,
    Records,
    ScheduleText,
    Target,
    Threads,
    Words,
    app,
    examples,
    read_schedule,
    workload_of,
)
from explorer.cli.places import refuse_unwritable_folder


@app.command(
    epilog=examples(
        "tilewright export matmul m=512 n=512 k=512 --out kernel",
        "tilewright export matmul m=512 n=512 k=512 --schedule @schedule.json --out other",
    ),
)
def export(
    operator: OperatorName,
    words: Words = None,
    out: Annotated[Path, typer.Option(help="folder to write to, made if need be")] = Path("kernel"),
    schedule: ScheduleText = "",
    target: Target = "cpu",
    threads: Threads = None,
    memory: Memory = None,
    records: Records = None,
    name: ExportName = None,
) -> None:
    """Write a kernel as files that need no Tilewright.

    Source, header, machine code, a manifest, a Python module and, where a linker is found, a
    shared library. Kernels of one operator may be used together: their symbols hold a hash, unless
    --name gives one.
    """
    from explorer.job import export_best

    refuse_unwritable_folder("--out", out)
    workload = workload_of(operator, words, target, threads, records, "export", memory)
    chosen = read_schedule(schedule) if schedule else None
    for path in export_best(workload, out, schedule=chosen, store=records, name=name):
        print(f"wrote {path}")
