"""Rooflines of programs: which operations count for which type, what the card's data sheet says."""

from __future__ import annotations

from typing import Any

import pytest

from explorer.peaks import stated_peaks
from explorer.roofline import Roofline, operations
from ir import Graph, cast, contract
from ir.peaks import rate_name
from ir.registry import load_operator
from ir.target import Hardware, get_backend
from ir.targets.cuda.rows.hardware import known_hardware

H200 = known_hardware("h200")
FACTS: dict[str, Any] = dict(H200.facts) | stated_peaks(get_backend("cuda"), H200)
LARGE = {"m": 4096, "n": 4096, "k": 4096}


def roof(operator: str, arguments: dict[str, Any]) -> Roofline:
    return Roofline.of(load_operator(operator).build(**arguments), FACTS)


@pytest.mark.parametrize(
    ("operator", "arguments", "tera"),
    [
        ("matmul", LARGE | {"dtype": "bf16"}, 1070.5),
        ("matmul", LARGE | {"dtype": "f16", "tb": True, "out": "f32"}, 1070.5),
        ("matmul", LARGE | {"dtype": "tf32"}, 535.3),
        ("matmul", LARGE | {"dtype": "f32"}, 178.4),  # six products of bf16 for one of f32
        ("matmul", LARGE | {"dtype": "i8"}, 2141.1),
        ("scaled_matmul", LARGE, 2141.1),
        ("softmax", {"m": 4096, "n": 4096, "dtype": "bf16"}, 66.9),
        ("gaussian", {"n": 4096, "d": 64}, 66.9),
    ],
)
def test_peaks_are_those_of_the_types_that_the_program_uses(
    operator: str, arguments: dict[str, Any], tera: float
) -> None:
    assert (roof(operator, arguments).peak_flops or 0.0) / 1e12 == pytest.approx(tera, rel=1e-3)


def test_units_work_side_by_side() -> None:
    """The arithmetic around a product hides behind it, or the product behind that."""
    arguments = {"b": 2, "heads": 8, "sq": 1024, "dtype": "bf16"}
    wide, narrow = (
        roof("attention", arguments | {"d": 128}),
        roof("attention", arguments | {"d": 8}),
    )
    work = operations(load_operator("attention").build(**arguments, d=8))
    assert set(work) == {("bf16",), ("f32",)}
    assert narrow.arithmetic_seconds == pytest.approx(work["f32",] / FACTS["peak_flops.f32"])
    assert (wide.peak_flops or 0.0) > FACTS["peak_flops.bf16"]
    assert sum(work.values()) == narrow.flops


def test_a_card_that_is_not_known_has_the_general_peak() -> None:
    other = Hardware("cuda", "new", ("sm_999",), 1, (("major", 99), ("peak_flops", 5.0)))
    assert stated_peaks(get_backend("cuda"), other) == {}
    program = load_operator("matmul").build(**LARGE, dtype="bf16")
    assert Roofline.of(program, dict(other.facts)).peak_flops == pytest.approx(5.0)


def test_memory_is_a_bound_where_its_clock_is_known() -> None:
    facts = (("major", 9), ("minor", 0), ("memory_clock_khz", 3_201_000), ("memory_bus_bits", 6144))
    peaks = stated_peaks(get_backend("cuda"), Hardware("cuda", "h", (), 1, facts))
    assert peaks["peak_bytes"] == pytest.approx(4.917e12, rel=1e-3)
    program = load_operator("matmul").build(m=16, n=8192, k=8192, dtype="bf16", tb=True)
    assert Roofline.of(program, FACTS | {"peak_bytes": 4.9e12}).bound == "memory"


def test_a_target_that_states_nothing_has_no_peak() -> None:
    assert stated_peaks(get_backend("cpu"), Hardware("cpu", "x", (), 1, ())) == {}
    program = load_operator("matmul").build(**LARGE, dtype="bf16")
    assert not Roofline.of(program, {"peak_flops.f32": 1e12}).known


def test_what_is_faster_than_the_peak_shows_that_the_peak_is_wrong() -> None:
    known = Roofline(1000, 10, 100.0)
    assert (known.share(20.0), known.words(20.0)) == (0.5, "50 % of the machine's peak")
    assert (known.share(9.98), known.exceeded(9.98)) == (1.0, False)
    assert (known.share(7.75), known.exceeded(7.75)) == (None, True)
    assert known.words(7.75) == "no share of the machine's peak, which was measured too low"
    assert Roofline(1000, 10).words(1.0) == ""


def test_the_fastest_engine_of_a_type_is_its_peak() -> None:
    """As measured of a CPU: tiles before vectors."""
    facts = {"peak_flops.f32": 1e12, rate_name("vectors", "bf16", "f32"): 2e12}
    facts |= {rate_name("tiles", "bf16", "f32"): 16e12}
    program = load_operator("matmul").build(**LARGE, dtype="bf16")
    assert Roofline.of(program, facts).peak_flops == pytest.approx(16e12)


def test_masks_spare_work_and_cast_no_doubt_on_peaks() -> None:
    causal = roof("attention", {"b": 1, "heads": 8, "sq": 2048, "d": 128, "causal": True})
    fast = 0.6 * (causal.seconds or 0.0)
    assert causal.exceeded(fast)
    assert not causal.doubts(fast)
    assert causal.words(fast) == "no share of the machine's peak: masks spare it work"
    full = roof("attention", {"b": 1, "heads": 8, "sq": 2048, "d": 128})
    assert full.doubts(fast)


@pytest.mark.parametrize(("left", "right", "tera"), [
    ("bf16", "e4m3", 1070.5), ("i8", "bf16", 1070.5), ("e4m3", "e5m2", 2141.1),
    ("f16", "bf16", 535.3),
])  # fmt: skip
def test_factors_that_are_widened_count_as_they_are_multiplied(
    left: str, right: str, tera: float
) -> None:
    g = Graph("unlike")
    m, n, k = g.axes(**LARGE)
    a, b = (cast(g.input(s, (x, k), t), "f32") for s, x, t in (("A", m, left), ("B", n, right)))
    g.output("C", contract(a, b, over=k), "bf16")
    found = Roofline.of(g.program(), FACTS)
    assert (found.peak_flops or 0.0) / 1e12 == pytest.approx(tera, rel=1e-3)
