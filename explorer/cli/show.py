"""tilewright show: an operator's program as text, as written and as streamed."""

from __future__ import annotations

from typing import Annotated

import typer

from explorer.cli.app import OperatorName, Words, app, pairs


@app.command()
def show(
    operator: OperatorName,
    words: Words = None,
    streamed: Annotated[bool, typer.Option(help="after the streaming rewrite")] = False,
) -> None:
    """Print an operator's program."""
    from explorer.workload import Workload
    from ir.rewrite.streaming import stream, why_not

    program = Workload.of(operator, pairs(words)).program
    if not streamed:
        print(program)
        return
    print(stream(program))
    for node, reason in why_not(program).items():
        print(f"# node {node} stays a pass of its own: {reason}")
