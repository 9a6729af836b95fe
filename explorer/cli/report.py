"""tilewright report: one self-contained page about a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.app import OperatorFiles, Records, app, examples
from explorer.cli.places import refuse_unwritable_file


@app.command(
    epilog=examples(
        "tilewright report",
        "tilewright report JOB --out page.html",
        "tilewright report --run --no-disassembly",
    ),
)
def report(
    job: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="identifier or its first letters; else the newest"),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="PAGE.html", help="the file to write")] = Path(
        "report.html"
    ),
    run: Annotated[
        bool, typer.Option("--run", help="all jobs of the run that the job is of, on one page")
    ] = False,
    disassembly: Annotated[
        bool, typer.Option(help="with the best kernel's machine code and its hot loop")
    ] = True,
    records: Records = None,
    operators: OperatorFiles = None,
) -> None:
    """Write a page about a job: its course, the space, the roofline, failures, the best kernel.

    The page is one file that needs no network; the library that draws its charts is in it.
    """
    from explorer import write_report

    refuse_unwritable_file("--out", out)
    write_report(
        out, job, run=run, disassembly=disassembly, store=records, operators=operators or ()
    )
    print(f"wrote {out}")
