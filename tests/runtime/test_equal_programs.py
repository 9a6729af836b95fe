"""What a right kernel may be off by where it may be one of an equal program."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from explorer.afforded import HOST
from explorer.recipe import recipe_of
from ir import Graph, cast, exp, reduce, where
from ir.ops.reduce import Contract
from ir.program import Program
from ir.target import get_backend
from tests.targets.cuda_cases import HARDWARE


def summed(k: int, dtype: str = "bf16") -> Program:
    g = Graph("summed")
    m, n, kk = g.axes(m=8, n=8, k=k)
    a, b = g.input("A", (m, kk), dtype), g.input("B", (n, kk), dtype)
    g.output("C", reduce("sum", cast(a, "f32") * b, over=kk), "f32", (m, n))
    return g.program()


def averaged(n: int = 256) -> Program:
    """Weights that decay from each point back: a form of it goes in chunks, which cut `i`."""
    g = Graph("averaged")
    m, i, j = g.axes(m=64, i=n, j=n)
    apart = cast(g.iota(i) - g.iota(j), "f32")
    w = where(g.iota(j) <= g.iota(i), exp(apart * math.log(0.9)), 0.0)
    g.output("Y", reduce("sum", w * g.input("X", (m, j), "f32"), over=j), "f32", (m, i))
    return g.program()


def test_sums_of_narrow_products_may_be_those_of_tensor_cores() -> None:
    """As contractions of the same factors may: a long sum loses more there than in f32."""
    cuda, cpu = (recipe_of(summed(65536), 7, get_backend(name), HARDWARE) for name in
                 ("cuda", "cpu"))  # fmt: skip
    assert any(isinstance(node.op, Contract) for node in cuda.program.nodes)
    assert not any(isinstance(node.op, Contract) for node in cpu.program.nodes)
    wide, narrow = (one.expected(0, HOST).bounds["C"] for one in (cuda, cpu))
    assert ((wide.high - wide.low) > 1.5 * (narrow.high - narrow.low)).all()


def test_wide_products_are_judged_as_they_are_written() -> None:
    recipe = recipe_of(summed(256, "f32"), 7, get_backend("cuda"), HARDWARE)
    assert not any(isinstance(node.op, Contract) for node in recipe.program.nodes)


def test_a_sample_is_judged_by_a_form_that_has_its_axis_in_chunks() -> None:
    recipe = recipe_of(averaged(), 7, get_backend("cuda"), HARDWARE)
    assert recipe.forms
    whole = recipe.expected(0, HOST).bounds["Y"]
    few = replace(HOST, flops=HOST.flops / 1e5, elements=HOST.elements / 1e4)
    part = recipe.expected(0, few).bounds["Y"]
    assert part.low.size < whole.low.size / 100
    assert part.picks is not None
    for one, other in ((part.low, whole.low), (part.high, whole.high)):
        np.testing.assert_array_equal(one, other[part.picks])
