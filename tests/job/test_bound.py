"""Times below what a machine needs at least: an outcome of their own, with both numbers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import explorer
from explorer import cli
from explorer.bound import BOUND, BOUND_BY, Bound, Limit
from explorer.errors import NothingValid
from explorer.outcome import Outcome
from explorer.peaks import stated_peaks
from explorer.sources import opened
from ir.peaks import HEADROOM, level_facts, rate_name
from ir.registry import load_operator
from ir.target import Hardware, get_backend
from ir.targets.cuda.rows.hardware import KNOWN, known_hardware
from records import Store

CLOCKS = {"h200": 132 * 1.98e9, "a100": 108 * 1.41e9}
HBM = (("memory_clock_khz", 3_201_000), ("memory_bus_bits", 6144))


def _card(name: str) -> dict[str, Any]:
    hardware = known_hardware(name)
    hardware = replace(hardware, facts=(*hardware.facts, *HBM))
    return dict(hardware.facts) | stated_peaks(get_backend("cuda"), hardware)


def _bound(facts: dict[str, Any], operator: str, **arguments: Any) -> Bound:
    return Bound.of(load_operator(operator).build(**arguments), facts)


LARGE = {"m": 4096, "n": 4096, "k": 4096}


@pytest.mark.parametrize(
    ("card", "dtype", "rate"),
    [
        ("h200", "bf16", 4096 + 512),  # all engines together
        ("h200", "f16", 4096 + 512),
        ("h200", "i8", 8192 + 512),
        ("h200", "tf32", 2048 + 2048 + 512),  # bf16 in two pieces is as fast
        ("a100", "bf16", 2048 + 512),
        ("a100", "i8", 4096 + 512),
    ],
)
def test_products_are_bound_by_the_rate_of_their_type(card: str, dtype: str, rate: int) -> None:
    found = _bound(_card(card), "matmul", **LARGE, dtype=dtype)
    limit = found.largest
    assert limit is not None
    assert limit.resource == f"the arithmetic of {dtype} products"
    least = 2 * 4096**3 / (CLOCKS[card] * rate)
    assert least * 0.99 <= limit.seconds <= 2 * least


@pytest.mark.parametrize("card", sorted(KNOWN))
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16", "tf32", "i8", "e4m3"])
def test_no_product_is_bound_above_what_the_data_sheet_gives(card: str, dtype: str) -> None:
    """A kernel at the full rate of the type's own units is never refused."""
    facts = _card(card)
    if dtype == "e4m3":
        program = load_operator("scaled_matmul").build(**LARGE)
    else:
        program = load_operator("matmul").build(**LARGE, dtype=dtype)
    rate = facts.get(f"peak_flops.{dtype}") or facts["peak_flops.f16"]
    arithmetic = [
        limit for limit in Bound.of(program, facts).limits if "arithmetic" in limit.resource
    ]
    assert all(limit.seconds <= 2 * 4096**3 / rate for limit in arithmetic)


def test_memory_bounds_what_the_cache_cannot_hold() -> None:
    """Between runs the L2 cache may keep all that it has room for."""
    facts = _card("h200")
    cold = _bound(facts, "row_sum", m=65536, n=8192, dtype="bf16").largest
    assert cold is not None
    assert cold.resource == "memory"
    kept = facts["l2_bytes"]
    assert cold.seconds == pytest.approx((65536 * (8192 * 2 + 4) - kept) / facts["peak_bytes"])
    warm = _bound(facts, "row_sum", m=512, n=512).largest
    assert warm is not None
    assert warm.resource == "L2 cache"
    assert warm.seconds < (512 * 512 * 4) / facts["peak_bytes"]


def test_levels_of_a_processor() -> None:
    """What fits a cache is bound by that cache's bandwidth, less what lies nearer."""
    facts = level_facts("l2", 1e12, 1e5) | level_facts("l3", 1e11, 1e6)
    facts |= level_facts("memory", 1e10, 1e8)
    for rows, resource in ((16, ""), (100, "L2 cache"), (10_000, "L3 cache"), (1 << 20, "memory")):
        found = _bound(facts, "row_sum", m=rows, n=1024).largest
        assert (found.resource if found else "") == resource
    whole = 4 * 10_000 * 1025
    assert _bound(facts, "row_sum", m=10_000, n=1024).seconds == pytest.approx((whole - 1e6) / 1e11)
    half = _bound(facts | {HEADROOM: 2.0}, "row_sum", m=10_000, n=1024)
    assert half.seconds == pytest.approx((whole - 1e6) / 2e11)


@pytest.mark.parametrize(
    ("rates", "dtype", "rate"),
    [
        ({"vectors.f32.f32": 1.0}, "f32", 1.0),
        ({"vectors.f32.f32": 1.0, "tiles.bf16.f32": 16.0}, "bf16", 17.0),
        ({"vectors.f32.f32": 1.0, "tiles.bf16.f32": 16.0}, "f32", 1.0 + 16.0 / 3),
        ({"vectors.f32.f32": 1.0, "tiles.i8.i32": 16.0}, "bf16", 0.0),  # of bf16 none is known
        ({"vectors.bf16.f32": 1.0, "tiles.i8.i32": 16.0}, "bf16", 1.0),  # no whole numbers
        ({"vectors.f32.f32": 1.0, "tensor.f16.f16": 16.0}, "f32", 1.0),  # sums are too coarse
        ({"vectors.i8.i32": 2.0, "tiles.bf16.f32": 8.0}, "i8", 10.0),  # exact in small sums
        ({}, "f32", 0.0),
    ],
)
def test_rates_by_type_sum_and_engine(rates: dict[str, float], dtype: str, rate: float) -> None:
    facts = {rate_name(*name.split(".")): value for name, value in rates.items()}
    found = _bound(facts, "matmul", m=8, n=8, k=8, dtype=dtype).seconds
    assert found == pytest.approx(2 * 8**3 / rate if rate else 0.0)


def test_a_card_that_is_not_known_bounds_nothing() -> None:
    other = Hardware("cuda", "new", ("sm_999",), 1, (("major", 99), ("minor", 0), ("sms", 4)))
    facts = dict(other.facts) | stated_peaks(get_backend("cuda"), other)
    assert _bound(facts, "matmul", **LARGE, dtype="bf16").limits == ()


def test_a_time_below_is_an_outcome_with_both_numbers() -> None:
    bound = Bound((Limit("memory", 2e-3), Limit("L2 cache", 1e-3)))
    good = Outcome("ok", 1.995e-3, kernel_key="k", notes=(("turns", 3),))
    assert bound.judged(good) == good
    below = bound.judged(replace(good, seconds=1.5e-3))
    assert below.status == "below_roofline"
    assert below.detail == "measured 0.0015 s, but memory needs 0.002 s at least"
    assert below.notes == (("turns", 3), (BOUND, 2e-3), (BOUND_BY, "memory"))
    failed = Outcome("crash", detail="why")
    assert bound.judged(failed) == failed
    assert Bound().judged(replace(good, seconds=1e-12)).ok


# -- through a search


EXTENTS: dict[str, Any] = {"m": 32, "n": 32, "k": 32}
PEAKS = {rate_name("vectors", "f32", "f32"): 1e14}  # 0.66 ns for the 65,536 operations


@pytest.fixture
def miracles(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A clock that tells every second candidate's time a million times too short."""
    from explorer.samples import examined

    seen: list[str] = []
    fooled: list[str] = []

    def told(outcome: Outcome, seen_there: Any) -> Outcome:
        found = examined(outcome, seen_there)
        if found.kernel_key not in seen:
            seen.append(found.kernel_key)
            fooled.extend([found.kernel_key] if len(seen) % 2 else [])
        if not found.ok or found.kernel_key not in fooled:
            return found
        return replace(found, seconds=1e-11)

    monkeypatch.setattr("explorer.stages.examined", told)
    monkeypatch.setattr("explorer.peaks.measured_peaks", lambda *_: PEAKS)
    return fooled


def test_a_miracle_never_becomes_the_incumbent(
    miracles: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is recorded as what it is, shown with both numbers, and never wins."""
    path = tmp_path / "records.db"
    words = ["matmul", *(f"{name}={value}" for name, value in EXTENTS.items())]
    records = ["--records", str(path)]
    tune = ["tune", *words, *records, "--trials", "8", "--strategy", "random", "--no-baseline"]
    assert cli.invoke(tune) == cli.EXIT_DONE
    out = capsys.readouterr().out
    said = "measured 1e-11 s, but the arithmetic of f32 products needs 6.55e-10 s at least"
    assert out.count(f"not believed: {said}") == 1
    assert "below_roofline" in out
    job = re.search(r"^job (\w+)$", out, re.M)
    assert job is not None
    with opened(path) as store:
        below = list(store.records(status="below_roofline"))
        right = list(store.records(status="ok"))
        assert below
        assert {record.kernel_key for record in below} <= set(miracles)
        assert not {record.kernel_key for record in right} & set(miracles)
        notes = json.loads(below[0].notes)
        assert notes[BOUND_BY] == "the arithmetic of f32 products"
        assert notes[BOUND] == pytest.approx(6.5536e-10)
        assert below[0].detail == said
    assert cli.invoke(["top", "--format", "json", *records]) == cli.EXIT_DONE
    assert json.loads(capsys.readouterr().out)["records"][0]["seconds"] > 1e-7
    schedule = below[0].schedule
    assert cli.invoke(["explain", *words, "--schedule", schedule, *records]) == cli.EXIT_DONE
    assert f"measured: below_roofline: {said}" in capsys.readouterr().out
    assert cli.invoke(["report", job[1], "--out", str(tmp_path / "page.html"), *records]) == 0
    assert said in (tmp_path / "page.html").read_text()


def test_where_all_are_below_there_is_no_winner(tmp_path: Path) -> None:
    """The message has both numbers; peaks that are too low are told as what was doubted."""
    from explorer import job
    from explorer.budget import Budget

    plan = job.plan_one("matmul", EXTENTS, Budget.of(trials=2), strategy="random", baseline=False)
    peaks = [{rate_name("vectors", "f32", "f32"): 1.0}]
    found = job.run_plan(plan, store=tmp_path / "a.db", peaks=peaks)
    with pytest.raises(NothingValid, match=r"2 below_roofline.*needs 6.55e\+04 s at least"):
        job.single(found)
    with Store(tmp_path / "a.db") as store:
        assert {record.status for record in store.records()} == {"below_roofline"}


def test_without_peaks_nothing_is_refused(tmp_path: Path) -> None:
    found = explorer.tune("matmul", trials=2, store=tmp_path / "a.db", baseline=False, **EXTENTS)
    assert dict(found.outcomes) == {"ok": 2}
