"""A store as searches leave it, made without measuring."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from explorer.comparison import CHOSEN
from explorer.outcome import TURNS, Outcome
from explorer.recall import FINAL, open_store, to_record
from explorer.workload import Workload
from ir.schedule import Schedule
from records import Store

TUNED = {"m": 32, "n": 32, "k": 32}
TRIALS = 24  # of each job; its fastest two are in finals besides
BEST = 9e-4  # seconds of the first job's winner; each further job's takes a tenth more


def recorded(path: Path) -> tuple[tuple[str, ...], Schedule]:
    """Two jobs of one workload and one of another, all done; the best schedule of all."""
    with open_store(path) as store:
        made = [
            _job(store, number, TUNED | more) for number, more in enumerate(({}, {}, {"k": 64}))
        ]
    return tuple(name for name, _ in made), made[0][1]


def _job(store: Store, number: int, extents: dict[str, int]) -> tuple[str, Schedule]:
    workload = Workload.of("matmul", extents)
    options = {"strategy": "random", "seed": number, "trials": TRIALS, "pins": {}}
    job = store.new_job("matmul", workload.extents_json, "cpu", json.dumps(options))
    space = workload.space()
    rows = space.sample(np.random.default_rng(number), TRIALS)
    schedules = [space.schedule(row) for row in rows]
    for place, schedule in enumerate(schedules):
        outcome = Outcome("ok", 1e-3 * (1 + place / 100), kernel_key=f"{number} {place}")
        store.add(to_record(workload, schedule, outcome, job.id, "random"))
    for place, schedule in enumerate(schedules[:2]):
        seconds = BEST * (1 + number / 10) * (1 + place / 50)
        notes = ((TURNS, 9), *([(CHOSEN, True)] if place == 0 else []))
        spread = (seconds * 0.999, seconds * 1.001)
        outcome = Outcome("ok", seconds, spread, 9, kernel_key=f"{number} {place}", notes=notes)
        store.add(to_record(workload, schedule, outcome, job.id, FINAL))
    store.update_job(job.id, "done")
    return job.id, schedules[0]
