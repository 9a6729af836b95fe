"""tilewright report: one self-contained page about a job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.app import Records, app
from ir.errors import UsageError


@app.command()
def report(
    job: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="identifier or its first letters; else the newest"),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="PAGE.html", help="the file to write")] = Path(
        "report.html"
    ),
    records: Records = None,
) -> None:
    """Write a page about a job: its course, the space, the roofline, failures, the best kernel.

    The page is one file that needs no network.
    """
    from explorer.recall import existing_store
    from explorer.report.page import render
    from explorer.story import read_story

    if out.is_dir():
        raise UsageError(f"--out {out}: a folder is in the way; name a file")
    with existing_store(records) as store:
        page = render(read_story(store, job))
    try:
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror or error}") from None
    print(f"wrote {out}")
