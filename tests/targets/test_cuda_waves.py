"""Tiles that fill whole waves: which are found, and that seeds have them."""

from __future__ import annotations

import numpy as np
import pytest

from ir.targets.cuda.tensor_waves import Grid, best_tiles
from tests.targets.cuda_cases import BACKEND, HARDWARE, built

SHORT = Grid(512, 14336, 4096, 1, 1, 2)


def test_256_tiles_fill_two_waves_where_224_do_not() -> None:
    found = best_tiles(SHORT, 132)
    assert {(tile.rows, tile.columns) for tile in found} == {(128, 224), (256, 112)}
    assert {tile.consumers for tile in found} == {2}
    assert (2 * 4096 * 128 * 224 / 2048) < found[0].clocks < (2 * 4096 * 128 * 256 / 2048)


@pytest.mark.parametrize("extents", [(4096, 14336, 4096), (2048, 4096, 14336), (8192, 8192, 8192)])
def test_nothing_is_found_where_usual_tiles_fill_their_waves(
    extents: tuple[int, int, int],
) -> None:
    assert best_tiles(Grid(*extents, 1, 1, 2), 132) == []


def test_another_card_has_other_waves() -> None:
    assert best_tiles(SHORT, 112) == []


def test_two_products_of_a_tile_share_its_registers() -> None:
    found = best_tiles(Grid(512, 14336, 4096, 1, 2, 2), 132, count=100)
    assert found
    assert all(tile.columns * 2 <= 256 for tile in found)


@pytest.mark.parametrize("operator", ["matmul", "matmul_bias_act"])
def test_seeds_have_them(operator: str) -> None:
    extents = {"m": 512, "n": 14336, "k": 4096, "dtype": "bf16", "tb": True}
    space = BACKEND.space(built(operator, extents), HARDWARE)
    rows = space.seed_rows(np.random.default_rng(0))[:8]
    tiles = [(s["tile.m"], s["tile.n"]) for s in map(space.schedule, rows)]
    assert (128, 224) in tiles
