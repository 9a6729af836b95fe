"""tilewright show: an operator's program as text, as written and as streamed."""

from __future__ import annotations

from typing import Annotated

import typer

from explorer.cli.app import (
    Format,
    OperatorName,
    OutputFormat,
    Words,
    app,
    arguments_of,
    examples,
    print_json,
)


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
    form: OutputFormat = Format.text,
) -> None:
    """Print an operator's program."""
    from explorer.workload import Workload
    from ir.rewrite.streaming import stream, why_not

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
