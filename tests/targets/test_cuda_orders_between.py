"""In which order values lie in memory between kernels."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, operator, reduce
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.build.kernels import kernels_of
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, drawn
from tests.targets.test_meaning_of_numbers import run_emulated


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
    """Sixteen heads are a row of 32 bytes; rows of 1,024 keys are written as they come."""
    assert _between(talking.build(), "mma")["t5"] == (16, 1024, 1024)
    assert _between(talking.build(h=64), "mma")["t5"][-1] == 64


def test_what_a_later_product_sums_of_a_computed_operand_is_last() -> None:
    assert _between(talking.build(), "mma")["t6"] == (1024, 16, 1024)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
def test_mixed_heads_are_right() -> None:
    program = talking.build(h=4, s=48, d=16)
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    for engine in ("mma", "wgmma"):
        for schedule in drawn(program, 0, 2, 1, engine):
            found = run_emulated(BACKEND.lower(program, schedule, HARDWARE), inputs)
            assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []
