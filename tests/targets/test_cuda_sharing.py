"""What is reduced of a product that another one is made of has that one's kernel."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Axis, Graph, Tile, cast, contract, exp, maximum, reduce, rsqrt, where
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.residences import STORED
from ir.targets.cuda.space.tensor import TensorKernel
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems


def features(heads: int = 1, n: int = 128, d: int = 64, f: int = 64) -> Program:
    """Attention by positive features of queries and keys, without a mask."""
    g = Graph("features")
    h, i, j, dd, e, ff = g.axes(h=heads, i=n, j=n, d=d, e=d, f=f)
    w = g.input("W", (ff, dd), "bf16")

    def positive(name: str, rows: Axis) -> Tile:
        x = g.input(name, (h, rows, dd), "bf16")
        length = reduce("sum", cast(x, "f32") * cast(x, "f32"), over=dd) * (0.5 * d**-0.5)
        return cast(exp(contract(x, w, over=dd) * d**-0.25 - length) * f**-0.5, "bf16")

    q, k = positive("Q", i), positive("K", j)
    sums = cast(contract(k, g.input("V", (h, j, e), "bf16"), over=j), "bf16")
    total = contract(cast(q, "f32"), reduce("sum", cast(k, "f32"), over=j), over=ff)
    g.output("O", contract(q, sums, over=ff) / total, "bf16", (h, i, e))
    return g.program()


def test_both_sums_over_keys_have_one_kernel_and_both_over_features_another() -> None:
    kernels = kernels_of(features(16, 4096, 64, 256), HARDWARE, "wgmma")
    assert [isinstance(kernel, TensorKernel) for kernel in kernels] == [False, False, True, True]
    assert [len(kernel.program.outputs) for kernel in kernels] == [1, 1, 2, 1]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
@draws(2, 4)
def test_such_kernels_mean_their_program(count: int) -> None:
    program = features(1, 320)
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    rows = space.sample(np.random.default_rng(2), count)
    for number, row in enumerate(rows):
        lowered = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, lowered, inputs, bounds, (0, 15, 6, 9)[number])


def both_sides(batch: int, n: int, m: int) -> Program:
    """A X B^T for each X of a batch: a chain whose weights do not vary along it."""
    g = Graph("both_sides")
    b, i, j, k, l = g.axes(b=batch, i=n, j=m, k=n, l=m)  # noqa: E741
    half = cast(contract(g.input("X", (b, k, l), "bf16"), g.input("B", (j, l), "bf16"), l), "bf16")
    g.output("Y", contract(g.input("A", (i, k), "bf16"), half, over=k), "bf16", (b, i, j))
    return g.program()


def neighbours(n: int, d: int) -> Program:
    """A softmax of sums of one number for each side, behind a mask, as weights of rows."""
    g = Graph("neighbours")
    i, j, e = g.axes(i=n, j=n, e=d)
    score = g.input("a", (i,), "f32") + g.input("c", (j,), "f32")
    score = where(g.input("M", (i, j), "f32") < 0.5, maximum(score, 0.2 * score), -1e9)
    weight = exp(score - reduce("max", score, over=j))
    o = contract(cast(weight, "bf16"), g.input("X", (j, e), "bf16"), over=j)
    g.output("O", o / reduce("sum", weight, over=j), "bf16", (i, e))
    return g.program()


def mixed(n: int, e: int, p: int, d: int) -> Program:
    """Rows over two axes that lie behind one another, normalised over both, times a matrix."""
    g = Graph("mixed")
    i, ee, pp, dd = g.axes(i=n, e=e, p=p, d=d)
    score = g.input("S", (i, ee, pp), "f32")
    weight = exp(score - reduce("max", score, over=(ee, pp)))
    own, y = g.input("P", (i, ee, pp), "bf16"), g.input("Y", (dd, ee, pp), "bf16")
    o = contract(own, y, over=(ee, pp)) / reduce("sum", weight, over=(ee, pp))
    g.output("O", o, "bf16", (i, dd))
    return g.program()


def cosines(n: int, d: int) -> Program:
    """Attention by cosines: both lengths are divided by behind the product."""
    g = Graph("cosines")
    i, j, dd, e = g.axes(i=n, j=n, d=d, e=d)
    q, k = g.input("Q", (i, dd), "bf16"), g.input("K", (j, dd), "bf16")
    squares = (reduce("sum", cast(x, "f32") * cast(x, "f32"), over=dd) + 1e-6 for x in (q, k))
    one, other = (rsqrt(square) for square in squares)
    score = contract(q, k, over=dd) * one * other * 8.0
    weight = exp(score - reduce("max", score, over=j))
    o = contract(cast(weight, "bf16"), g.input("V", (j, e), "bf16"), over=j)
    g.output("O", o / reduce("sum", weight, over=j), "bf16", (i, e))
    return g.program()


CASES = {
    "scores behind lengths": (cosines(256, 64), 3),
    "chain along a batch": (both_sides(3, 64, 64), 1), "both statistics": (neighbours(256, 64), 2),
    "axes as one": (mixed(128, 16, 16, 64), 2),
}  # fmt: skip


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")
@pytest.mark.parametrize("name", CASES)
@draws(1, 4)
@pytest.mark.alike(2)
def test_few_kernels_that_mean_their_program(name: str, count: int) -> None:
    program, most = CASES[name]
    counts = {
        engine: len(kernels_of(program, HARDWARE, engine)) for engine in ("wgmma", "wgmma_rs")
    }
    assert min(counts.values()) <= most
    inputs = random_inputs(program, np.random.default_rng(1))
    bounds = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    own = [d.domain for d in space.decisions if d.name == "engine"]
    space = space.pin(engine=own[0][0]) if own else space  # plain units take long to emulate
    rows = [
        *space.seed_rows(np.random.default_rng(0))[: count + 1],
        *space.sample(np.random.default_rng(2), count),
    ]
    for number, row in enumerate(rows):
        lowered = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, lowered, inputs, bounds, (0, 6, 9, 15)[number % 4])


def test_a_product_between_kernels_is_stored_behind_what_is_made_of_it() -> None:
    """Divided and rounded, where the sum it is divided by is in memory as well."""
    g = Graph("slots")
    i, j, k, n = g.axes(i=128, j=1024, k=64, n=64)
    weight = exp(g.input("S", (i, j), "f32"))
    slots = contract(cast(weight, "bf16"), g.input("X", (j, k), "bf16"), over=j)
    mean = cast(slots / reduce("sum", weight, over=j), "bf16")
    g.output("Y", contract(mean, g.input("W", (k, n), "bf16"), over=k) * 0.5, "bf16", (i, n))
    kernels = kernels_of(g.program(), HARDWARE, "wgmma_rs", STORED)
    between = [spec for kernel in kernels for spec in kernel.program.outputs if spec.name != "Y"]
    assert [spec.dtype for spec in between if len(spec.shape) > 1] == ["bf16"]
