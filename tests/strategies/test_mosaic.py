"""Programs of several kernels: what was fastest in every place is put together."""

from __future__ import annotations

import statistics
from dataclasses import replace

import numpy as np
import pytest

from explorer.outcome import PARTS
from explorer.strategies.contract import FakeOutcome
from explorer.strategies.evolutionary import Evolutionary
from explorer.strategies.mosaic import Mosaic, places_of
from ir.columns import Decision
from ir.schedule import Schedule, Value
from ir.space import Space
from tests.few import few

KERNELS, WIDE = 4, 5
SIZES = (1, 2, 4, 8, 16, 32)


def several() -> Space:
    """Four kernels with five decisions each, beside a choice that all have."""
    route = Decision("engine", ("wide", "narrow"), "tensorize", "all", "what computes")
    own = [
        Decision(f"d{n}.{kernel}", SIZES, "tile", f"d{n}", "points", 1)
        for kernel in range(KERNELS)
        for n in range(WIDE)
    ]
    return Space("toy", (route, *own))


def shares(schedule: Schedule) -> list[float]:
    """What each kernel takes: each decision has a best value, and the places do not meet."""
    values = schedule.as_dict()
    slow = 1.0 if values["engine"] == "wide" else 1.3
    return [
        slow * (1 + sum(
            abs(np.log2(float(values[f"d{n}.{kernel}"])) - (kernel + 2 * n) % 6)
            for n in range(WIDE)
        ))
        for kernel in range(KERNELS)
    ]  # fmt: skip


def told(schedule: Schedule, parts: bool = True) -> FakeOutcome:
    each = shares(schedule)
    notes = "; ".join(f"toy_{number} {seconds:.6g}" for number, seconds in enumerate(each))
    found = FakeOutcome(seconds=sum(each), kernel_key=schedule.key)
    return replace(found, notes=((PARTS, notes),)) if parts else found


def test_the_fastest_kernels_are_put_together() -> None:
    space = several()
    rows = space.sample(np.random.default_rng(0), 40)
    schedules = [space.schedule(row) for row in rows]
    mosaic, outcomes = Mosaic(space), [told(schedule) for schedule in schedules]
    seconds = np.array([outcome.seconds for outcome in outcomes])
    mosaic.told(rows, seconds, outcomes)
    for row in mosaic.offers():
        made = space.schedule(row)
        alike = [s for s in schedules if s["engine"] == made["engine"]]
        for kernel, share in enumerate(shares(made)):
            assert share == min(shares(schedule)[kernel] for schedule in alike)
    assert len(mosaic.offers()) == 0


def two_routes(alike: bool = True) -> Space:
    """Three kernels; in the second route, two, the last of which is the first route's second."""
    route = Decision(
        "residence", ("usual", "fewer"), "tensorize", "all", "what is stored", routes=True
    )
    own = [
        Decision(f"{stem}.{kernel}", SIZES, "tile", stem, "points", 1, ("residence", "usual"))
        for kernel, stem in enumerate(("a", "b", "c"))
    ]
    sizes = SIZES if alike else SIZES[1:]
    others = [
        Decision(
            f"fewer.{stem}.{kernel}", sizes, "tile", stem, "points", None, ("residence", "fewer")
        )
        for kernel, stem in enumerate(("d", "b"))
    ]
    return Space("toy", (route, *own, *others))


def outcome(schedule: Schedule, *shares: float) -> FakeOutcome:
    notes = "; ".join(f"toy_{number} {seconds:.6g}" for number, seconds in enumerate(shares))
    found = FakeOutcome(seconds=sum(shares), kernel_key=schedule.key)
    return replace(found, notes=((PARTS, notes),))


def learnt(mosaic: Mosaic, space: Space, values: dict[str, Value], *shares: float) -> None:
    row = space.encode(Schedule.of("toy", values))
    mosaic.told(row[None], np.array([sum(shares)]), [outcome(space.schedule(row), *shares)])


def test_a_kernel_of_another_route_is_tried_where_it_makes_the_whole_the_fastest() -> None:
    space = two_routes()
    mosaic = Mosaic(space)
    learnt(mosaic, space, {"residence": "usual", "a.0": 2, "b.1": 4, "c.2": 8}, 3.0, 1.0, 3.0)
    learnt(mosaic, space, {"residence": "fewer", "fewer.d.0": 2, "fewer.b.1": 16}, 2.0, 6.0)
    (row,) = mosaic.offers()
    found = space.schedule(row).as_dict()
    assert (found["residence"], found["fewer.d.0"], found["fewer.b.1"]) == ("fewer", 2, 4)
    values: dict[str, Value] = {"residence": "fewer", "fewer.d.0": 2, "fewer.b.1": 4}
    learnt(mosaic, space, values, 2.0, 5.0)  # it is not the same kernel
    assert not len(mosaic.offers())
    learnt(mosaic, space, {"residence": "usual", "a.0": 2, "b.1": 2, "c.2": 8}, 3.0, 0.5, 3.0)
    assert not len(mosaic.offers())


def test_kernels_with_other_choices_are_others() -> None:
    space = two_routes(alike=False)
    mosaic = Mosaic(space)
    learnt(mosaic, space, {"residence": "usual", "a.0": 2, "b.1": 4, "c.2": 8}, 3.0, 1.0, 3.0)
    learnt(mosaic, space, {"residence": "fewer", "fewer.d.0": 2, "fewer.b.1": 16}, 2.0, 6.0)
    assert not len(mosaic.offers())


def test_what_says_nothing_of_its_kernels_teaches_nothing() -> None:
    space = several()
    rows = space.sample(np.random.default_rng(0), 8)
    outcomes = [told(space.schedule(row), parts=False) for row in rows]
    mosaic = Mosaic(space)
    mosaic.told(rows, np.ones(len(rows)), outcomes)
    mosaic.told(rows, np.full(len(rows), np.nan), [told(space.schedule(row)) for row in rows])
    assert len(mosaic.offers()) == 0


def test_no_more_is_asked_than_wanted() -> None:
    space = several()
    rows = space.sample(np.random.default_rng(1), 24)
    seeds = [space.schedule(row) for row in rows]
    strategy = Evolutionary(space, np.random.default_rng(0), trials=64, seeds=seeds)
    for count in (8, 1, 1, 2, 1):
        schedules = strategy.ask(count)
        assert len(schedules) == count
        strategy.tell(schedules, [told(schedule) for schedule in schedules])


def test_launches_of_one_kernel_are_one_place() -> None:
    parts = (("sum_0", 1.0), ("sum_1", 2.0), ("sum_1_1", 0.5), ("sum_1_2", 0.25), ("sum_10", 4.0))
    assert places_of(parts) == [1.0, 2.75, 4.0]


@pytest.mark.parametrize("trials", few([48, 96], [0]))
def test_a_search_that_is_told_of_kernels_finds_more(trials: int) -> None:
    def searched(seed: int, parts: bool) -> float:
        space, best = several(), np.inf
        strategy = Evolutionary(space, np.random.default_rng(seed), trials=trials)
        for _ in range(trials // 8):
            schedules = strategy.ask(8)
            outcomes = [told(schedule, parts) for schedule in schedules]
            strategy.tell(schedules, outcomes)
            best = min(best, *(o.seconds for o in outcomes if o.seconds is not None))
        return best

    with_parts, without = (
        statistics.median(searched(seed, parts) for seed in range(3)) for parts in (True, False)
    )
    assert with_parts < 0.9 * without
