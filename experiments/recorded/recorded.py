"""A recorded space in T4 as a space of ours and a table of times, and how well a search did in it.

Knows the file format and the score; no strategy.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from ir.schedule import Schedule, Value  # noqa: E402
from ir.space import Columns, Constraint, Decision, Matrix, Space  # noqa: E402

Times = NDArray[np.float64]
BUDGET, FIRST = 200, 20  # evaluations; the score is the mean from the first on
MARKS = (25, 50, 100, 200)


@dataclass(frozen=True)
class Recorded:
    """Times by place in the product of the domains: NaN failed, infinity was not recorded."""

    name: str
    domains: dict[str, tuple[Value, ...]]
    table: Times

    @classmethod
    def load(cls, path: Path) -> Recorded:
        """Read a T4 file, gzipped or not. Only ratios of times matter here, and so no unit."""
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt") as stream:
            results = json.load(stream)["results"]
        domains = _domains([result["configuration"] for result in results])
        table = np.full([len(domain) for domain in domains.values()], np.inf)
        places = {name: {v: n for n, v in enumerate(values)} for name, values in domains.items()}
        for result in results:
            given = result["configuration"]
            table[tuple(places[name][given[name]] for name in domains)] = _time(result)
        name = path.name.removesuffix(".gz").removesuffix(".json")
        return cls(name, domains, table)

    @cached_property
    def space(self) -> Space:
        """The recorded schedules; nothing but that they were recorded is known of the rules."""
        decisions = tuple(
            Decision(name, domain, "tile", name, "recorded")
            for name, domain in self.domains.items()
        )

        def known(columns: Columns) -> NDArray[np.bool_]:
            return ~np.isposinf(self.times(np.stack([columns.codes(n) for n in names], axis=1)))

        names = tuple(self.domains)
        rule = Constraint("recorded", "a recorded schedule", known, lambda values: "not recorded")
        return Space("recorded", decisions, (rule,))

    def times(self, matrix: Matrix) -> Times:
        return np.asarray(self.table[tuple(matrix.T)])

    def time(self, schedule: Schedule) -> float:
        """Its time, infinity for a failure."""
        seconds = float(self.times(self.space.encode(schedule)[None])[0])
        return math.inf if math.isnan(seconds) else seconds

    @cached_property
    def ranked(self) -> Times:
        """All that was recorded, the fastest first, failures (infinity) last."""
        known = self.table[~np.isposinf(self.table)]
        return np.sort(np.where(np.isnan(known), np.inf, known))

    @property
    def optimum(self) -> float:
        return float(self.ranked[0])

    @cached_property
    def random(self) -> Times:
        """Expected best of 1, 2, ... `BUDGET` draws without replacement; a failure is a draw.

        The k-th fastest of N is the best of n with odds C(N - k, n - 1) / C(N, n). As long as
        nothing but failures was drawn the slowest time stands.
        """
        times = np.where(np.isinf(self.ranked), np.nanmax(self.table[np.isfinite(self.table)]),
                         self.ranked)  # fmt: skip
        total = len(times)
        behind = total - 1 - np.arange(total)  # slower than each
        expected = []
        for draws in range(1, BUDGET + 1):
            logs = _log_choose(behind, draws - 1) - _log_choose(np.array([total]), draws)
            expected.append(float(np.exp(logs) @ times))
        return np.array(expected)

    def course(self, times: Times) -> Times:
        """Best time after 1, 2, ... `BUDGET` evaluations; a search that ended has what it found."""
        told = np.full(BUDGET, np.inf)
        told[: min(len(times), BUDGET)] = times[:BUDGET]
        best = np.minimum.accumulate(told)
        return np.where(np.isinf(best), np.max(self.ranked[np.isfinite(self.ranked)]), best)

    def score(self, courses: Times) -> Times:
        """P after each evaluation from `FIRST` on, of courses [seed, evaluation]: 0 what random
        draws find, 1 the optimum."""
        found = courses.mean(axis=0)
        return np.asarray((self.random - found) / (self.random - self.optimum))[FIRST - 1 :]


def _log_choose(items: NDArray[np.int64], chosen: int) -> Times:
    """log of C(items, chosen), minus infinity where there are too few."""
    logs = np.array([math.lgamma(n + 1) for n in range(int(items.max()) + 1)])
    enough = items >= chosen
    rest = np.maximum(items - chosen, 0)
    return np.where(enough, logs[items] - logs[rest] - math.lgamma(chosen + 1), -np.inf)


def _domains(configurations: list[dict[str, Any]]) -> dict[str, tuple[Value, ...]]:
    """The values of each decision that has several, numbers in their order."""
    found: dict[str, tuple[Value, ...]] = {}
    for name in configurations[0]:
        values = {configuration[name] for configuration in configurations}
        if len(values) > 1:
            found[name] = tuple(sorted(values, key=lambda value: (str(type(value)), value)))
    return found


def _time(result: dict[str, Any]) -> float:
    if result["invalidity"] != "correct":
        return math.nan
    by_name = {entry["name"]: entry["value"] for entry in result["measurements"]}
    return float(by_name[result["objectives"][0]])
