"""How a target's estimates order what was measured: recorded workloads of block kernels on CUDA.

    python experiments/model/estimates.py [RECORDS.jsonl.xz ...]

Of each workload with twenty schedules or more that this version still takes: the rank correlation
of estimates and times, and how much longer the schedules that look fastest take than the best on
record, those of the first place and the best of eight. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, median

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

import numpy as np  # noqa: E402

from explorer.strategies.opening import estimates  # noqa: E402
from explorer.workload import Workload  # noqa: E402
from ir.errors import TilewrightError  # noqa: E402
from ir.schedule import Schedule  # noqa: E402

LEAST = 20  # schedules of a workload
FIRST = 8  # schedules that look fastest
TIED = 0.002  # powers of two between estimates that are alike
OTHERS = ("engine", "residence", ".py:")  # words of what is no block kernel alone

Times = dict[str, float]


def recorded(paths: Iterable[Path]) -> dict[tuple[str, str], Times]:
    """Seconds by schedule, of each operator and its extents."""
    found: dict[tuple[str, str], Times] = defaultdict(dict)
    for path in paths:
        with lzma.open(path, "rt") as lines:
            for line in lines:
                trial = json.loads(line).get("trial")
                if trial is None or trial.get("status") != "ok" or trial.get("seconds") is None:
                    continue
                schedule, name = trial["schedule"], trial["operator"]
                if '"own.' in schedule and not any(w in schedule + name for w in OTHERS):
                    found[name, trial["extents"]][schedule] = trial["seconds"]
    return {key: times for key, times in found.items() if len(times) >= LEAST}


def judged(name: str, extents: str, times: Times) -> tuple[float, float, float] | None:
    """Rank correlation, and how far behind the best the first place and the first eight are."""
    space = Workload.of(name, json.loads(extents), "cuda").on("h200").space()
    rows, seconds = [], []
    for text, took in times.items():
        schedule = Schedule.from_json(text)
        try:
            if space.refusal(schedule) is None:
                rows.append(space.encode(schedule))
                seconds.append(took)
        except TilewrightError:  # decisions of another version
            continue
    if len(rows) < LEAST:
        return None
    said, measured = estimates(space, np.array(rows)), np.array(seconds)
    ranks = [np.argsort(np.argsort(values)) for values in (said, measured)]
    tied = measured[said <= said.min() + TIED].mean()
    eight = measured[np.argsort(said, kind="stable")[:FIRST]].min()
    best = measured.min()
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1]), float(tied / best), float(eight / best)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("records", nargs="*", type=Path)
    given = words.parse_args()
    paths = given.records or sorted((HERE.parent / "h200").glob("records*.jsonl.xz"))
    found = {key: judged(*key, times) for key, times in sorted(recorded(paths).items())}
    known = {key: row for key, row in found.items() if row is not None}
    for (name, extents), (ranks, first, eight) in known.items():
        print(f"{name} {extents}: correlation {ranks:.2f}, first {first:.2f}, eight {eight:.2f}")
    ranked, firsts, eights = zip(*known.values(), strict=True)
    print(
        f"{len(known)} workloads: rank correlation {mean(ranked):.3f} in the mean; over the best, "
        f"those in the first place {mean(firsts):.3f} (median {median(firsts):.3f}), the best of "
        f"the first eight {mean(eights):.3f}"
    )


if __name__ == "__main__":
    main()
