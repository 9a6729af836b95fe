"""tilewright show: an operator's program as text, as written and as streamed."""

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
)
from ir.errors import UsageError

if TYPE_CHECKING:
    from explorer.workload import Workload
    from ir.rewrite.forms import Form, Forms

SHOWN = 8  # forms that are left out


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
    forms: Annotated[
        bool, typer.Option("--forms", help="equal programs, how they are derived, and their work")
    ] = False,
    target: Target = "cpu",
    hardware: Machine = None,
    form: OutputFormat = Format.text,
) -> None:
    """Print an operator's program."""
    from explorer.workload import Workload
    from ir.rewrite.streaming import stream, why_not

    if forms:
        named = Workload.of(operator, arguments_of(operator, words), target)
        _show_forms(named.on(hardware), form)
        return
    if hardware is not None:
        raise UsageError("--hardware goes with --forms; a program is the same on all of them")
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
        offered = [_as_json(one) for one in found.offered]
        left = [{**_as_json(one), "why": why} for one, why in found.left_out]
        print_json({"known": found.known, "complete": found.complete, "offered": offered,
                    "left_out": left})  # fmt: skip
        return
    _print_forms(found)


def _as_json(form: Form) -> dict[str, object]:
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
