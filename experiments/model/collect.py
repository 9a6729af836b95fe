"""Measures schedules of many workloads for the cost model: seeds, random ones, and mutants.

    python experiments/model/collect.py --store model.db --seconds 3600 [--trials 500]

Of the mutants the first descend from seeds and later ones from the best so far, so that the head
of each space is known as well as its bulk. The fastest are then measured again in turns, for of
hundreds of times measured once the lowest are lucky ones. Batches during which others used the
machine are measured again, and at last left out. Stops at the budget; run again, it goes on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE), str(HERE.parent / "cpu")]

from cases import Case, cases  # noqa: E402
from quiet import others, usage  # noqa: E402

from explorer.measure import Measurer  # noqa: E402
from explorer.outcome import Outcome  # noqa: E402
from explorer.recall import FINAL, known_trials, open_store, to_record  # noqa: E402
from explorer.runtime.workers import Timing  # noqa: E402
from explorer.settings import cache_dir  # noqa: E402
from explorer.strategies.history import History  # noqa: E402
from explorer.workload import Workload  # noqa: E402
from ir.schedule import Schedule  # noqa: E402
from ir.space import Matrix, Space  # noqa: E402
from records import Store  # noqa: E402

BATCH = 20
PARENTS = 32
RANDOM = 0.35  # share of schedules that are drawn, not bred
TIMING = Timing(budget=0.04, cut=2.5, slow=2.0)
DEADLINE = 2.0
DISTURBED = 0.1  # share of the machine that others used, from which a batch is measured again
ATTEMPTS = 3
PAUSE = 2.0
FINALISTS = 60
ROUNDS = 5


class Drawer:
    """Proposes batches for one workload."""

    def __init__(self, space: Space, seed: int) -> None:
        self.space = space
        self.history = History(space)
        self._rng = np.random.default_rng(seed)
        self._seeds = space.seed_rows(self._rng)

    def batch(self, count: int) -> list[Schedule]:
        fresh = self.history.fresh(self._seeds)[:count]
        drawn = np.concatenate([fresh, self._bred(2 * count), self._drawn(count)])
        fresh = self.history.fresh(drawn)[:count]
        return self.history.asked(fresh)

    def _drawn(self, count: int) -> Matrix:
        return self.space.sample(self._rng, count)

    def _bred(self, count: int) -> Matrix:
        """Mutants with a share of random rows among them, in random order."""
        best, _ = self.history.best(PARENTS)
        parents = best if len(best) >= PARENTS // 2 else self._seeds
        if not len(parents):
            return self._drawn(count)
        mothers = self._rng.choice(parents, 4 * count)
        fathers = self._rng.choice(parents, 4 * count)
        crossed = self.space.crossover(self._rng, mothers, fathers)
        mixed = self._rng.random(len(mothers)) < 0.3
        strength = float(self._rng.choice([1.0, 2.0, 4.0, 8.0]))
        children = self.space.mutate(
            self._rng, np.where(mixed[:, None], crossed, mothers), strength
        )
        children = children[self.space.legal(children)][:count]
        blind = self._rng.random(len(children)) < RANDOM
        children[blind] = self._drawn(int(blind.sum()))
        return children


def collect(store: Store, case: Case, trials: int, until: float) -> None:
    """Measure up to `trials` schedules of one workload, those known included, then finals."""
    workload = Workload.of(case[0], case[1])
    drawer = Drawer(workload.space(), 0)
    known = known_trials(store, workload)
    if len(known) >= trials and _decided(store, workload):
        return
    if known:
        drawer.history.told([schedule for schedule, _ in known], [seen for _, seen in known])
    job = store.new_job(case[0], workload.extents_json, workload.target, "{}")
    began, count = time.monotonic(), len(known)
    with Measurer(
        workload.program, workload.target, workload.hardware, cache_dir=cache_dir(),
        deadline_s=DEADLINE, timing=TIMING,
    ) as measurer:  # fmt: skip
        measurer.best = float(np.nanmin(drawer.history.seconds)) if known else None
        while count < trials and time.monotonic() < until:
            schedules = drawer.batch(min(BATCH, trials - count))
            if not schedules:
                break
            for schedule, outcome in _quietly(measurer, schedules):
                store.add(to_record(workload, schedule, outcome, job.id, "collect"))
                drawer.history.told([schedule], [outcome])
                count += 1
        if count >= trials:
            _decide(store, workload, drawer.history, measurer, job.id)
    store.update_job(job.id, "done")
    best = np.nanmin(drawer.history.seconds) if drawer.history.ok.any() else float("nan")
    took = time.monotonic() - began
    head = f"{case[0]} {case[1]}: {count} trials"
    print(f"{head}, best {best * 1e3:.3f} ms, {took:.0f} s", flush=True)


def _decided(store: Store, workload: Workload) -> bool:
    """Whether the workload had its finals."""
    records = store.records(workload=workload.program.key, hardware=workload.hardware.key)
    return any(record.strategy == FINAL for record in records)


def _decide(
    store: Store, workload: Workload, history: History, measurer: Measurer, job: str
) -> None:
    """Measure the fastest kernels again, in turns."""
    rows, _ = history.best(FINALISTS)
    schedules = [history.space.schedule(row) for row in rows]
    outcomes = measurer.compete(schedules, ROUNDS)
    for schedule, outcome in zip(schedules, outcomes, strict=True):
        store.add(to_record(workload, schedule, outcome, job, FINAL))


def _quietly(measurer: Measurer, schedules: Sequence[Schedule]) -> list[tuple[Schedule, Outcome]]:
    """Outcomes of a batch; measured again, at last thrown away, while others use the machine.

    Threads that meet at barriers take up to a hundred times as long when one of them has to wait
    for its processor, so that what was measured beside other work teaches nonsense.
    """
    for _ in range(ATTEMPTS):
        pids = [worker.pid for worker in measurer.workers]
        before, best = usage(pids), measurer.best
        outcomes = list(measurer.measure(schedules))
        share = others(before, usage(pids))
        if share is None or share < DISTURBED:
            return list(zip(schedules, outcomes, strict=True))
        measurer.best = best
        time.sleep(PAUSE)
    return []


def main() -> None:
    words = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    words.add_argument("--store", default="model.db")
    words.add_argument("--seconds", type=float, default=3600.0)
    words.add_argument("--trials", type=int, default=500, help="of each workload")
    words.add_argument("--cases", nargs="*", default=[], help="only cases that contain a word")
    options = words.parse_args()
    until = time.monotonic() + options.seconds
    with open_store(options.store) as store:
        for case in cases():
            text = f"{case[0]} {case[1]}"
            if options.cases and not any(word in text for word in options.cases):
                continue
            if time.monotonic() < until:
                collect(store, case, options.trials, until)


if __name__ == "__main__":
    main()
