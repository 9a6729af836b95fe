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
    from ir.rewrite.forms import Form, Forms

SHOWN = 8  # forms that are left out
ScheduleOfKernel = Annotated[
    str, typer.Option(metavar="JSON", help="the schedule of --kernel, or @FILE")
]
AsKernel = Annotated[
    bool, typer.Option("--kernel", help="a schedule's kernels behind each pass, and their text")
]
AsForms = Annotated[
    bool, typer.Option("--forms", help="equal programs, how they are derived, and their work")
]


@app.command(
    epilog=examples(
        "tilewright show softmax m=64 n=1000",
        "tilewright show softmax m=64 n=1000 --streamed",
        "tilewright show row_scaled_matmul m=64 n=256 k=256 --forms",
    ),
)
def show(
    operator: OperatorName,
    words: Words = None,
    streamed: Annotated[bool, typer.Option(help="after the streaming rewrite")] = False,
    forms: AsForms = False,
    kernel: AsKernel = False,
    schedule: ScheduleOfKernel = "",
    target: Target = "cpu",
    hardware: Machine = None,
    form: OutputFormat = Format.text,
) -> None:
    """Print an operator's program, or the loops of a schedule's kernels before they are text."""
    from explorer.workload import Workload
    from ir.rewrite.streaming import stream, why_not

    if streamed + forms + kernel > 1:
        raise UsageError("--streamed and --forms print programs, --kernel kernels: give one")
    if kernel or forms:
        named = Workload.of(operator, arguments_of(operator, words), target).on(hardware)
        if kernel:
            _show_kernels(named, schedule, form)
        else:
            _show_forms(named, form)
        return
    if schedule:
        raise UsageError("--schedule goes with --kernel")
    if hardware:
        raise UsageError("--hardware goes with --kernel or --forms")
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


def _show_forms(workload: Workload, form: Format) -> None:
    from ir.target import HasForms

    backend = workload.backend
    if not isinstance(backend, HasForms):
        raise UsageError(f"target {workload.target} computes programs as they are written alone")
    found = backend.forms(workload.program, workload.hardware)
    if form is Format.json:
        offered = [_form_as_json(one) for one in found.offered]
        left = [{**_form_as_json(one), "why": why} for one, why in found.left_out]
        print_json({"known": found.known, "complete": found.complete, "offered": offered,
                    "left_out": left})  # fmt: skip
        return
    _print_forms(found)


def _form_as_json(form: Form) -> dict[str, object]:
    steps = [{"rule": step.rule, "node": step.node} for step in form.steps]
    return {"name": form.name, "seconds": form.work.seconds, "steps": steps,
            "text": str(form.program)}  # fmt: skip


def _print_forms(found: Forms) -> None:
    from ir.rewrite.forms import reason_of

    more = "" if found.complete else ", not all there are"
    print(f"# {found.known} equal programs{more}; {len(found.offered)} to choose from")
    for form in found.offered:
        print(f"\n# form {form.name}: {form.work.seconds:.3g} s of work on paper")
        for step in form.steps:
            print(f"# {step.rule} at %{step.node}: {reason_of(step.rule)}")
        print(form.program)
    for form, reason in found.left_out[:SHOWN]:
        print(f"# left out {form.name}: {reason}")
    if len(found.left_out) > SHOWN:
        print(f"# left out {len(found.left_out) - SHOWN} more, of no less work")


def _show_kernels(workload: Workload, schedule: str, form: Format) -> None:
    """Print the kernels of a schedule behind each pass, and their text."""
    found = _listings(workload, schedule)
    if form is Format.json:
        print_json({"kernels": [_as_json(one) for one in found]})
        return
    print("\n\n".join(map(str, found)))


def _listings(workload: Workload, schedule: str) -> tuple[Listing, ...]:
    from ir.target import ListsLoops

    name = workload.program.name
    if not isinstance(workload.backend, ListsLoops):
        raise UsageError(f"{name}: target {workload.target} makes no kernels by passes; cuda does")
    if not schedule:
        raise UsageError("--kernel prints the kernels of a schedule: give --schedule JSON or @FILE")
    chosen = read_schedule(schedule)
    workload.refuse_illegal(chosen)
    return workload.backend.listings(workload.program, chosen, workload.hardware)


def _as_json(one: Listing) -> dict[str, object]:
    return {
        "kernel": one.kernel,
        "order": one.order,
        "words": one.words,
        "passes": [{"pass": name, "text": text} for name, text in one.passes],
        "text": one.text,
    }
