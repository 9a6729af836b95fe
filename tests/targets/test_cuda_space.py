"""The CUDA space: what is legal lowers, what is refused says why, texts follow decisions."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from ir import Graph, contract
from ir.errors import MissingTarget, UsageError
from ir.schedule import Schedule
from ir.targets.cuda.rows.hardware import known_hardware
from ir.targets.cuda.space.residences import USUAL
from tests.few import draws, few_rows
from tests.targets.cuda_cases import BACKEND, HARDWARE, NAMES, SMALL, built, drawn, space_of


@pytest.mark.parametrize(("name", "arguments"), few_rows(SMALL, range(0, len(SMALL) - 1, 2), NAMES))
@draws(6, 12)
@pytest.mark.alike(2)
def test_legal_schedules_lower(name: str, arguments: dict[str, Any], count: int) -> None:
    program = built(name, arguments)
    for schedule in drawn(program, 1, count, count):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        plan = json.loads(kernel.text("launch"))
        assert all(k["shared"] <= HARDWARE["shared_bytes"] for k in plan["kernels"])
        assert all(32 <= k["block"] <= 1024 for k in plan["kernels"])


@pytest.mark.parametrize(("name", "arguments"), few_rows(SMALL, range(0, len(SMALL) - 1, 2), NAMES))
@pytest.mark.alike(2)
def test_seeds_are_legal_and_several(name: str, arguments: dict[str, Any]) -> None:
    space = BACKEND.space(built(name, arguments), HARDWARE)
    rows = space.seed_rows(np.random.default_rng(0))
    assert len(rows) >= 3
    assert space.legal(rows).all()


def test_the_same_schedule_gives_the_same_text() -> None:
    program = built(*SMALL[0])
    (schedule,) = drawn(program, 5, 1, 0)
    texts = {BACKEND.lower(program, schedule, HARDWARE).text("cuda") for _ in range(2)}
    assert len(texts) == 1


def test_most_schedules_give_texts_of_their_own() -> None:
    program = built("matmul", {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16", "tb": True})
    keys = [BACKEND.lower(program, s, HARDWARE).key for s in drawn(program, 2, 0, 60)]
    assert len(set(keys)) >= 55


def test_pins_hold() -> None:
    program = built("matmul", {"m": 512, "n": 512, "k": 512, "dtype": "bf16"})
    space = BACKEND.space(program, HARDWARE).pin({"stages": 5, "cluster": "2x1"})
    for row in space.sample(np.random.default_rng(0), 50):
        schedule = space.schedule(row)
        assert (schedule["stages"], schedule["cluster"]) == (5, "2x1")


def test_a_refusal_names_the_numbers() -> None:
    program = built("matmul", {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16", "tb": True})
    space = BACKEND.space(program, HARDWARE)
    values = space.schedule(space.seed_rows(np.random.default_rng(0))[0]).as_dict()
    values |= {"tile.m": 256, "tile.n": 256, "stages": 12}
    refusal = space.refusal(Schedule("cuda", tuple(values.items())))
    assert refusal is not None
    assert "256" in str(refusal)


LARGE: dict[str, Any] = {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16", "tb": True}
CAUSAL: dict[str, Any] = {"b": 2, "heads": 8, "sq": 1024, "d": 128, "causal": True}


@pytest.mark.parametrize(("name", "arguments"), SMALL[::3], ids=NAMES[::3])
@pytest.mark.alike(2)
def test_schedules_round_trip(name: str, arguments: dict[str, Any]) -> None:
    space = BACKEND.space(built(name, arguments), HARDWARE)
    for row in space.sample(np.random.default_rng(4), 10):
        schedule = space.schedule(row)
        assert Schedule.from_json(schedule.to_json()) == schedule
        assert np.array_equal(space.encode(schedule), row)
        assert space.legal(space.neighbours(row)).all()


@pytest.mark.parametrize(("name", "arguments"), few_rows(SMALL[::3], (0, 2, 4, 6, 8), NAMES[::3]))
@pytest.mark.alike(2)
def test_refusals_are_one_line_with_a_rule_and_numbers(
    name: str, arguments: dict[str, Any]
) -> None:
    """Of schedules that are drawn without looking at any rule."""
    space = BACKEND.space(built(name, arguments), HARDWARE)
    rules = {constraint.name: constraint for constraint in space.constraints}
    rng = np.random.default_rng(5)
    seen: Counter[str] = Counter()
    for _ in range(300):
        values = tuple((d.name, d.domain[rng.integers(len(d.domain))]) for d in space.decisions)
        schedule = Schedule("cuda", values)
        refusal = space.refusal(schedule)
        assert (refusal is None) == bool(space.legal(space.encode(schedule)[None, :])[0])
        if refusal is not None:
            seen[refusal.constraint] += 1
            assert rules[refusal.constraint].needs
            assert re.search(r"\d", refusal.detail)
            assert "\n" not in str(refusal)
    assert len(seen) >= 2


def test_too_much_shared_memory_is_told_in_bytes() -> None:
    space = BACKEND.space(built("matmul", LARGE), HARDWARE)
    values = space.schedule(space.seed_rows(np.random.default_rng(0))[0]).as_dict()
    refusal = space.refusal(Schedule("cuda", tuple((values | {"stages": 12}).items())))
    assert refusal is not None
    assert refusal.constraint == "shared"
    assert re.search(r"\b232[,_]?448\b", refusal.detail)


def unheard(name: str, arguments: dict[str, Any], engine: str) -> dict[str, float]:
    """For each decision, the share of its changes, all else equal, that leave the text alone."""
    program = built(name, arguments)
    space = space_of(program, engine)
    rng = np.random.default_rng(0)
    same: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for row in space.sample(rng, 10):
        first = space.schedule(row)
        key = BACKEND.lower(program, first, HARDWARE).key
        near = space.neighbours(row)
        for other in near[rng.permutation(len(near))[:25]]:
            second = space.schedule(other)
            changed = [n for n in space.names if first.get(n) != second.get(n)]
            if len(changed) == 1:
                tried[changed[0]] += 1
                same[changed[0]] += BACKEND.lower(program, second, HARDWARE).key == key
    assert len(tried) >= 5
    return {name: same[name] / count for name, count in tried.items() if count > 1}


@pytest.mark.parametrize(
    ("name", "arguments", "engine"),
    few_rows([
        ("matmul", LARGE, "wgmma"),
        ("matmul", LARGE, "mma"),
        ("matmul", {"m": 4096, "n": 512, "k": 512, "dtype": "f32"}, "fma"),
        ("softmax", {"m": 4096, "n": 4096, "dtype": "bf16"}, ""),
        ("conv2d", {"n": 32, "h": 56, "w": 56, "c": 64, "f": 128, "padding": 1, "dtype": "bf16"},
         "wgmma"),
        ("attention", CAUSAL | {"b": 16, "dtype": "bf16"}, "wgmma"),
    ], (0, 1, 2, 3, 5)),
)  # fmt: skip
@pytest.mark.alike(2)
def test_no_decision_is_without_effect(name: str, arguments: dict[str, Any], engine: str) -> None:
    found = unheard(name, arguments, engine)
    assert not {decision: share for decision, share in found.items() if share > 0.6}


def test_a_split_is_offered_where_parts_are_long_enough() -> None:
    long = BACKEND.space(built("matmul", {"m": 64, "n": 64, "k": 8192, "dtype": "bf16"}), HARDWARE)
    short = BACKEND.space(built("matmul", {"m": 64, "n": 64, "k": 256, "dtype": "bf16"}), HARDWARE)
    assert "split" in long.names
    assert "split" not in short.names


def test_clusters_need_equal_walks() -> None:
    causal = {"b": 1, "heads": 2, "sq": 1024, "d": 64, "dtype": "bf16", "causal": True}
    for schedule in drawn(built("attention", causal), 3, 0, 100):
        if schedule.as_dict().get("residence", USUAL) == USUAL:
            assert schedule["cluster"] == "1x1"


def test_bad_input_is_one_line() -> None:
    large = built("matmul", {"m": 1 << 20, "n": 1 << 20, "k": 64, "dtype": "f32"})
    with pytest.raises(UsageError, match="H200 has"):
        BACKEND.space(large, HARDWARE)
    with pytest.raises(UsageError, match="known are h200"):
        known_hardware("h201")


def test_no_driver_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes

    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(MissingTarget, match="no NVIDIA driver") as found:
        BACKEND.hardware()
    assert "\n" not in str(found.value)


def test_other_cards_get_kernels_without_wgmma() -> None:
    from dataclasses import replace

    from ir.targets.cuda.build.kernels import kernels_of

    facts = tuple((n, 8 if n == "major" else v) for n, v in HARDWARE.facts)
    older = replace(HARDWARE, name="older", isa=("sm_80",), facts=facts)
    program = built("matmul", {"m": 64, "n": 64, "k": 64, "dtype": "bf16"})
    assert [k.kind for k in kernels_of(program, older)] == ["mma"]


def test_a_contiguous_operand_is_not_tiled_along_several_free_axes() -> None:
    """A filter read at every second tap has three: only one is contiguous, beside the sum."""
    g = Graph("phases")
    n, p, q, c, f = g.axes(n=8, p=32, q=32, c=512, f=256)
    a, b, t, u = g.axes(a=2, b=2, t=3, u=3)
    x = g.tensor("X", (8, 32, 32, 512), "bf16", fill=0)
    w = g.tensor("W", (4, 4, 512, 256), "bf16", fill=0)
    taps = w[t * 2 + a - 1, u * 2 + b - 1, c, f]
    y = contract(x[n, p - t + 1, q - u + 1, c], taps, over=(t, u, c))
    g.output("Y", y, "bf16", (n, p, a, q, b, f))
    space = BACKEND.space(g.program(), HARDWARE)
    seed = space.schedule(space.seed_rows(np.random.default_rng(0))[0]).as_dict()
    tiles = {"n": 1, "p": 1, "q": 16, "a": 1, "b": 2, "f": 64, "c": 32}
    values = {**seed, "engine": "wgmma", "swap": True, "consumers": 1, "partition": "rows"}
    values |= {f"tile.{axis}": tile for axis, tile in tiles.items()}
    assert str(space.refusal(Schedule.of("cuda", values))).startswith("beside: ")
    values |= {"tile.b": 1}
    assert not str(space.refusal(Schedule.of("cuda", values))).startswith("beside: ")
