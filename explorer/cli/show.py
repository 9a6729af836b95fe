"""tilewright show: an operator's program as text, as written and as streamed; loops of kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.app import (
    Format,
    Machine,
    OperatorName,
    OutputFormat,
    Target,
    Words,
    app,
    arguments_of,
    examples,
    print_json,
    read_schedule,
)
from ir.errors import UsageError

if TYPE_CHECKING:
    from explorer.workload import Workload
    from ir.kernel.listing import Listing

ScheduleOfKernel = Annotated[
    str, typer.Option(metavar="JSON", help="the schedule of --kernel, or @FILE")
]
AsKernel = Annotated[
    bool, typer.Option("--kernel", help="the loops of a schedule's kernels, and their text")
]


@app.command(
    epilog=examples(
        "tilewright show softmax m=64 n=1000",
        "tilewright show softmax m=64 n=1000 --streamed",
    ),
)
def show(
    operator: OperatorName,
    words: Words = None,
    streamed: Annotated[bool, typer.Option(help="after the streaming rewrite")] = False,
    kernel: AsKernel = False,
    schedule: ScheduleOfKernel = "",
    target: Target = "cpu",
    hardware: Machine = None,
    form: OutputFormat = Format.text,
) -> None:
    """Print an operator's program, or the loops of a schedule's kernels before they are text."""
    from explorer.workload import Workload
    from ir.rewrite.streaming import stream, why_not

    if kernel:
        if streamed:
            raise UsageError("--streamed prints a program, --kernel kernels: one of the two")
        named = Workload.of(operator, arguments_of(operator, words), target)
        _show_kernels(named.on(hardware), schedule, form)
        return
    if schedule or hardware:
        raise UsageError(f"{'--schedule' if schedule else '--hardware'} goes with --kernel")
    program = Workload.of(operator, arguments_of(operator, words)).program
    apart = why_not(program) if streamed else {}
    shown = stream(program) if streamed else program
    if form is Format.text:
        print(shown)
        for node, reason in apart.items():
            print(f"# node {node} stays a pass of its own: {reason}")
        return
    tensors = [
        {"name": t.name, "shape": t.shape, "dtype": t.dtype, "role": t.role} for t in shown.tensors
    ]
    print_json(
        {
            "name": shown.name,
            "text": str(shown),
            "axes": shown.axes,
            "tensors": tensors,
            "flops": shown.flops,
            "bytes": shown.bytes,
            "key": shown.key,
            "apart": {str(node): reason for node, reason in apart.items()},
        }
    )


def _show_kernels(workload: Workload, schedule: str, form: Format) -> None:
    """Print what the kernels of a schedule do in their main loops."""
    found = _listings(workload, schedule)
    if form is Format.json:
        print_json({"kernels": [_as_json(one) for one in found]})
        return
    print("\n\n".join(map(str, found)))


def _listings(workload: Workload, schedule: str) -> tuple[Listing, ...]:
    from ir.target import ListsLoops

    name = workload.program.name
    if not isinstance(workload.backend, ListsLoops):
        raise UsageError(f"{name}: the {workload.target} target has no loop bodies; cuda has some")
    if not schedule:
        raise UsageError("--kernel prints the kernels of a schedule: give --schedule JSON or @FILE")
    chosen = read_schedule(schedule)
    workload.refuse_illegal(chosen)
    found = workload.backend.listings(workload.program, chosen, workload.hardware)
    if all(one.body is None for one in found):
        kernels = ", ".join(one.kernel for one in found)
        raise UsageError(f"{name}: no kernel of this schedule has a loop body yet: {kernels}")
    return found


def _as_json(one: Listing) -> dict[str, object]:
    return {
        "kernel": one.kernel,
        "loop": one.loop,
        "body": None if one.body is None else str(one.body),
        "order": one.order,
        "words": one.words,
        "steps": one.steps,
        "text": one.text,
    }
