"""Chooses the form in which a stage is emitted, by its binding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ir.errors import Refusal
from ir.stages import Stage
from ir.targets.cpu.folded import FoldedLanes
from ir.targets.cpu.kept import KeptLanes
from ir.targets.cpu.tile_unit import TileStage

if TYPE_CHECKING:
    from ir.targets.cpu.lower import Lowering


def emit_stage(lowering: Lowering, stage: Stage) -> None:
    """Emit a stage on the current regions, by the form that its binding asks for."""
    binding = lowering.plan.bindings[stage.name]
    lowering.b.comment(f"{stage.name}: {', '.join(stage.domain)}")
    if binding.tiled:
        TileStage(lowering, stage).tiles()
        return
    if binding.lane in stage.reduce:
        if binding.dot.name != "fma":
            raise Refusal(
                "dot-lanes", f"{stage.name}: {binding.dot.name} needs lanes on a kept axis"
            )
        FoldedLanes(lowering, stage).tiles()
        return
    KeptLanes(lowering, stage).tiles()
