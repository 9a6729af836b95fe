"""Seeds of programs of several kernels, of what each kernel's estimates say is fastest of its own.

Lists of seeds are joined by their places, so that the best of one kernel stands beside any of the
others. What each costs is told by its own decisions alone: so the best of all are put together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ir.columns import Decision, columns_of
from ir.schedule import Value
from ir.targets.cuda.cost.features import Features

MOST = 4  # seeds that are put together: of the best of each kernel, of the next, and so on


def assembled(
    seeds: Sequence[dict[str, Value]], decisions: Sequence[Decision], features: Features
) -> list[dict[str, Value]]:
    """Those of the best of each kernel among `seeds`; none for a kernel alone."""
    if len(features.kernels) < 2 or not seeds:
        return []
    columns = columns_of(decisions, seeds)
    found = [dict(seeds[0]) for _ in range(MOST)]
    for kernel, costs in zip(features.kernels, features.costs, strict=True):
        clocks, legal = costs.times(columns)["clocks"], costs.legal(columns)
        names = [decision.name for decision in kernel.decisions()]
        best = _distinct(np.where(legal, clocks, np.inf), seeds, names)
        for seed, place in zip(found, best, strict=False):
            seed.update({name: seeds[place][name] for name in names if name in seeds[place]})
    return [seed for n, seed in enumerate(found) if seed not in found[:n]]


def _distinct(
    clocks: NDArray[np.float64], seeds: Sequence[dict[str, Value]], names: Sequence[str]
) -> list[int]:
    """Places of the fastest that differ in what the kernel reads; the last one again if there are
    fewer."""
    found: list[int] = []
    known = set[tuple[Value | None, ...]]()
    for place in np.argsort(clocks, kind="stable").tolist():
        own = tuple(seeds[place].get(name) for name in names)
        if len(found) == MOST or not np.isfinite(clocks[place]):
            break
        if own not in known:
            known.add(own)
            found.append(place)
    return found + found[-1:] * (MOST - len(found))
