"""What nodes that are computed of coordinates alone are at some points, without any input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ir.ops.base import Environment, TileArray
from ir.program import Program


def values_of(
    program: Program,
    positions: Iterable[int],
    coordinates: Mapping[str, NDArray[Any]],
    given: Mapping[int, TileArray] | None = None,
) -> dict[int, TileArray]:
    """What each of `positions`, arguments before what is made of them, is at the points that
    `coordinates` names of each axis; `given` nodes are so already."""
    made = dict(given or {})
    for position in positions:
        if position not in made:
            node = program.nodes[position]
            types = [program.nodes[arg].type for arg in node.args]
            here = Environment(program.scope, {}, coordinates, types=types)
            with np.errstate(all="ignore"):
                made[position] = node.op.meaning([made[arg] for arg in node.args], here)
    return made
