"""Where a cluster may do the fix-up of a split sum: its size, and how its blocks share a tile."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ir.columns import Columns
from ir.schedule import Value
from ir.space import Constraint
from ir.targets.cuda.space.tensor import TensorKernel
from ir.targets.cuda.space.tensor_tiles import CLUSTERS

MOST = 8  # blocks of a cluster that every card of sm_90 runs (CUDA programming guide)
GRAIN = 8  # columns of which a block finishes whole groups


def exchange_fits(kernel: TensorKernel) -> Constraint:
    """The constraint on schedules with a fix-up in the cluster."""
    sizes = {name: prod(map(int, name.split("x"))) for name in CLUSTERS}

    def check(columns: Columns) -> Any:
        parts = kernel.parts(columns)
        blocks = columns.lookup("cluster", sizes) * parts
        processors = columns["processors"]
        fits = (blocks <= MOST) & ((processors == 0) | (blocks <= processors))
        fits &= kernel.columns_divide(columns, GRAIN) & columns.is_("partition", "rows")
        return ~kernel.exchanges(columns) | fits

    def explain(values: Mapping[str, Value]) -> str:
        size = sizes[str(values["cluster"])]
        return (
            f"split {values['split']} in clusters of {size}; up to {MOST} blocks, whose consumers "
            f"share rows and which finish whole groups of {GRAIN} columns"
        )

    needs = "the blocks that exchange sums are a cluster, and each finishes columns of its own"
    return Constraint("exchange", needs, check, explain)
