"""What a search keeps of each trial, and of each copy of a kernel: little, however long it goes on.

Sizes are added up over the objects that a search holds, so that no clock and no allocator counts.
"""

from __future__ import annotations

import gc
import hashlib
import sys
from collections import deque
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

import explorer.fastest
from costmodel.model import CostModel
from explorer.outcome import Outcome
from explorer.search import Search
from explorer.strategies import guide
from explorer.strategies.guide import lessons
from explorer.strategies.remembered import RowMemory
from explorer.strategies.second_opinion import SecondOpinion
from explorer.workload import Workload
from ir.schedule import Schedule
from records import Store
from tests.job.device import ScriptedDevice

KERNELS = 256
WARM, LONG = 72, 136  # trials; before the first, not all that learns has begun
MOST = 1_400  # bytes that a trial may cost, with all copies that it took to find it
LESSONS = 64
KEPT = (type, ModuleType, FunctionType, Store, Workload, RowMemory, SecondOpinion)
"""What is not of a trial's making, or learns from so many trials at most."""


def few_kernels(schedule: Schedule) -> Outcome:
    """One of `KERNELS`, as a machine tells of it: with quartiles, notes and words."""
    number = int(schedule.key[:8], 16) % KERNELS
    key = hashlib.sha256(str(number).encode()).hexdigest()
    notes = (("foreign_load", number / 997), ("registers", 1_000 + number))
    seconds = 1e-3 * (1 + number / KERNELS)
    return Outcome(
        "ok", seconds, (0.9 * seconds, 1.1 * seconds), 5, detail=f"kernel {number}",
        kernel_key=key, notes=notes,
    )  # fmt: skip


def held(search: Search) -> int:
    """Bytes of all objects that are reached from a search."""
    seen: dict[int, Any] = {}
    waiting: list[Any] = [search]
    while waiting:
        thing = waiting.pop()
        if id(thing) not in seen and not isinstance(thing, KEPT):
            seen[id(thing)] = thing
            waiting += gc.get_referents(thing)
    return sum(map(sys.getsizeof, seen.values()))


def advance(search: Search, trials: int) -> None:
    while search.trials < trials:
        assert list(search.step(min(16, trials - search.trials)))


@pytest.mark.parametrize("strategy", ["evolutionary", "random"])
def test_a_trial_leaves_little_behind(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explorer.fastest, "MOST_GOOD", 16)
    fitted: list[int] = []
    fit = CostModel.fit

    def noting(self: Any, features: Any, *told: Any, **options: Any) -> None:
        fitted.append(len(features))
        fit(self, features, *told, **options)

    monkeypatch.setattr(guide, "LESSONS", LESSONS)
    monkeypatch.setattr(CostModel, "fit", noting)
    device = ScriptedDevice(few_kernels)
    device.measured = deque(maxlen=1)
    workload = Workload.of("matmul", {"m": 64, "n": 64, "k": 64})
    with (
        Store(tmp_path / "records.db") as store,
        Search(workload, store, strategy=strategy, trials=LONG, measurer=device) as search,
    ):
        before = 0  # the most around then: children that wait to be told come and go
        for trials in range(WARM - 8, WARM + 1, 4):
            advance(search, trials)
            before = max(before, held(search))
        after = []  # the least around then, for the same reason
        for trials in range(LONG - 8, LONG + 1, 4):
            advance(search, trials)
            after.append(held(search))
        assert min(after) - before < MOST * (LONG - 8 - WARM)
    if strategy == "evolutionary":
        assert max(fitted) == LESSONS


def test_a_short_search_teaches_all() -> None:
    assert lessons(np.ones(5), np.zeros(5, dtype=np.int32), 5).tolist() == [0, 1, 2, 3, 4]


def test_of_copies_the_newest_teach() -> None:
    kernels = np.array([0, 1, 1, 1, 2, 2, 0], dtype=np.int32)
    assert lessons(np.ones(7), kernels, 5).tolist() == [0, 1, 4, 5, 6]
    assert lessons(np.ones(7), kernels, 3).tolist() == [0, 1, 4]


def test_of_many_kernels_the_fastest_and_an_even_choice_teach() -> None:
    seconds = np.array([9.0, 1, 8, 2, 7, 3, 6, 4, np.nan, 5])
    chosen = lessons(seconds, np.arange(10, dtype=np.int32), 6)
    assert chosen.tolist() == [1, 3, 4, 5, 7, 8]  # 1, 2 and 3 s; 4 and 7 s, and the failure
