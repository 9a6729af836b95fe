"""How many registers the tiles of a draft need at once.

A bound for the search, not an allocation: what streams through elementwise ops or into a product a
step at a time counts for one step only.
"""

from __future__ import annotations

from collections.abc import Mapping

from ir.layout.synthesis.digits import Space
from ir.layout.synthesis.planner import (
    ConvertDraft,
    DirectDraft,
    Draft,
    GemmDraft,
    MapDraft,
    ReduceDraft,
    SharedDraft,
    StepDraft,
)

REGISTER = 32
STREAM = 4
"""Registers of a tile that streams: one 16-byte access."""


def registers_needed(space: Space, draft: Draft) -> int:
    """32-bit registers of a thread for the tiles that are live at once, at the worst step."""
    whole = {
        name: -(-space.size(spread.values) * tile.bits // REGISTER)
        for name, tile, spread in draft.versions
    }
    sizes = whole | _streamed(space, draft, whole)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for at, step in enumerate(draft.steps):
        reads, writes = _touched(step)
        first.update((name, 0) for name in reads if name not in first)
        first.update((name, at) for name in writes if name not in first)
        last.update((name, at) for name in (*reads, *writes))
    change = [0] * (len(draft.steps) + 1)
    for name, start in first.items():
        change[start] += sizes[name]
        change[last[name] + 1] -= sizes[name]
    live = most = 0
    for step_change in change:
        live += step_change
        most = max(most, live)
    return most


def _streamed(space: Space, draft: Draft, whole: Mapping[str, int]) -> dict[str, int]:
    """Tiles that need not be there whole -> the registers of a step. Such a tile is made by loads
    and maps alone, and read by maps, stores and products alone."""
    found: dict[str, int] = {}
    kept: set[str] = set()
    for step in draft.steps:
        reads, writes = _touched(step)
        if isinstance(step, GemmDraft):
            repeats = space.size(step.tiling.repeats["k"])
            kept.update(writes)
            for name in reads:
                found[name] = max(found.get(name, 0), -(-whole[name] // repeats))
        elif isinstance(step, ConvertDraft | ReduceDraft):
            kept.update((*reads, *writes))
        else:
            kept.update(name for name in reads if name in writes)
            for name in (*reads, *writes):
                found[name] = max(found.get(name, 0), min(whole[name], STREAM))
    return {name: size for name, size in found.items() if name not in kept}


def _touched(step: StepDraft) -> tuple[list[str], list[str]]:
    """Register tiles that a step reads and writes."""
    if isinstance(step, ConvertDraft):
        return [step.source[0]], [step.target[0]]
    if isinstance(step, MapDraft):
        return [name for name, _ in step.inputs], [step.output[0]]
    if isinstance(step, ReduceDraft):
        return [step.input[0]], [step.output[0]]
    if isinstance(step, GemmDraft):
        read = [name for name, spread in zip(step.names, step.spreads, strict=True) if spread]
        return [name for name in read if name != step.names[2]], [step.names[2]]
    assert isinstance(step, DirectDraft | SharedDraft)
    if step.register is None:
        return [], []
    return ([], [step.register[0]]) if step.load else ([step.register[0]], [])
