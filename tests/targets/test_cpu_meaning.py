"""Schedules that are said to mean the same lower to one kernel, and few others do."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from explorer.workload import Workload
from ir.space import Matrix, Space
from ir.target import Hardware
from tests.costmodel.test_traits import HOST

TILES = Hardware(
    "cpu",
    "test",
    ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"),
    2,
    HOST.facts,
)
CASES: tuple[tuple[str, dict[str, Any], Hardware], ...] = (
    ("matmul", {"m": 96, "n": 130, "k": 2048}, HOST),
    ("matmul", {"m": 96, "n": 128, "k": 2048, "dtype": "bf16"}, TILES),
    ("softmax", {"m": 150, "n": 700}, HOST),
    ("attention", {"b": 1, "heads": 2, "sq": 96, "d": 64, "causal": True}, HOST),
    ("conv2d", {"n": 1, "h": 13, "w": 17, "c": 16, "f": 24, "r": 3, "s": 3}, HOST),
)


def _near(space: Space) -> Matrix:
    """Legal schedules around a few: neighbours, and mutants of these."""
    rng = np.random.default_rng(2)
    parents = np.concatenate([space.sample(rng, 12), space.seed_rows(rng)[:4]])
    near = np.concatenate([space.neighbours(row) for row in parents])
    mutants = space.mutate(rng, near)
    return np.unique(np.concatenate([near, mutants[space.legal(mutants)]]), axis=0)


@pytest.mark.parametrize(("operator", "arguments", "hardware"), CASES)
@pytest.mark.alike(2)
def test_schedules_of_one_meaning_lower_to_one_kernel(
    operator: str, arguments: dict[str, Any], hardware: Hardware
) -> None:
    workload = Workload.of(operator, arguments, "cpu")
    backend, program = workload.backend, workload.program
    space = backend.space(program, hardware)
    rows = _near(space)
    groups = defaultdict(list)
    for row, numbers in zip(rows, space.meanings(rows), strict=True):
        groups[numbers.tobytes()].append(row)
    several = [group for group in groups.values() if len(group) > 1]
    assert len(several) >= 20
    for group in several[:: len(several) // 10]:
        first, last = (space.schedule(row) for row in (group[0], group[-1]))
        kernels = [backend.lower(program, schedule, hardware) for schedule in (first, last)]
        assert kernels[0].key == kernels[1].key, f"{first}\n{last}"


def test_nearly_all_kernels_have_one_meaning() -> None:
    """Else a search would measure copies: told apart by hand, they were two thirds of a batch."""
    workload = Workload.of("matmul", {"m": 64, "n": 64, "k": 64}, "cpu")
    space = workload.backend.space(workload.program, HOST)
    rows = _near(space)
    rows = rows[np.random.default_rng(0).choice(len(rows), 150, replace=False)]
    meanings = {numbers.tobytes() for numbers in space.meanings(rows)}
    kernels = {
        workload.backend.lower(workload.program, space.schedule(row), HOST).key for row in rows
    }
    assert len(meanings) < 1.1 * len(kernels)
    assert len(kernels) < 0.95 * len(rows)
