"""Rows of different length on a CPU: what is begun with goes over each as far as it is long."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.strategies.opening import estimates
from ir.catalogue import settings_of
from ir.registry import load_operator
from ir.target import get_backend
from tests.targets.test_cuda_ragged import pooled

CPU = get_backend("cpu")
HOST = CPU.hardware(2)


def test_lanes_along_rows_of_different_length_are_estimated_to_be_slow() -> None:
    """They all go as far as the longest, and gather (9.6 ms measured, where others took 1.0)."""
    space = CPU.space(pooled(1021, 131_072, 8192, 768), HOST)
    rows = space.sample(np.random.default_rng(1), 120)
    costs = estimates(space, rows)
    lanes = np.array([dict(space.schedule(row).values)["lane.s0"] for row in rows])
    assert costs[lanes == "b"].min() > costs[lanes == "d"].min() + 1


def test_seeds_have_no_lanes_along_them() -> None:
    space = CPU.space(pooled(1021, 131_072, 8192, 768), HOST)
    for seed in range(3):
        rows = space.seed_rows(np.random.default_rng(seed))
        assert {dict(space.schedule(row).values)["lane.s0"] for row in rows} == {"d"}


@pytest.mark.parametrize(
    "name",
    ["paged_attention", "depthwise_conv2d", "causal_conv1d", "moe_combine", "retention_decode",
     "mamba2_decode", "delta_rule_decode", "block_scaled_matmul"],
)  # fmt: skip
def test_seeds_are_legal_as_they_are(name: str) -> None:
    """Where no axis gives rows, they have one: repaired at random, all had the same odd axes."""
    operator = load_operator(name)
    settings = settings_of(operator)
    program = operator.build(**next(iter(settings.values())))
    space = CPU.space(program, CPU.hardware(1))
    assert space.legal(space.seed_matrix).any()
