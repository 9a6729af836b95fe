"""What a proposal costs: processor time of the default strategy, with no machine behind it.

    python experiments/search/proposals.py [--trials 256] [--cases moe ...] [--profile]

Spaces are those of a named card, which need not be there, and outcomes are made up: the backend's
estimate times a factor for each value, and one of twenty fails. Groups are asked for as a search
does that measures beside: two are under way. What counts is the time that the strategy's thread
had a processor, BLAS included, which has one thread as in a search: other programs disturb that
less than the clock on the wall. Rows are kept in proposals.json, and the table in the README.
"""

from __future__ import annotations

import argparse
import cProfile
import hashlib
import json
import pstats
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

import numpy as np  # noqa: E402
from peers import header  # noqa: E402
from table import write  # noqa: E402

from explorer.runtime.blas import one_thread  # noqa: E402
from explorer.strategies.base import make_strategy  # noqa: E402
from explorer.strategies.contract import FakeOutcome  # noqa: E402
from explorer.strategies.guide import Guided  # noqa: E402
from explorer.strategies.opening import ESTIMATE  # noqa: E402
from explorer.training import prior_for  # noqa: E402
from explorer.workload import Workload  # noqa: E402
from ir.schedule import Schedule  # noqa: E402
from ir.space import Space  # noqa: E402

RESULTS = HERE / "proposals.json"
GOAL = 10.0  # milliseconds
CLOCK = time.thread_time
BATCH, DEPTH = 16, 2
FAILS = 20  # one of so many
MIXTRAL = {"tokens": 4096, "experts": 8, "chosen": 2, "d": 4096, "n": 14336, "block": 128}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "matmul 2048^3": ("matmul", {"m": 2048, "n": 2048, "k": 2048, "dtype": "bf16"}),
    "attention 2x16x2048x64": (
        "attention", {"b": 2, "heads": 16, "sq": 2048, "d": 64, "dtype": "bf16"},
    ),
    "layernorm 8192x4096": ("layernorm", {"m": 8192, "n": 4096}),
    "moe 4096x4096x14336, f32": ("moe", MIXTRAL),
    "moe 4096x4096x14336, bf16": ("moe", MIXTRAL | {"dtype": "bf16"}),
}  # fmt: skip


class Pretended:
    """Outcomes of a space that nobody measured: the same for the same schedule."""

    def __init__(self, space: Space) -> None:
        self._space = space
        generator = np.random.default_rng(5)
        self._factors = [generator.normal(0, 0.15, len(d.domain)) for d in space.decisions]

    def __call__(self, schedules: Sequence[Schedule]) -> list[FakeOutcome]:
        rows = np.array([self._space.encode(schedule) for schedule in schedules])
        assert self._space.features is not None
        names, table = self._space.features(self._space.columns(rows))
        logs = table[:, names.index(ESTIMATE)].astype(np.float64) * np.log(2)
        for column, factors in enumerate(self._factors):
            logs += factors[rows[:, column]]
        return [
            self._outcome(schedule, float(seconds))
            for schedule, seconds in zip(schedules, np.exp(np.clip(logs, -30, 30)), strict=True)
        ]

    def _outcome(self, schedule: Schedule, seconds: float) -> FakeOutcome:
        if hashlib.sha256(schedule.key.encode()).digest()[0] < 256 // FAILS:
            return FakeOutcome("crash", None, schedule.key)
        return FakeOutcome("ok", seconds, schedule.key)


def search(case: str, machine: str, trials: int, seed: int) -> dict[str, Any]:
    """Milliseconds a proposal of one search, of its parts, and what tells what was proposed."""
    operator, arguments = CASES[case]
    space = Workload.of(operator, arguments, "cuda").on(machine).space()
    outcomes = Pretended(space)
    strategy = make_strategy("evolutionary", space, np.random.default_rng(seed), trials=trials)
    assert isinstance(strategy, Guided)
    prior = prior_for(space, None)
    if prior is not None:
        strategy.use_prior(prior)
    under_way: deque[list[Schedule]] = deque()
    asked, spent = 0, []
    digest = hashlib.sha256()
    while asked < trials or under_way:
        began = CLOCK()
        if asked < trials and len(under_way) < DEPTH:
            found = strategy.ask(strategy.portion(min(BATCH, trials - asked)))
            spent.append((asked, len(found), CLOCK() - began))
            asked += len(found)
            under_way.append(found)
            digest.update("".join(schedule.key for schedule in found).encode())
            continue
        told = under_way.popleft()
        known = outcomes(told)
        began = CLOCK()
        strategy.tell(told, known)
        spent.append((asked, 0, CLOCK() - began))
    return {
        "proposed": digest.hexdigest()[:12],
        "parts": parted(spent),
        "decisions": len(space.decisions),
        "constraints": len(space.constraints),
    }


def parted(spent: Sequence[tuple[int, int, float]]) -> dict[str, float]:
    """Milliseconds a proposal: of all, of the first 16, up to 64, and of the rest."""
    found = {}
    for name, first, last in (("all", 0, 1 << 30), ("-16", 0, 16), ("-64", 16, 64),
                              ("rest", 64, 1 << 30)):  # fmt: skip
        some = [entry for entry in spent if first <= entry[0] < last]
        count = sum(entry[1] for entry in some)
        if count:
            found[name] = round(1e3 * sum(entry[2] for entry in some) / count, 2)
    return found


def row_of(case: str, machine: str, trials: int, seeds: int, note: str) -> dict[str, Any]:
    runs = [search(case, machine, trials, seed) for seed in range(seeds)]
    every = {name: [run["parts"][name] for run in runs] for name in runs[0]["parts"]}
    ours = float(np.median(every["all"]))
    return {
        "case": case,
        "metric": "milliseconds of the strategy a proposal",
        "unit": "ms",
        "ours": round(ours, 2),
        "peer": "goal",
        "peer_value": GOAL,
        "ratio": round(GOAL / ours, 3),
        "spread": [min(every["all"]), max(every["all"])],
        "note": note,
        "machine": machine,
        "trials": trials,
        "decisions": runs[0]["decisions"],
        "constraints": runs[0]["constraints"],
        "parts": {name: round(float(np.median(values)), 2) for name, values in every.items()},
        "proposed": [run["proposed"] for run in runs],
    }


def save(row: dict[str, Any], out: Path) -> None:
    """Put a row in the place of the one of its case."""
    found = json.loads(out.read_text()) if out.exists() else {"rows": []}
    kept = [other for other in found["rows"] if other["case"] != row["case"]]
    out.write_text(json.dumps({"header": header(), "rows": [*kept, row]}, indent=1) + "\n")
    write()


def profiled(case: str, machine: str, trials: int) -> None:
    profile = cProfile.Profile(CLOCK)
    profile.enable()
    search(case, machine, trials, 0)
    profile.disable()
    for order in ("cumulative", "tottime"):
        pstats.Stats(profile).sort_stats(order).print_stats(60)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--machine", default="h200")
    words.add_argument("--trials", type=int, default=256)
    words.add_argument("--seeds", type=int, default=3)
    words.add_argument("--cases", nargs="*", default=[], help="only cases that contain a word")
    words.add_argument("--profile", action="store_true", help="print where the time goes instead")
    words.add_argument("--note", default="", help="what to know of this machine, for the table")
    words.add_argument("--out", type=Path, default=RESULTS)
    chosen = words.parse_args()
    cases = [c for c in CASES if not chosen.cases or any(word in c for word in chosen.cases)]
    with one_thread():
        for case in cases:
            if chosen.profile:
                profiled(case, chosen.machine, chosen.trials)
                continue
            row = row_of(case, chosen.machine, chosen.trials, chosen.seeds, chosen.note)
            save(row, chosen.out)
            print(f"{case}: {row['ours']} ms a proposal, {row['parts']}", flush=True)


if __name__ == "__main__":
    main()
