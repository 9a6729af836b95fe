"""The CUDA space: what is legal lowers, what is refused says why, texts follow decisions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ir.errors import MissingTarget, UsageError
from ir.schedule import Schedule
from ir.targets.cuda.hardware import known_hardware
from tests.targets.cuda_cases import BACKEND, HARDWARE, NAMES, SMALL, built, drawn


@pytest.mark.parametrize(("name", "arguments"), SMALL, ids=NAMES)
def test_legal_schedules_lower(name: str, arguments: dict[str, Any]) -> None:
    program = built(name, arguments)
    for schedule in drawn(program, 1, 40, 40):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        plan = json.loads(kernel.text("launch"))
        assert all(k["shared"] <= HARDWARE["shared_bytes"] for k in plan["kernels"])
        assert all(32 <= k["block"] <= 1024 for k in plan["kernels"])


@pytest.mark.parametrize(("name", "arguments"), SMALL, ids=NAMES)
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


def test_a_split_is_offered_where_parts_are_long_enough() -> None:
    long = BACKEND.space(built("matmul", {"m": 64, "n": 64, "k": 8192, "dtype": "bf16"}), HARDWARE)
    short = BACKEND.space(built("matmul", {"m": 64, "n": 64, "k": 256, "dtype": "bf16"}), HARDWARE)
    assert "split" in long.names
    assert "split" not in short.names


def test_clusters_need_equal_walks() -> None:
    causal = {"b": 1, "heads": 2, "sq": 1024, "d": 64, "dtype": "bf16", "causal": True}
    for schedule in drawn(built("attention", causal), 3, 0, 100):
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

    from ir.targets.cuda.kernels import kernels_of

    facts = tuple((n, 8 if n == "major" else v) for n, v in HARDWARE.facts)
    older = replace(HARDWARE, name="older", isa=("sm_80",), facts=facts)
    program = built("matmul", {"m": 64, "n": 64, "k": 64, "dtype": "bf16"})
    assert [k.kind for k in kernels_of(program, older)] == ["block"]
