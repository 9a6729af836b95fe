"""Schedules that products with few rows start from."""

from __future__ import annotations

from typing import Any

import pytest

from ir.schedule import Schedule
from ir.targets.cuda.build.kernels import choices_of, kernels_of
from ir.targets.cuda.seeds.few_rows import few_rows_seeds
from ir.targets.cuda.space.tensor import TensorKernel
from tests.targets.cuda_cases import BACKEND, HARDWARE, built

LARGE: dict[str, Any] = {"n": 8192, "k": 8192, "dtype": "bf16", "tb": True}


def seeds_of(name: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """The seeds, whole: decisions that they leave out have their first values."""
    program = built(name, arguments)
    (kernel,) = kernels_of(program, HARDWARE, "wgmma")
    assert isinstance(kernel, TensorKernel)
    space = BACKEND.space(program, HARDWARE).pin(engine="wgmma")
    first = {d.name: d.domain[0] for d in space.decisions} | {"engine": "wgmma", "early": True}
    seeds = few_rows_seeds(kernel, choices_of(program, (kernel,)))
    for seed in seeds:
        assert space.refusal(Schedule.of("cuda", first | seed)) is None
    return seeds


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("matmul", {"m": 1, **LARGE}),
        ("matmul", {"m": 64, **LARGE, "n": 4000, "k": 5120, "tb": False}),
        ("matmul", {"m": 128, **LARGE}),
        ("matmul", {"m": 64, **LARGE, "dtype": "i8"}),
        ("matmul", {"m": 8192, "n": 40, "k": 4096, "dtype": "f16"}),
        ("matmul_bias_act", {"m": 100, "n": 4096, "k": 4096, "dtype": "bf16"}),
    ],
    ids=str,
)
def test_they_are_legal_as_they_are(name: str, arguments: dict[str, Any]) -> None:
    """Whole sums, and halves that meet in a cluster."""
    seeds = seeds_of(name, arguments)
    assert {"none", "k:2"} <= {seed.get("split", "none") for seed in seeds}


def test_products_with_many_rows_have_none() -> None:
    program = built("matmul", {"m": 4096, **LARGE})
    (kernel,) = kernels_of(program, HARDWARE, "wgmma")
    assert isinstance(kernel, TensorKernel)
    assert few_rows_seeds(kernel, choices_of(program, (kernel,))) == []
