"""Sums of which several blocks have parts, as text: how a block goes on with whole ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ir.targets.cuda.grid.tensor_exchange import Exchange
from ir.targets.cuda.text import scalars
from ir.targets.cuda.text.registers import Fragment

if TYPE_CHECKING:
    from ir.targets.cuda.lower.tensor_consumer import ConsumerPrinter


@contextmanager
def whole_sums(printer: ConsumerPrinter) -> Iterator[None]:
    """What is printed inside has the sums of all blocks."""
    e, plan = printer.e, printer.plan
    sums = [
        (e.values[one], scalars.register_type(printer.nodes[one].dtype)) for one in plan.roles.sums
    ]
    if plan.exchanges:
        Exchange(plan).whole(printer.w, sums, e.team.sync)
        _take_own(printer, [fragment for fragment, _ in sums])
        yield
        return
    with printer.lowering.meeting().whole(printer.w, sums):
        yield


def _take_own(printer: ConsumerPrinter, sums: Sequence[Fragment]) -> None:
    """Go on with the columns that are this block's own, at the front of all sums."""
    e, plan = printer.e, printer.plan
    axis, own = plan.column_axis, plan.tile_columns // plan.parts
    origin = printer.w.name(f"{axis}_own")
    printer.w.line(f"const i32 {origin} = {e.origins.get(axis, '0')} + own_part * {own};")
    e.origins[axis] = origin
    e.frame, e.tiles = plan.own_frame, {**plan.tiles, axis: own}
    e.values = {
        position: replace(one, digits=e.own(printer.nodes[position].axes), row=own // 2)
        for position, one in zip(plan.roles.sums, sums, strict=True)
    }
