"""Kernels whose threads all do the same, run on terms, statement by statement."""

from __future__ import annotations

from collections.abc import Iterator

from ir.kernel.barriers import Team
from ir.kernel.body import COPY, Body
from ir.kernel.tile_kernel import (
    BARRIER,
    BEFORE,
    COMMIT_COPIES,
    COPIED,
    Do,
    If,
    Loop,
    Scope,
    Statement,
    Sync,
    TileKernel,
)
from ir.kernel.verify import Term


def events(
    body: tuple[Statement, ...], blocks: int, block: int = 0
) -> Iterator[Sync | tuple[Do, int]]:
    """What is done, and of which block, in the order of time."""
    for one in body:
        if isinstance(one, Do):
            yield one, one.at.value(block, blocks)
        elif isinstance(one, Sync):
            yield one
        elif isinstance(one, Loop):
            first, end = (at.value(block, blocks) for at in (one.first, one.end))
            for inside in range(first, end, one.step):
                yield from events(one.body, blocks, inside)
        elif not isinstance(one, If) or one.when.holds(block, blocks):
            assert isinstance(one, If | Scope)
            yield from events(one.body, blocks, block)


def values(kernel: TileKernel, loop: Body, blocks: int, waits: bool = True) -> dict[str, Term]:
    """What is there behind a kernel with the loop body `loop`. OrderError where threads use what
    is not there; without `waits`, everything is done at once."""
    shared = loop.shared | {one.name for one in kernel.tiles if one.residence == "shared"}
    body = Body(kernel.operations, loop.local, loop.places, shared)
    team, copies = Team(), 0
    for one in events(kernel.body, blocks):
        if not isinstance(one, Sync):
            copies += kernel.operation(one[0].operation).unit == COPY
            _do(team, body, loop, *one)
            if not waits:
                team.wait(0)
                team.meet()
        elif one.kind == COPIED:
            team.wait(one.number)
        elif one.kind == BARRIER:
            team.meet()
        elif one.kind == COMMIT_COPIES:
            if not copies:
                team.running.append(("nothing", None, {}))
            copies = 0
        else:
            assert one.kind == BEFORE
    assert not team.running
    return team.values


def _do(team: Team, body: Body, loop: Body, one: Do, block: int) -> None:
    """An operation; outside of the loop it may write all places of a value."""
    inside = any(one.operation == other.name for other in loop.operations)
    turns = dict(body.places)
    many = max(
        (turns.get(v, 1) for v in body.operations[body.place(one.operation)].writes), default=1
    )
    for iteration in (block,) if inside else range(many):
        team.do(body, body.place(one.operation), iteration)
