"""Extents of one and primes, in any combination: kernels of drawn schedules are right."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ir import (
    Graph,
    apply,
    cast,
    contract,
    exp,
    lookup,
    maximum,
    operator,
    philox_uniform,
    reduce,
    where,
)
from ir.builder import Operator
from ir.inputs import random_inputs
from ir.program import Program
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, drawn
from tests.targets.test_meaning_of_numbers import cpu_kernels, run_cpu, run_emulated

EXTENTS = st.sampled_from((1, 2, 3, 5, 7, 13, 17))
needs_emulator = pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")


@operator
def attended(g: Graph, m: int, n: int, k: int) -> None:
    """A masked softmax of a product, times another tensor."""
    i, j, d, e = g.axes(i=m, j=n, d=k, e=k)
    score = contract(g.input("Q", (i, d), "f32"), g.input("K", (j, d), "f32"), over=d)
    score = where(g.iota(j) <= i + n, score, -1e30)
    p = exp(score - reduce("max", score, j))
    g.output("O", contract(p, g.input("V", (j, e), "f32"), over=j) / reduce("sum", p, j))


@operator
def rounded(g: Graph, m: int, n: int, k: int) -> None:
    """Rows quantised to bytes, their scales, and a product of the bytes."""
    i, j, d = g.axes(i=m, j=n, d=k)
    x, w = g.input("X", (i, d), "bf16"), g.input("W", (j, d), "i8")
    scale = maximum(reduce("max", abs(x * 1.0), d), 1e-6) / 127.0
    q = cast(round(x / scale), "i8")
    g.output("q", q)
    g.output("Y", cast(contract(q, w, over=d), "f32") * scale, "f16", (i, j))


@operator
def wrapped(g: Graph, m: int, n: int, k: int) -> None:
    """A rolled, folded and dropped tensor, reduced along two of its axes."""
    i, j, d = g.axes(i=m, j=n, d=k)
    x = g.tensor("X", (n, k), "f32", fill=0.0)
    rolled = x[(g.iota(j) + g.iota(i)) % n, d] + x[j - 1, d + 1]
    kept = where(philox_uniform(g.coordinate(i * k + d), j) < 0.5, rolled, 0.0)
    sign = lookup([1, -1, 2], g.iota(d) % 3)
    g.output("Y", reduce("sum", kept * sign, (j, d)))
    g.output("least", reduce("min", apply("sin", kept), i))


@operator
def convolved(g: Graph, m: int, n: int, k: int) -> None:
    """A convolution of rows with as many taps as there are channels."""
    i, j, c, t, f = g.axes(i=m, j=n, c=k, t=3, f=k)
    x = g.tensor("X", (m, n, k), "f16", fill=0.0)
    y = contract(x[i, j + t - 1, c], g.input("W", (t, c, f), "f16"), over=(t, c))
    g.output("Y", y + x[i, j, f], "f16", (i, j, f))
    g.output("norm", reduce("sum", y * y, (j, f)))


ALL: tuple[Operator, ...] = (attended, rounded, wrapped, convolved)


@cache
def folder() -> Path:
    import tempfile

    return Path(tempfile.mkdtemp(prefix="tilewright-extents-"))


def problems(program: Program, inputs: Any, found: Any) -> list[str]:
    wanted = bounds_of(program, inputs)
    return [v.detail for n, b in wanted.items() for v in (b.judge(found[n]),) if not v.right]


@pytest.mark.parametrize("one", ALL, ids=[one.name for one in ALL])
@settings(max_examples=3, deadline=None, phases=[Phase.generate], derandomize=True)
@given(m=EXTENTS, n=EXTENTS, k=EXTENTS)
@pytest.mark.alike(2)
def test_on_the_cpu(one: Operator, m: int, n: int, k: int) -> None:
    program = one.build(m=m, n=n, k=k)
    inputs = random_inputs(program, np.random.default_rng(m))
    for kernel in cpu_kernels(program, 1):
        (found,) = run_cpu(kernel, [inputs], folder())
        assert problems(program, inputs, found) == []


@needs_emulator
@pytest.mark.parametrize("one", [attended, wrapped], ids=lambda one: one.name)
@settings(max_examples=3, deadline=None, phases=[Phase.generate], derandomize=True)
@given(m=EXTENTS, n=EXTENTS, k=EXTENTS)
def test_on_cuda(one: Operator, m: int, n: int, k: int) -> None:
    program = one.build(m=m, n=n, k=k)
    inputs = random_inputs(program, np.random.default_rng(m))
    (schedule,) = drawn(program, m * n + k, 0, 1, "fma")
    kernel = BACKEND.lower(program, schedule, HARDWARE)
    assert problems(program, inputs, run_emulated(kernel, inputs)) == []
