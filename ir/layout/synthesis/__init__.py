"""Synthesis: from tiles and ops to a layout for every tile and an instruction for every copy.

The public surface: problems, solutions, `synthesise`. It knows no programs: `ir.blocks` makes
problems of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ir.lazily import exports

if TYPE_CHECKING:
    from ir.layout.synthesis.problem import Pins, Tile, TileOp, TileProgram
    from ir.layout.synthesis.search import synthesise
    from ir.layout.synthesis.solution import (
        ConvertPlan,
        CopyPlan,
        DescriptorPlan,
        GemmPlan,
        MapPlan,
        Move,
        Reason,
        ReducePlan,
        Solution,
        TilePlan,
        TmaPlan,
    )

__all__ = [
    "ConvertPlan",
    "CopyPlan",
    "DescriptorPlan",
    "GemmPlan",
    "MapPlan",
    "Move",
    "Pins",
    "Reason",
    "ReducePlan",
    "Solution",
    "Tile",
    "TileOp",
    "TilePlan",
    "TileProgram",
    "TmaPlan",
    "synthesise",
]

__getattr__ = exports(
    __name__,
    {
        "ConvertPlan": "solution",
        "CopyPlan": "solution",
        "DescriptorPlan": "solution",
        "GemmPlan": "solution",
        "MapPlan": "solution",
        "Move": "solution",
        "Pins": "problem",
        "Reason": "solution",
        "ReducePlan": "solution",
        "Solution": "solution",
        "Tile": "problem",
        "TileOp": "problem",
        "TilePlan": "solution",
        "TileProgram": "problem",
        "TmaPlan": "solution",
        "synthesise": "search",
    },
)
