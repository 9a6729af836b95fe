"""What may be better at one member than any schedule of another: neighbours of those that fit.

Rows that are dealt four at a time suit twelve rows, not seven, and no member near by was asked for
seven. A model of all that the family's members took ranks the schedules that differ from good
ones in one decision.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from explorer.shapes.family import Point
from explorer.shapes.learnt import Learnt, row_in
from ir.schedule import Schedule

_PARENTS = 4  # of the schedules given, those whose neighbours are ranked


def variants(
    learnt: Learnt, point: Point, schedules: Sequence[Schedule], count: int
) -> list[Schedule]:
    """Up to `count` legal schedules one decision away from the first of `schedules`, which are of
    this member, the most promising first: only those expected to beat all of `schedules`."""
    if not learnt.ready:
        return []
    space = learnt.space(point)
    rows = [row for one in schedules if (row := row_in(space, one)) is not None]
    if not rows:
        return []
    known = np.array(rows, dtype=np.int16)
    near = [space.neighbours(row) for row in known[:_PARENTS]]
    given = {row.tobytes() for row in known}  # keys are faster than sorting rows
    pool = {row.tobytes(): row for row in np.concatenate(near)}
    others = [row for key, row in pool.items() if key not in given]
    if not others:
        return []
    fresh = np.array(others, dtype=np.int16)
    told, bar = learnt.seconds(point, fresh), learnt.seconds(point, known).min()
    order = np.argsort(told, kind="stable")[:count]
    return [space.schedule(fresh[number]) for number in order if told[number] < bar]
