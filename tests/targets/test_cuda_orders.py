"""How values between kernels lie in memory: neighbours are many where nothing asks otherwise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ir import Graph, Program, cast, contract, exp, operator, reduce, relu, rsqrt
from ir.inputs import random_inputs
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.orders import order_between
from ir.targets.cuda.build.statistics import together_of, with_statistics
from ir.targets.cuda.space.residences import PRODUCTS, SUMS, pieces_of
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, drawn
from tests.targets.test_meaning_of_numbers import run_emulated


def mixed(heads: int) -> Program:
    """Scores of heads, mixed by a small matrix ahead of a softmax along j, and another behind."""
    g = Graph("mixed")
    h, k, f, i, j, d, e = g.axes(h=heads, k=heads, f=heads, i=64, j=96, d=32, e=32)
    q, key = g.input("Q", (h, i, d), "bf16"), g.input("K", (h, j, d), "bf16")
    v = g.input("V", (f, j, e), "bf16")
    first, second = g.input("A", (h, k), "f32"), g.input("B", (k, f), "f32")
    s = contract(contract(q, key, over=d) * (1 / math.sqrt(32)), first, over=h)
    p = exp(s - reduce("max", s, over=j))
    weights = contract(p / reduce("sum", p, over=j), second, over=k)
    g.output("O", contract(cast(weights, "bf16"), v, over=j), "bf16", (f, i, e))
    return g.program()


def node_over(program: Program, axes: tuple[str, ...]) -> int:
    return next(n for n, node in enumerate(program.nodes) if node.axes == axes)


def test_a_short_axis_goes_ahead_of_the_long_one() -> None:
    program = mixed(heads=4)
    assert order_between(program, node_over(program, ("i", "j", "k"))) == ("i", "k", "j")


def test_a_long_axis_stays() -> None:
    program = mixed(heads=32)
    assert order_between(program, node_over(program, ("i", "j", "k"))) == ("i", "j", "k")


def test_what_a_product_sums_of_a_computed_operand_is_last() -> None:
    program = mixed(heads=4)
    assert order_between(program, node_over(program, ("i", "j", "f"))) == ("i", "f", "j")
    g = Graph("short")
    i, k, n, r = g.axes(i=256, k=16, n=64, r=8)
    made = reduce("sum", g.input("X", (i, k, r), "f32"), over=r)
    g.output("Y", contract(cast(exp(made), "bf16"), g.input("W", (k, n), "bf16"), over=k), "bf16")
    program = g.program()
    assert order_between(program, node_over(program, ("i", "k"))) == ("i", "k")


@operator
def talking(g: Graph, h: int = 16, s: int = 1024, d: int = 64, dtype: str = "bf16") -> None:
    """Attention whose scores are mixed between heads before their softmax."""
    to, head, query, key, depth, out = g.axes(h=h, g=h, q=s, k=s, d=d, e=d)
    q, k = g.input("Q", (head, query, depth), dtype), g.input("K", (head, key, depth), dtype)
    v, w = g.input("V", (to, key, out), dtype), g.input("W", (to, head), dtype)
    score = contract(cast(contract(q, k, over=depth), dtype), w, over=head)
    p = exp(score - reduce("max", score, over=key))
    total = reduce("sum", p, over=key)
    g.output("O", contract(cast(p, dtype), v, over=key) / total, dtype, (to, query, out))


def _between(program: Program, engine: str, residence: str = "usual") -> dict[str, tuple[int, ...]]:
    """Shapes of what kernels leave in memory for others."""
    return {
        spec.name: spec.shape
        for kernel in kernels_of(program, HARDWARE, engine, residence)
        for spec in kernel.program.outputs
    }


def test_short_rows_that_a_product_sums_stay_where_long_ones_are_written() -> None:
    """Heads are tiles of one; rows of 1,024 keys are written as they come."""
    assert _between(talking.build(), "mma")["t5"] == (16, 1024, 1024)
    assert _between(talking.build(h=64), "mma")["t5"] == (1024, 64, 1024)


@pytest.mark.parametrize("engine", ["mma", "wgmma"])
@pytest.mark.parametrize("beside", ["nothing", "a bias", "another tensor"])
def test_products_of_three_axes_are_written_along_what_their_tiles_have(
    beside: str, engine: str
) -> None:
    """Of a core and three matrices, every kernel writes rows, whatever is added to them."""
    g = Graph("tucker")
    a, b, c, p, q, r = g.axes(a=512, b=512, c=512, p=64, q=64, r=64)
    core = g.input("T", (p, q, r), "bf16")
    first = contract(core, g.input("U", (a, p), "bf16"), over=p)
    if beside == "a bias":
        first = relu(first + g.input("B", (a,), "f32"))
    elif beside == "another tensor":
        first = first + cast(g.input("B", (a, q, r), "bf16"), "f32")
    second = contract(cast(first, "bf16"), g.input("V", (b, q), "bf16"), over=q)
    last = contract(cast(second, "bf16"), g.input("W", (c, r), "bf16"), over=r)
    g.output("Y", last, "bf16", (a, b, c))
    found = [*_between(g.program(), engine).values()]
    assert found == [(512, 64, 64), (512, 512, 64), (512, 512, 512)]


def test_what_a_later_product_sums_of_a_computed_operand_is_last() -> None:
    assert _between(talking.build(), "mma")["t6"] == (1024, 16, 1024)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
@draws(1, 2)
def test_mixed_heads_are_right(count: int) -> None:
    program = talking.build(h=4, s=48, d=16)
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    for engine in ("mma", "wgmma"):
        for schedule in drawn(program, 0, count, 1, engine):
            found = run_emulated(BACKEND.lower(program, schedule, HARDWARE), inputs)
            assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []


def test_statistics_of_the_same_rows_have_one_kernel() -> None:
    """A row's maximum and its sum of exponentials; scores are read twice, not three times."""
    parts = [kernel.program for kernel in kernels_of(talking.build(), HARDWARE, "mma")]
    assert [len(part.outputs) for part in parts] == [1, 1, 2, 1]
    reads = [spec.name for part in parts for spec in part.inputs]
    assert reads.count("t6") == 2


def test_what_waits_for_another_kernel_has_one_of_its_own() -> None:
    g = Graph("apart")
    i, j, k = g.axes(i=64, j=96, k=32)
    x = g.input("X", (i, j), "f32")
    most, least = reduce("max", x, over=j), reduce("min", x, over=j)
    other = contract(cast(x * least, "bf16"), g.input("W", (j, k), "bf16"), over=j)
    late = reduce("sum", exp(x - reduce("max", other, over=k)), over=j)
    g.output("Y", most + least + late)
    program = g.program()
    reductions = [p for p, n in enumerate(program.nodes) if n.op.name in ("reduce", "contract")]
    first, second, product, top, last = reductions
    assert together_of(program, reductions) == [[first, second], [product], [top], [last]]
    assert together_of(program, [first, second, last]) == [[first, second], [last]]
    assert together_of(program, [first, top, last]) == [[first], [top], [last]]


def test_what_a_product_keeps_beside_it_has_no_second_kernel() -> None:
    """A row's sum has the kernel of the product that is made of it, not that of the maximum too."""
    g = Graph("kept")
    i, j, k, d = g.axes(i=64, j=96, k=32, d=16)
    scores = contract(g.input("Q", (i, d), "bf16"), g.input("K", (j, d), "bf16"), over=d)
    weights = exp(scores - reduce("max", scores, over=j))
    shares = cast(weights / reduce("sum", weights, over=j), "bf16")
    g.output("Y", contract(shares, g.input("V", (j, k), "bf16"), over=j))
    program = g.program()
    reductions = [p for p, n in enumerate(program.nodes) if n.op.name in ("reduce", "contract")]
    _, most, total, product = reductions
    assert with_statistics(program, [[most], [total]]) == [[most, total]]
    assert with_statistics(program, [[most], [total, product]]) == [[most], [total, product]]
    assert with_statistics(program, [[most, product], [total]]) == [[most, product], [total]]


def test_mean_and_variance_in_front_of_a_product_have_one_kernel() -> None:
    """Both are ends of reductions, not bare ones; the second is made of the first."""
    g = Graph("normal")
    m, n, r = g.axes(m=256, n=512, r=64)
    x = cast(g.input("X", (m, n), "bf16"), "f32")
    mean = reduce("sum", x, over=n) * (1 / 512)
    scale = rsqrt(reduce("sum", (x - mean) * (x - mean), over=n) * (1 / 512) + 1e-5)
    g.output("Y", contract(cast((x - mean) * scale, "bf16"), g.input("W", (n, r), "bf16"), over=n))
    (first, product) = pieces_of(g.program(), SUMS)
    assert len(first.program.outputs) == 2
    assert {spec.name for spec in first.program.inputs} == {"X"}
    assert len(product.program.outputs) == 1


def outer_products(c: int, d: int) -> Program:
    """Means of outer products of two features, times a matrix."""
    g = Graph("outer_products")
    s, i, j, z, c_, d_ = g.axes(s=64, i=24, j=16, z=32, c=c, d=d)
    a, b = g.input("A", (s, i, c_), "bf16"), g.input("B", (s, j, d_), "bf16")
    o = cast(contract(a, b, over=s) * (1 / 64), "bf16")
    w = g.input("W", (c_, d_, z), "bf16")
    g.output("Z", contract(o, w, over=(c_, d_)), "bf16", (i, j, z))
    return g.program()


def test_rows_and_columns_lie_together_where_each_is_several_short_axes() -> None:
    program = outer_products(32, 32)
    cast_at = max(n for n, node in enumerate(program.nodes) if len(node.axes) == 4)
    assert order_between(program, cast_at) == ("i", "c", "j", "d")
    kernel, _ = kernels_of(program, HARDWARE, "wgmma", PRODUCTS)
    assert kernel.program.outputs[0].shape == (24 * 32, 16 * 32)
    for other in (outer_products(8, 8), outer_products(32, 64)):  # short sums; a tile of columns
        cast_at = max(n for n, node in enumerate(other.nodes) if len(node.axes) == 4)
        assert order_between(other, cast_at) == ("i", "j", "c", "d")
