"""Estimates of what is read at computed indices, of points that lie apart, and of stores."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, Tile, cast, cumulative, floor, minimum, reduce
from ir.ops.load import Load
from ir.program import Program
from ir.target import get_backend
from ir.targets.cuda.rows.hardware import known_hardware
from ir.targets.cuda.space.gathers import apart

HOPPER = known_hardware("h200")


def best(program: Program) -> float:
    """The estimate of the fastest seed, in powers of two over what the program takes at least."""
    space = get_backend("cuda").space(program, HOPPER)
    rows = space.seed_matrix[space.legal(space.seed_matrix)]
    assert space.features is not None
    names, table = space.features(space.columns(rows))
    return float(table[:, names.index("total.estimate")].min())


def picked(places: str) -> Program:
    """Rows read at half of their coordinates, at a hash of them, or where a tensor says."""
    g = Graph("picked")
    i, j = g.axes(i=4096, j=8192)
    at: Tile = cast(floor(g.iota(j) * 0.5), "i32")
    if places == "hashed":
        at = (g.iota(j) * 40503) % 4096
    elif places == "data":
        at = g.input("at", (j,), "i32")
    g.output("Y", g.tensor("X", (4096, 4096), "f32")[i, minimum(at, 4095)], dims=(i, j))
    return g.program()


@pytest.mark.parametrize(("places", "near", "far"), [
    ("halves", 1.9, 2.1), ("hashed", 32.0, 32.0),
])  # fmt: skip
def test_neighbours_at_computed_indices_are_as_far_apart_as_they_are(
    places: str, near: float, far: float
) -> None:
    program = picked(places)
    (load,) = [p for p, node in enumerate(program.nodes) if isinstance(node.op, Load)]
    steps = apart(program, load, 4)
    assert steps is not None
    assert near <= steps["j"] <= far


def test_nobody_knows_how_far_data_says() -> None:
    program = picked("data")
    loads = [p for p, node in enumerate(program.nodes) if isinstance(node.op, Load)]
    assert [apart(program, p, 4) for p in loads][-1] is None


def test_a_row_that_is_stretched_costs_what_it_moves() -> None:
    assert best(picked("halves")) < 1.0 < best(picked("hashed"))


def test_points_that_lie_apart_and_are_all_read_waste_nothing() -> None:
    g = Graph("rows_of_nine")
    (n,) = g.axes(n=1 << 22)
    x = g.tensor("X", (1 << 22, 9), "f32")
    total = x[n, 0]
    for k in range(1, 9):
        total = total + x[n, k]
    g.output("Y", total)
    assert best(g.program()) < 1.0


def test_tiles_of_whole_last_axes_store_whole_sectors() -> None:
    g = Graph("shuffled")
    c, i, p, j, q = g.axes(c=64, i=128, p=2, j=128, q=2)
    x = g.tensor("X", (256, 128, 128), "bf16")
    g.output("Y", x[c * 4 + p * 2 + q, i, j], "bf16", (c, i, p, j, q))
    assert best(g.program()) < 1.0


def test_a_few_places_of_large_tensors_are_not_all_of_them() -> None:
    g = Graph("few")
    b, t = g.axes(b=64, t=8)
    token = g.input("token", (b, t), "i32")
    found = g.tensor("P", (64, 8, 1 << 20), "f32")[b, t, token]
    g.output("N", reduce("sum", cumulative("min", found, t), t))
    space = get_backend("cuda").space(g.program(), HOPPER)
    assert space.features is not None
    names, table = space.features(space.columns(space.sample(np.random.default_rng(0), 8)))
    seconds = 2.0 ** (
        table[:, names.index("total.estimate")] + table[:, names.index("seconds.ideal")]
    )
    assert seconds.min() < 1e-4
