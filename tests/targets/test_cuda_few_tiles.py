"""Products of few tiles and long sums, in programs of several kernels: where a search begins."""

from __future__ import annotations

from explorer.strategies.opening import estimates
from ir import Graph, cast, contract, reduce
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
