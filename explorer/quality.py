"""How well a search's model knew each batch before it was told, as a job's options keep it.

Numbers in and out; nothing is fitted here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from explorer.strategies.guide import Quality

QUALITY = "quality"  # of a job's options: rows of numbers
Row = tuple[float, float, float, float]


def quality_facts(found: Sequence[Quality]) -> list[list[float]]:
    """A row for each batch: trials told with it, rank correlation, regret, the prior's share."""
    return [
        [one.trials + one.batch, *(round(n, 4) for n in (one.correlation, one.regret, one.prior))]
        for one in found
    ]


def quality_rows(options: Mapping[str, Any]) -> list[Row]:
    """What `quality_facts` put into options; what is none, as another's store may have, is left."""
    told = options.get(QUALITY, [])
    return [row for found in told if (row := _row(found))] if isinstance(told, list) else []


def _row(found: object) -> Row | None:
    if not isinstance(found, list) or len(found) != 4:
        return None
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in found):
        return None
    trial, correlation, regret, prior = map(float, found)
    return trial, correlation, regret, prior
