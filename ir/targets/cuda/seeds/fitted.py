"""Seeds fitted to a kernel: rings with as many slots as shared memory has room for.

Seeds are written for tiles of one type; what a kernel copies beside them, or wider, takes the room
of some of their slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ir.columns import Columns, Decision, columns_of
from ir.schedule import Value

FEWEST = 2  # slots of a ring


def with_room(
    seeds: Iterable[dict[str, Value]], decisions: Sequence[Decision], stages: str,
    over: Callable[[Columns], Any],
) -> list[dict[str, Value]]:  # fmt: skip
    """The seeds, those that are `over` what there is with fewer of `stages`, as few as it takes."""
    found = [dict(seed) for seed in seeds]
    places = [n for n, seed in enumerate(found) if int(seed.get(stages, FEWEST)) > FEWEST]
    while places:
        large = np.flatnonzero(over(columns_of(decisions, [found[n] for n in places])))
        places = [places[row] for row in large]
        for place in places:
            found[place][stages] = int(found[place][stages]) - 1
        places = [place for place in places if int(found[place][stages]) > FEWEST]
    return found
