"""Gradients of keys that several query heads share: sums over heads and queries, in any layout."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, uniform, where
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.build.program_text import lower_all
from ir.targets.cuda.build.roles import find_roles
from ir.targets.cuda.space.engines import residence_space, routes_of
from tests.cuda.run import needs_compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import HARDWARE
from tests.targets.test_cuda_emulated import problems


def gradient(t: int, r: int, d: int, heads_last: bool, causal: bool = False) -> Program:
    """dV of grouped attention, queries as (b, i, h, r, d) or as (b, h, r, i, d)."""
    g = Graph("gradient")
    b, h, rr, i, j, k, e = g.axes(b=1, h=2, r=r, i=t, j=t, d=d, e=d)
    rows = (b, i, h, rr) if heads_last else (b, h, rr, i)
    q, do = g.input("Q", (*rows, k), "bf16"), g.input("dO", (*rows, e), "bf16")
    s = contract(q, g.input("K", (b, j, h, k), "bf16"), over=k) * d**-0.5
    p = exp(s - g.input("lse", (b, h, rr, i), "f32", uniform(5, 6)))
    p = where(g.iota(j) <= i, p, 0.0) if causal else p
    g.output("dV", contract(cast(p, "bf16"), do, over=(i, rr)), "f32", (b, j, h, e))
    return g.program()


@pytest.mark.parametrize("heads_last", [False, True])
def test_blocks_are_of_queries_and_heads_go_by(heads_last: bool) -> None:
    roles = find_roles(gradient(256, 4, 64, heads_last), False)
    assert roles.walked == ("r", "i")
    assert bool(roles.listed) is not heads_last  # several heads lie one after the other


@needs_compiler
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("t", "r", "d"), [(64, 2, 16), (96, 3, 32), (256, 4, 32)])
@draws(1, 4)
def test_kernels_of_every_layout_are_right(
    t: int, r: int, d: int, causal: bool, count: int
) -> None:
    for heads_last in (False, True):
        program = gradient(t, r, d, heads_last, causal)
        inputs = random_inputs(program, np.random.default_rng(1))
        wanted = bounds_of(program, inputs)
        space = residence_space(program, HARDWARE, None, "usual")
        route = routes_of(program, HARDWARE)[0]
        own = space if route.alone else space.pin({"engine": route.engine})
        rng = np.random.default_rng(2)
        for row in (*own.seed_rows(rng)[:2], *own.sample(rng, count)):
            values = route.own(own.schedule(row).as_dict())
            kernel = lower_all(program, values, HARDWARE, route.engine)
            assert not problems(program, kernel, inputs, wanted, 0), heads_last
