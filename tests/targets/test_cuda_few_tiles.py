"""Products of few tiles and long sums, in programs of several kernels: where a search begins."""

from __future__ import annotations

import numpy as np

from explorer.strategies.opening import estimates
from ir import Graph, cast, contract, load_operator, reduce
from ir.program import Program
from tests.targets.cuda_cases import BACKEND, HARDWARE


def covariance(n: int, d: int) -> Program:
    """Of rows that are not centred: the sums of both sides are kernels of their own."""
    g = Graph("covariance")
    rows, left, right = g.axes(n=n, d=d, e=d)
    x = g.tensor("X", (n, d), "bf16")
    means = [reduce("sum", cast(x[rows, a], "f32"), over=rows) * (1 / n) for a in (left, right)]
    both = contract(x[rows, left], x[rows, right], over=rows) * (1 / n)
    g.output("C", both - means[0] * means[1], "f32", (left, right))
    return g.program()


def test_tiles_are_shared_where_they_are_too_few_for_the_processors() -> None:
    """Four tiles of 128 x 128 have a quarter of the sum's million points for each of 33 blocks."""
    space = BACKEND.space(covariance(1 << 20, 256), HARDWARE)
    rows = space.seed_matrix[space.legal(space.seed_matrix)]
    told = estimates(space, rows)
    best = space.schedule(rows[int(told.argmin())]).as_dict()
    (shared,) = {value for name, value in best.items() if name.split(".")[-2:-1] == ["stream_k"]}
    assert shared == "rest"
    assert told.min() < 2.5  # three passes over the rows, at most twice as long as they take


def test_large_clusters_have_no_room_on_all_processors() -> None:
    """Thirty-two clusters of four blocks are two rounds, of which an H200 has thirty at a time."""
    program = load_operator("matmul").build(m=200, n=4096, k=14336, dtype="bf16", tb=True)
    told = {}
    for cluster in ("1x1", "1x2", "1x4"):
        pins = {
            "engine": "wgmma", "tile.m": 64, "tile.n": 128, "tile.k": 64, "swap": False,
            "consumers": 1, "cluster": cluster, "processors": 128, "split": "none",
            "stream_k": "none", "stages": 6,
        }  # fmt: skip
        space = BACKEND.space(program, HARDWARE).pin(pins)
        told[cluster] = estimates(space, space.sample(np.random.default_rng(0), 64)).min()
    assert told["1x4"] > told["1x1"] + 0.5  # which are powers of two; memory bounds the rest
    assert told["1x2"] <= told["1x1"]
