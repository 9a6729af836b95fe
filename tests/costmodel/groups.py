"""Made-up workloads of a toy space whose features mean the same in each, for tests of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from costmodel.dataset import Group
from costmodel.features import IDEAL, TRAFFIC, trait_names, traits
from ir.space import Columns, Features, Matrix, Space
from tests.space.toy import tiling_space, toy_seconds


def _features(columns: Columns) -> Features:
    """The sizes that the toy's time depends on, as a backend would tell them."""
    names = ("tile.m.1", "tile.n.1", "tile.k.1", "tile.m.2", "tile.n.2", "unroll.k", "pack.A",
             "pack.B", "threads.m", "prefetch")  # fmt: skip
    values = [np.log2(1.0 + columns[name]) for name in names]
    traffic = 1 / columns["tile.m.1"] + 1 / columns["tile.n.1"]
    fixed = [np.full(columns.rows, -10.0), np.log2(traffic)]
    rows = np.stack([*values, *fixed], axis=1).astype(np.float32)
    return (*names, IDEAL, TRAFFIC), rows


def told_space() -> Space:
    """The toy space with features of its own."""
    return replace(tiling_space(), features=_features)


def group(operator: str, workload: str, rows: int, seed: int, scale: float = 1.0) -> Group:
    """`rows` kernels of a workload; those with the longest prefetch fail."""
    space = told_space()
    matrix: Matrix = space.sample(np.random.default_rng(seed), rows)
    seconds = toy_seconds(space, matrix) * scale
    seconds[space.columns(matrix)["prefetch"] == 16] = np.nan
    return Group(operator, workload, "toy", trait_names(space), traits(space, matrix), seconds)


def groups() -> Sequence[Group]:
    """Three operators, six workloads."""
    return [
        group(f"op{number // 2}", f"n={number}", 300, number, 1.0 + number) for number in range(6)
    ]
