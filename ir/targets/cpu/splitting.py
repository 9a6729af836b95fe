"""The decision to split a reduced axis over threads: where it is offered, and what a schedule of
the whole program means for the split one.
"""

from __future__ import annotations

from functools import lru_cache

from ir.errors import ProgramError, UsageError
from ir.partition import stage_program
from ir.program import Program
from ir.residence import AS_USUAL, Residence, staged
from ir.rewrite.parting import cut, nested
from ir.rewrite.rested import rested
from ir.rewrite.split import split
from ir.rewrite.streaming import stream
from ir.schedule import Schedule, Value
from ir.stages import Stage, StagedProgram
from ir.targets.cpu.plan import operand_name
from ir.targets.cpu.shape import stage_shapes

WHOLE = "none"
PARTS = (2, 4, 8, 16)
GRAIN = 64  # parts are whole multiples of this, so that what may be read in place still may


@lru_cache(maxsize=128)
def split_program(program: Program, choice: str, residence: Residence = AS_USUAL) -> StagedProgram:
    """The staged program for a value of the decision: "none", or "axis:parts"."""
    if choice == WHOLE:
        return staged(program, residence)
    axis, _, parts = choice.partition(":")
    parted = _parted(program, axis, int(parts))
    if residence.streamed:
        parted = stream(parted, frozenset({f"{axis}_part"}))
    return stage_program(parted)


def _parted(program: Program, axis: str, parts: int) -> Program:
    """The program with its reductions over an axis in parts. Outputs along the axis go with those,
    each part having its own: a loss over everything and its gradient are one pass. What equal parts
    leave is reduced by itself. Raises UsageError where there are none."""
    if program.axes[axis] % (parts * GRAIN):
        return split(rested(program, axis, parts * GRAIN), axis, parts)
    try:
        return split(program, axis, parts)
    except UsageError as problem:
        if not any(axis in store.axes for _, store in program.stores()):
            raise
        try:
            return nested(cut(program, axis, parts), f"{axis}_part")
        except ProgramError:
            raise problem from None


def choices(
    program: Program, whole: StagedProgram, threads: int, residence: Residence = AS_USUAL
) -> tuple[str, ...]:
    """Values of the decision: every axis that is reduced, long enough, and can be merged, where
    operands live as usual."""
    found = [WHOLE]
    if threads == 1 or residence.flipped:
        return tuple(found)
    for axis, extent in program.axes.items():
        using = [stage for stage in whole.stages if axis in stage.domain]
        if not any(axis in stage.reduce for stage in using):
            continue
        for parts in PARTS:
            if parts >= threads and extent >= 4 * parts * GRAIN:
                if not _splits(program, axis, parts):
                    break
                found.append(f"{axis}:{parts}")
    return tuple(found)


def _splits(program: Program, axis: str, parts: int) -> bool:
    try:
        _parted(program, axis, parts)
    except UsageError:
        return False
    return True


def translated(
    schedule: Schedule, whole: StagedProgram, parted: StagedProgram, isa: tuple[str, ...]
) -> Schedule:
    """What a schedule means for the split program: the partial stages take the decisions of the
    stages they come from, the parts go to the threads, merges take their initial choices."""
    axis, _, _ = str(schedule["split"]).partition(":")
    part, inner = f"{axis}_part", f"{axis}_in"
    values: dict[str, Value] = {
        "parallel": part,
        "chunk": "block",
        f"tile.{part}.1": 1,
        "stream": bool(schedule.get("stream")),
    }
    for level in (0, 1):
        if f"tile.{axis}.{level}" in schedule:
            values[f"tile.{inner}.{level}"] = schedule[f"tile.{axis}.{level}"]
        order = [inner if a == axis else a for a in str(schedule.get(f"order.{level}", "")).split()]
        values[f"order.{level}"] = " ".join([part, *order] if level else order)
    for name, value in schedule.values:
        if name.startswith("tile.") and not name.startswith(f"tile.{axis}."):
            values[name] = value
    origins = _origins(whole, parted, axis)
    for shape in stage_shapes(parted, isa):
        origin = origins.get(shape.stage.name)
        if origin is None:
            values[f"lane.{shape.stage.name}"] = next(
                (a for a in shape.lanes if a != part), shape.lanes[0]
            )
            continue
        for name, value in schedule.values:
            kind, _, rest = name.partition(".")
            stage, dot, operand = rest.partition(".")
            if stage == origin and kind not in ("tile", "order"):
                renamed = _operands(whole, parted, origin, shape.stage).get(operand, operand)
                values[f"{kind}.{shape.stage.name}{dot}{renamed}"] = (
                    inner if value == axis else value
                )
    return Schedule.of(schedule.target, values)


def _operands(
    whole: StagedProgram, parted: StagedProgram, origin: str, stage: Stage
) -> dict[str, str]:
    """What the operands of a stage are called in the split program."""
    source = next(s for s in whole.stages if s.name == origin)
    pairs = zip(source.accumulators, stage.accumulators, strict=True)
    return {
        operand_name(whole, old): operand_name(parted, new)
        for left, right in pairs
        for old, new in zip(left.terms, right.terms, strict=False)
    }


def _origins(whole: StagedProgram, parted: StagedProgram, axis: str) -> dict[str, str]:
    """Split stage -> the stage of the whole program that it is a part of."""

    def back(axes: tuple[str, ...]) -> frozenset[str]:
        return frozenset(axis if a == f"{axis}_in" else a for a in axes if a != f"{axis}_part")

    def form(stage: Stage) -> tuple[object, ...]:
        return back(stage.domain), back(stage.reduce), len(stage.accumulators)

    found: dict[str, str] = {}
    free = list(whole.stages)
    for stage in parted.stages:
        if f"{axis}_part" in stage.reduce:
            continue
        origin = next((s for s in free if form(s) == form(stage)), None)
        if origin is not None:
            free.remove(origin)
            found[stage.name] = origin.name
    return found
