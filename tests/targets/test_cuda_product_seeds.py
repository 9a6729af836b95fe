"""Products without tensor cores: seeds whose threads have several points of both axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ir import Graph, cast, contract, maximum, operator, reduce, where
from ir.inputs import random_inputs
from ir.ops.base import Array
from ir.program import Program
from ir.space import Space
from ir.targets.cuda.seeds.block_seeds import lagged_seeds, product_seeds
from ir.targets.cuda.space.block import BlockKernel
from ir.targets.cuda.space.engines import routes_of
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import problems


@operator
def closest(g: Graph, m: int, n: int, k: int) -> None:
    """The least sum of differences: no product of numbers, but every row meets every other."""
    i, j, e = g.axes(m=m, n=n, k=k)
    x, y = g.input("X", (i, e), "f32"), g.input("Y", (j, e), "f32")
    apart = maximum(x - y, y - x)
    g.output("D", reduce("sum", apart, over=e), "f32", (i, j))


@operator
def two(g: Graph, b: int, m: int, n: int, k: int) -> None:
    """A product of each of a batch, that adds to a matrix."""
    bb, i, j, e = g.axes(b=b, m=m, n=n, k=k)
    x, y = g.input("X", (bb, i, e), "f64"), g.input("Y", (bb, e, j), "f64")
    g.output("Z", contract(x, y, over=e) + g.input("C", (i, j), "f64"), "f64", (bb, i, j))


def _matmul(**arguments: Any) -> Program:
    return built("matmul", arguments)


LARGE: dict[str, Program] = {
    "square": _matmul(m=1024, n=1024, k=1024, dtype="f64"),
    "turned": _matmul(m=1024, n=512, k=2048, dtype="f64", ta=True, tb=True),
    "odd": _matmul(m=1000, n=777, k=555, dtype="f64"),
    "batch": two.build(b=8, m=512, n=512, k=256),
    "differences": closest.build(m=1024, n=1024, k=128),
}


def _block(program: Program) -> BlockKernel:
    found = (kernel for route in routes_of(program, HARDWARE) for kernel in route.kernels)
    return next(kernel for kernel in found if isinstance(kernel, BlockKernel))


def _times(space: Space, rows: Array) -> Array:
    """Estimates, as powers of two."""
    assert space.features is not None
    names, table = space.features(space.columns(rows))
    found: Array = table[:, names.index("total.estimate")]
    return found


def _several(space: Space, rows: Array) -> Array:
    """Which rows give a thread several points of both axes."""
    columns = space.columns(rows)
    found: Array = (columns["own.m"] > 1) & (columns["own.n"] > 1)
    return found


@pytest.mark.parametrize("name", LARGE)
def test_the_best_seed_has_several_points_of_both_axes(name: str) -> None:
    space = BACKEND.space(LARGE[name], HARDWARE)
    rows = space.seed_rows(np.random.default_rng(0))
    several, times = _several(space, rows), _times(space, rows)
    assert several[times.argmin()]
    assert 3 <= several.sum() < len(rows)
    assert times[several].min() < times[~several].min() - 0.5


def test_a_point_of_each_takes_ten_times_as_long() -> None:
    space = BACKEND.space(LARGE["square"], HARDWARE)
    rows = space.seed_rows(np.random.default_rng(0))
    columns, times = space.columns(rows), _times(space, rows)
    alone = (columns["own.m"] == 1) & (columns["own.n"] == 1)
    assert times[alone].min() - times.min() > np.log2(10)


@pytest.mark.parametrize("name", LARGE)
def test_seeds_differ_and_a_thread_has_no_more_points_than_its_tile(name: str) -> None:
    seeds = product_seeds(_block(LARGE[name]))
    assert len({tuple(seed.items()) for seed in seeds}) >= 3
    for seed in seeds:
        points = {axis: int(seed[f"own.{axis}"]) for axis in "mnk"}
        assert all(points[axis] <= int(seed[f"tile.{axis}"]) for axis in "mnk")
        assert seed["lanes"] == "n" or points["m"] > 1
        assert int(seed["vector"]) <= points[str(seed["lanes"])]


def test_sums_of_which_no_two_axes_meet_have_none() -> None:
    g = Graph("rows")
    i, j = g.axes(i=512, j=512)
    x = g.input("X", (i, j), "f32")
    g.output("S", reduce("sum", x * x, over=j), "f32", (i,))
    assert not product_seeds(_block(g.program()))


@operator
def lags(g: Graph, b: int, t: int, lags: int) -> None:
    """A correlation of each of some signals with another one, at so many lags."""
    bb, tt, ll = g.axes(b=b, t=t, l=lags)
    y = g.tensor("Y", (b, t), "f32", fill=0)[bb, tt + ll]
    g.output("R", contract(g.input("X", (bb, tt), "f32"), y, over=tt), "f32", (bb, ll))


def test_lags_of_a_long_sum_lie_in_one_thread() -> None:
    found = lagged_seeds(_block(lags.build(b=8, t=4096, lags=64)))
    assert found
    assert all(1 not in (values["own.l"], values["own.t"]) for values, _ in found)
    assert all(values["lanes"] == "l" and options["parts"] != 1 for values, options in found)
    assert not lagged_seeds(_block(lags.build(b=8, t=16, lags=64)))  # a window


@operator
def between_columns(g: Graph, n: int, d: int) -> None:
    """Sums of products of columns, as a covariance has them."""
    nn, i, j = g.axes(n=n, i=d, j=d)
    x = g.input("X", (nn, i), "f32")
    g.output("C", contract(x, x.at(i=j), over=nn), "f32", (i, j))


@operator
def lowest(g: Graph, n: int, d: int) -> None:
    """The corner of a box that holds all points."""
    nn, dd = g.axes(n=n, d=d)
    g.output("L", reduce("min", g.input("X", (nn, dd), "f32"), over=nn))


FEW_POINTS = {
    "tall": (_matmul(m=4096, n=32, k=65536, dtype="f32", ta=True), 8),
    "columns": (between_columns.build(n=4194301, d=64), 256),
    "box": (lowest.build(n=134217689, d=3), 128),
}


@pytest.mark.parametrize("name", FEW_POINTS)
def test_long_sums_of_few_points_have_a_block_for_every_processor(name: str) -> None:
    program, parts = FEW_POINTS[name]
    space = BACKEND.space(program, HARDWARE)
    rows = space.seed_rows(np.random.default_rng(0))
    times = _times(space, rows)
    assert space.columns(rows)["parts"][times.argmin()] >= parts
    assert times.min() < 2.7


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
def test_parts_of_a_product_are_added() -> None:
    program = between_columns.build(n=1531, d=24)
    space, inputs = (
        BACKEND.space(program, HARDWARE),
        random_inputs(program, np.random.default_rng(1)),
    )
    rows = space.seed_rows(np.random.default_rng(0))
    columns = space.columns(rows)
    several = (columns["own.i"] > 1) & (columns["own.j"] > 1) & (columns["parts"] > 1)
    wanted = bounds_of(program, inputs)
    for mode, row in enumerate(rows[several][:2]):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, kernel, inputs, wanted, 15 * mode)
    assert several.sum() >= 2


SMALL = (
    _matmul(m=70, n=50, k=33, dtype="f64"),
    _matmul(m=64, n=96, k=40, dtype="f64", ta=True, tb=True),
    two.build(b=2, m=40, n=36, k=20),
    closest.build(m=45, n=70, k=24),
)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("number", range(len(SMALL)))
def test_their_kernels_are_right(number: int) -> None:
    program, rng = SMALL[number], np.random.default_rng(number)
    inputs, space = random_inputs(program, rng), BACKEND.space(program, HARDWARE)
    wanted = bounds_of(program, inputs)
    rows = space.seed_rows(rng)
    rows = rows[_several(space, rows)]
    for row in rows[rng.permutation(len(rows))[:3]]:
        schedule = space.schedule(row)
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        mode = int(rng.integers(16))
        assert not problems(program, kernel, inputs, wanted, mode), schedule.to_json()


def test_seeds_of_sums_longer_than_any_tile_are_in_the_space() -> None:
    """How many points lie nearest to each of many, counted over a million of them."""
    g = Graph("nearest")
    i, k, d = g.axes(n=1 << 20, k=1024, d=128)
    x, c = g.input("X", (i, d), "bf16"), g.input("C", (k, d), "bf16")
    near = reduce("sum", cast(x, "f32") * c, over=d)
    own = where(near == reduce("max", near, over=k), 1.0, 0.0)
    g.output("counts", reduce("sum", own, over=i))
    kernel = BlockKernel(g.program(), "", HARDWARE)
    domains = {decision.name: decision.domain for decision in kernel.decisions()}
    assert all(own[name] in domains[name] for own in kernel.seeds() for name in own)
