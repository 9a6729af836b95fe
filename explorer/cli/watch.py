"""tilewright watch: a live page about the jobs of a store, for a browser of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.app import Records, app, examples

if TYPE_CHECKING:
    from explorer.live.server import LiveServer
    from records import Address

LOOPBACK = "127.0.0.1"
PORT = 8714


@app.command(
    epilog=examples(
        "tilewright watch",
        "tilewright watch JOB --port 0",
    ),
)
def watch(
    job: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="identifier or its first letters; else all jobs"),
    ] = None,
    records: Records = None,
    host: Annotated[
        str, typer.Option(help="address to serve on; anyone who reaches it sees the records")
    ] = LOOPBACK,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="port to serve on; 0 takes any that is free")
    ] = PORT,
) -> None:
    """Serve a page that follows the jobs of a store as they run, until Ctrl-C.

    It shows jobs, machines and what runs where, and of a job its course, failures, the accuracy of
    its model and the best schedule. The store is only read, and nothing is fetched from elsewhere.
    """
    from explorer.live.server import LiveServer
    from explorer.recall import existing_address

    where = existing_address(records)
    anchor = _checked(where, job)
    with LiveServer(where, host, port) as server:
        print(f"serving {where} at {server.url}{anchor}; Ctrl-C ends it", flush=True)
        _serve(server)


def _checked(where: Address, job: str | None) -> str:
    """The job's place on the page, if there is such a job; raises StoreError, UnknownJob."""
    from explorer.recall import open_store

    with open_store(where, read_only=True) as store:
        return "" if job is None else f"#{store.job(job).id}"


def _serve(server: LiveServer) -> None:
    """Until Ctrl-C, which is how it is meant to end."""
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print("no longer served")
