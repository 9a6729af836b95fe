"""How coarse functions may be for the outputs that are made of them, node by node."""

from __future__ import annotations

import math
from functools import lru_cache

from ir.dtypes import is_float
from ir.ops.recur import Recur
from ir.ops.store import Store
from ir.program import Program
from ir.roundoff import FORMATS


@lru_cache(maxsize=256)
def coarsest(program: Program) -> tuple[float, ...]:
    """Of each node the least unit roundoff of the floats that are stored of it, where all of these
    are narrower than f32; else 0, as of what a state is made of, which all later steps read."""
    found = [math.inf] * len(program.nodes)
    for position in reversed(range(len(program.nodes))):
        op = program.nodes[position].op
        if isinstance(op, Recur):
            found[position] = 0.0
        elif isinstance(op, Store):
            dtype = program.scope.tensors[op.tensor].dtype
            if is_float(dtype):
                unit = FORMATS[dtype].unit
                found[position] = unit if unit > FORMATS["f32"].unit else 0.0
        for arg in program.nodes[position].args:
            found[arg] = min(found[arg], found[position])
    return tuple(0.0 if math.isinf(unit) else unit for unit in found)
