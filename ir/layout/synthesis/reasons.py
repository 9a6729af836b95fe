"""Why a solution is as it is: who decided each tile, what was passed over, with the numbers.

Reads a candidate; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ir.layout.synthesis.bulk import Boxes
from ir.layout.synthesis.candidate import Candidate
from ir.layout.synthesis.copies import Access
from ir.layout.synthesis.digits import Space
from ir.layout.synthesis.gemm import Tiling
from ir.layout.synthesis.planner import ConvertDraft, DirectDraft, GemmDraft, ReduceDraft
from ir.layout.synthesis.problem import TileProgram
from ir.layout.synthesis.solution import Reason
from ir.layout.synthesis.uses import GlobalUse, SharedChoice


def reasons(
    space: Space,
    program: TileProgram,
    candidate: Candidate,
    chosen: Mapping[str, SharedChoice],
) -> Iterator[Reason]:
    """All reasons of one solution, in a fixed order."""
    yield from _extensions(program)
    for name, origin in candidate.origins.items():
        yield Reason(name, "decided", origin.op, "spread", origin.text)
    for name, choice in chosen.items():
        yield Reason(name, "decided", -1, "placement", _placement(space, candidate, name, choice))
        for op, refused in dict.fromkeys(choice.rejections):
            yield Reason(name, "refused", op, refused.code, refused.text)
        yield from _fallbacks(candidate, name, choice)
    for name, op, refused in candidate.draft.rejections:
        yield Reason(name, "refused", op, refused.code, refused.text)
    for step in candidate.draft.steps:
        if isinstance(step, GemmDraft):
            yield from _permutations(space, program, step.tiling, step.names[2])
        elif isinstance(step, ReduceDraft):
            yield _replication(space, step)
        elif isinstance(step, ConvertDraft):
            plan = step.conversion
            text = f"{step.why}: {plan.price_class} conversion for {plan.cycles:g} cycles"
            yield Reason(step.target[0], "note", step.op, "conversion", text)
        elif isinstance(step, DirectDraft) and step.access.bits < 128:
            yield _narrow(space, step)


def _extensions(program: TileProgram) -> Iterator[Reason]:
    """Axes that are wider than what is there, told of the first tile that has them."""
    for axis, bound in program.bounds:
        tile = next(tile for tile in program.tiles if axis in tile.names)
        text = (
            f"{bound} points on axis {axis} are spread as {dict(tile.axes)[axis]}, "
            f"which {program.threads} threads divide"
        )
        yield Reason(tile.name, "note", -1, "extension", text)


def _placement(space: Space, candidate: Candidate, name: str, choice: SharedChoice) -> str:
    place = choice.placement
    axis = space.axis[place.order[0]] if place.order else "nothing"
    ways = ", ".join(map(str, choice.ways)) or "none"
    others = ", ".join(
        f"{other.cycles:g}" for other in candidate.shared[name] if other is not choice
    )
    return (
        f"{axis} contiguous, swizzle {place.swizzle} on bytes: conflict ways {ways}; "
        f"{choice.cycles:g} cycles, other layouts {others or 'none'}"
    )


def _fallbacks(candidate: Candidate, name: str, choice: SharedChoice) -> Iterator[Reason]:
    """Copies that did not get TMA, with the last thing said against it."""
    uses = candidate.draft.uses[name]
    for use, decision in zip(uses, choice.decisions, strict=True):
        if not isinstance(use, GlobalUse) or isinstance(decision, Boxes):
            continue
        assert isinstance(decision, Access)
        against = [why for op, why in choice.rejections if op == use.op]
        if against:
            how = " + ".join(decision.instructions)
            text = f"{how} of {decision.bits} bits instead of TMA: {against[0].text}"
            yield Reason(name, "fallback", use.op, against[0].code, text)


def _permutations(
    space: Space, program: TileProgram, tiling: Tiling, name: str
) -> Iterator[Reason]:
    """Axes that the instruction does not count in their natural order."""
    for letter in "mnk":
        own = tiling.ordered(letter)
        steps = [space.step[digit] for digit in own]
        if steps == sorted(steps) and (not own or own == space.of[space.axis[own[0]]][: len(own)]):
            continue
        axis = space.axis[own[0]]
        text = (
            f"{tiling.choice.row.name} counts its {letter} along {axis} in steps of {steps}, "
            f"so that what it reads or feeds lies where it is"
        )
        yield Reason(name, "note", tiling.choice.op, f"{letter}-permutation", text)


def _replication(space: Space, step: ReduceDraft) -> Reason:
    places = space.replicated(step.output[1].threads)
    where = ", ".join(f"{extent} at thread stride {stride}" for stride, extent in places)
    text = f"the result is the same in {where} threads" if places else "the result is held once"
    return Reason(step.output[0], "note", step.op, "replication", text)


def _narrow(space: Space, step: DirectDraft) -> Reason:
    """A copy to or from global memory that moves less than 16 bytes a thread."""
    held = space.size(step.register[1].values)
    text = (
        f"{step.access.instructions[0]} moves {step.access.bits} bits: a thread holds {held} "
        f"elements of {step.register[0]}, {space.size(step.access.elements)} side by side in memory"
    )
    return Reason(step.register[0], "note", step.op, "vector-width", text)
