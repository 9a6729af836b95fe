"""tilewright farm: how to have other machines measure, and which of them a scheduler has.

Schedulers and workers are Dask's own, and so are the ways to start them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli import EXIT_DONE, EXIT_TARGET
from explorer.cli.app import Format, OutputFormat, Target, Threads, app, examples, print_json

if TYPE_CHECKING:
    from explorer.farm.kinds import Kind, Survey

Address = Annotated[
    str | None,
    typer.Argument(metavar="[ADDRESS]", help="a Dask scheduler, as tcp://host:8786 or tls://..."),
]
COMMANDS = {
    "install": "pip install 'tilewright[farm]'",
    "scheduler": "dask scheduler --port 8786",
    "worker": "dask worker {address} --resources {target}=1 --nthreads {slots} "
    "--preload explorer.farm.worker",
    "look": "tilewright farm {address}",
    "tune": "tilewright tune matmul m=512 n=512 k=512 --target {target} --workers {address}",
}
_WHERE = {
    "install": "everywhere, the same version",
    "scheduler": "once, where all reach it",
    "worker": "once for each GPU, or group of cores",
    "look": "which workers there are",
    "tune": "search with them",
}


@app.command(
    epilog=examples(
        "tilewright farm",
        "tilewright farm --target cuda",
    ),
)
def farm(
    address: Address = None,
    target: Target = "cpu",
    threads: Threads = None,
    form: OutputFormat = Format.text,
) -> int:
    """Say how to have other machines measure; of a scheduler, which workers it has.

    It starts nothing. Workers are grouped by the kind of their machine, of which each is a workload
    of its own. Ends with code 6 if no worker of the scheduler measures for the target.
    """
    from ir.target import get_backend

    get_backend(target)  # a misspelt name is a usage error
    if address is None:
        _print_commands(target, form)
        return EXIT_DONE
    from explorer.farm.farm import Farm

    with Farm(address) as there:
        found = there.survey(target, threads)
    if form is Format.json:
        print_json({"address": address, "target": target} | _facts(found))
    else:
        _print_survey(address, target, found)
    return EXIT_DONE if found.kinds else EXIT_TARGET


def _print_commands(target: str, form: Format) -> None:
    """What to type where; a worker of a card compiles some candidates while it measures another."""
    from explorer.runtime.base import get_runtime
    from explorer.runtime.known import RUNTIMES

    exclusive = target not in RUNTIMES or get_runtime(target).exclusive
    values = {"address": "tcp://HOST:8786", "target": target, "slots": 1 if exclusive else 4}
    told = {name: command.format(**values) for name, command in COMMANDS.items()}
    if form is Format.json:
        print_json({"commands": told})
        return
    for name, command in told.items():
        print(f"{_WHERE[name]}:\n  {command}")


def _facts(found: Survey) -> dict[str, Any]:
    kinds = [
        {"hardware": kind.key, "facts": dict(kind.hardware.facts), "isa": list(kind.hardware.isa)}
        | {"workers": list(kind.workers), "slots": kind.slots}
        for kind in found.kinds
    ]
    return {"kinds": kinds, "left_out": asdict(found)["left_out"]}


def _print_survey(address: str, target: str, found: Survey) -> None:
    for kind in found.kinds:
        print(_line(kind))
    for worker, why in found.left_out:
        print(f"{worker}: left out: {why}")
    if not found.kinds and not found.left_out:
        print(f"{address}: no workers; `tilewright farm --target {target}` says how to start some")


def _line(kind: Kind) -> str:
    count = len(kind.workers)
    workers = "1 worker" if count == 1 else f"{count} workers"
    return f"{kind.key}: {workers}, {kind.slots} candidates at a time ({', '.join(kind.workers)})"
