"""Tiles that fill whole waves: which are found, and that seeds have them."""

from __future__ import annotations

import numpy as np
import pytest

from ir.targets.cuda.seeds.tensor_waves import Grid, best_tiles
from tests.targets.cuda_cases import BACKEND, HARDWARE, built

SHORT = Grid(512, 14336, 4096, 1, 1, 2)


def test_256_tiles_fill_two_waves_where_224_do_not() -> None:
    found = best_tiles(SHORT, 132, whole=False)
    assert {(tile.rows, tile.columns) for tile in found} == {(128, 224), (256, 112)}
    assert {tile.consumers for tile in found} == {2}
    assert (2 * 4096 * 128 * 224 / 2048) < found[0].clocks < (2 * 4096 * 128 * 256 / 2048)


def test_512_tiles_fill_four_waves_where_448_do_not() -> None:
    (best, *_) = best_tiles(SHORT, 132, whole=True)
    assert (best.rows, best.columns, best.consumers) == (128, 112, 2)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("extents", [(4096, 14336, 4096), (2048, 4096, 14336), (8192, 8192, 8192)])
def test_nothing_is_found_where_usual_tiles_fill_their_waves(
    extents: tuple[int, int, int], whole: bool
) -> None:
    assert best_tiles(Grid(*extents, 1, 1, 2), 132, whole) == []


def test_another_card_has_other_waves() -> None:
    assert best_tiles(SHORT, 112, whole=False) == []


def test_two_products_of_a_tile_share_its_registers() -> None:
    narrow = Grid(512, 14080, 4096, 1, 2, 2)
    found = best_tiles(narrow, 132, whole=False, count=100)
    assert found
    assert all(tile.columns * 2 <= 256 for tile in found)


@pytest.mark.parametrize("operator", ["matmul", "matmul_bias_act"])
def test_seeds_have_them(operator: str) -> None:
    extents = {"m": 512, "n": 14336, "k": 4096, "dtype": "bf16", "tb": True}
    space = BACKEND.space(built(operator, extents), HARDWARE)
    schedules = map(space.schedule, space.seed_rows(np.random.default_rng(0))[:12])
    tiles = {(s["tile.m"], s["tile.n"], s["partition"], s["cluster"]) for s in schedules}
    assert {(128, 224, "rows", "1x1"), (128, 112, "whole", "1x1")} <= tiles


def test_an_epilogue_counts_where_no_other_products_run() -> None:
    """GELU of 4096 x 14336 took 14 % more where consumers share their tiles (H200)."""
    extents = {"m": 4096, "n": 14336, "k": 4096, "dtype": "bf16", "tb": True}
    space = BACKEND.space(built("matmul_bias_act", extents), HARDWARE).pin(engine="wgmma")
    rows = space.seed_rows(np.random.default_rng(0))
    names, features = space.features(space.columns(rows))  # type: ignore[misc]
    estimates = 2.0 ** features[:, names.index("total.estimate")]
    best = {
        partition: min(
            estimate
            for estimate, schedule in zip(estimates, map(space.schedule, rows), strict=True)
            if schedule["partition"] == partition
        )
        for partition in ("rows", "whole")
    }
    assert 1.05 < best["rows"] / best["whole"] < 1.2
