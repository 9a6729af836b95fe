"""tilewright export: the best recorded (or a given) schedule as files that need no Tilewright."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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
    family_of,
    read_schedule,
    workload_of,
)
from explorer.cli.places import refuse_unwritable_folder
from ir.errors import UsageError


@app.command(
    epilog=examples(
        "tilewright export matmul m=512 n=512 k=512 --out kernel",
        "tilewright export matmul m=512 n=512 k=512 --schedule @schedule.json --out other",
        "tilewright export matmul m=512 n=512 k=512 --torch --out linear",
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
    torch: Annotated[
        bool, typer.Option("--torch", help="write a package whose functions are torch operators")
    ] = False,
    backward: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'OPERATOR [NAME=VALUE ...]'",
            help="with --torch: what computes gradients, its arguments and which tensors its own "
            "are, as in 'matmul m=8 n=4 k=6 tb=true A=dC C=dA'",
        ),
    ] = None,
    build: Annotated[
        bool,
        typer.Option(
            "--build",
            help="with --torch: build its operators in C++, for the torch of this Python",
        ),
    ] = False,
) -> None:
    """Write a kernel as files that need no Tilewright.

    Source, header, machine code, a manifest, a Python module and, where a linker is found, a
    shared library. Kernels of one operator may be used together: their symbols hold a hash, unless
    --name gives one. With a list of values, m=64,128,512, one library, or cubin, has the kernel of
    each, and its function chooses by the shapes of its arrays. With --torch the folder becomes a
    Python package, whose function is an operator of torch for torch.compile and autograd.
    """
    from explorer.job import export_best
    from explorer.shapes.exporting import export_family
    from explorer.torch_export import export_package, export_package_family

    if backward and not torch:
        raise UsageError("--backward is for operators of torch: give --torch too")
    if build and not torch:
        raise UsageError("--build is for operators of torch: give --torch too")
    refuse_unwritable_folder("--out", out)
    several = family_of(operator, words, target, threads, memory)
    if several is not None and schedule:
        raise UsageError("--schedule is for one kernel: give one value of each argument")
    if several is not None:
        of_range = _in_a_package(export_package_family, backward, build) if torch else export_family
        written = of_range(several, out, store=records, name=name)
    else:
        workload = workload_of(operator, words, target, threads, records, "export", memory)
        chosen = read_schedule(schedule) if schedule else None
        of_one = _in_a_package(export_package, backward, build) if torch else export_best
        written = of_one(workload, out, schedule=chosen, store=records, name=name)
    _tell(written)


def _tell(written: Sequence[Path]) -> None:
    """The files, and what is missing among them."""
    from explorer.exporter import find_linker

    for path in written:
        print(f"wrote {path}")
    if any(path.suffix == ".o" for path in written) and find_linker() is None:
        typer.echo(
            "no shared library: no C compiler was found; install gcc or clang and export again, "
            "or build it as the Python module says",
            err=True,
        )


def _in_a_package(
    make: Callable[..., Sequence[Path]], backward: Sequence[str] | None, build: bool
) -> Callable[..., Sequence[Path]]:
    """What writes a package of torch's, with these gradients, and builds its operators if asked."""
    from explorer.torch_export import Backward

    gradients = [Backward.parse(text) for text in backward or ()]
    return partial(make, backward=gradients, build=build)
