"""What no kernel on tensor cores may do, found by programs that nobody had foreseen."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, reduce, rsqrt
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.build.products import copy_problem
from tests.cuda.run import needs_compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems


def channels(t: int = 32, d: int = 16) -> Program:
    """Attention of channels: tokens are summed over in the scores and in their norms, and are the
    columns of what comes out."""
    g = Graph("channels")
    b, h, tt, dd, ee = g.axes(b=2, h=2, t=t, d=d, e=d)
    q, k = g.input("Q", (b, tt, h, dd), "bf16"), g.input("K", (b, tt, h, ee), "bf16")
    norm = rsqrt(reduce("sum", cast(k, "f32") * k, over=tt) + 1e-6)
    scores = contract(q, k, over=tt) * norm
    weights = exp(scores - reduce("max", scores, over=ee))
    weights = cast(weights / reduce("sum", weights, over=ee), "bf16")
    v = g.input("V", (b, tt, h, ee), "bf16")
    g.output("O", cast(contract(weights, v, over=ee), "bf16"), "bf16", (b, tt, h, dd))
    return g.program()


def odd_groups(m: int = 16, n: int = 64, k: int = 96, size: int = 24) -> Program:
    """4-bit weights with a scale for each group: of so many, a group begins within 16 bytes."""
    g = Graph("odd_groups")
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    scale = g.tensor("S", (n, k // size), "f16")[nn, g.iota(kk) // size]
    weights = cast(cast(g.input("W", (nn, kk), "i4"), "f32") * scale, "bf16")
    x = g.input("X", (mm, kk), "bf16")
    g.output("Y", contract(x, weights, over=kk), "bf16", (mm, nn))
    return g.program()


@needs_compiler
@pytest.mark.parametrize(
    "program", [channels(), channels(64, 32), odd_groups(), odd_groups(k=288, size=72)]
)
def test_every_route_means_its_program(program: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    for card in (HARDWARE, BACKEND.machine("rtx4090")):
        space, seen = BACKEND.space(program, card), set()
        rows = space.seed_matrix
        for row in rows[space.legal(rows)]:
            schedule = space.schedule(row)
            values = schedule.as_dict()
            route = tuple(
                v for k, v in values.items() if k.endswith(("form", "residence", "engine"))
            )
            if route in seen:
                continue
            seen.add(route)
            kernel = BACKEND.lower(program, schedule, card)
            assert not problems(program, kernel, inputs, wanted, 0), schedule.to_json()
        assert len(seen) > 1


@pytest.mark.parametrize(("step", "start", "fits"), [(16, 0, True), (24, 0, False), (16, 8, False)])
def test_bulk_copies_begin_at_whole_parts_of_lines(step: int, start: int, fits: bool) -> None:
    """Others end in an illegal instruction on the card."""
    g = Graph("lines")
    part, inside, m = g.axes(part=4, inside=16, m=8)
    x = g.tensor("X", (8, 4 * step + 16), "u8")[m, part * step + inside + start]
    g.output("Y", reduce("sum", cast(x, "f32"), over=part), "f32", (m, inside))
    program = g.program()
    load = next(n for n, node in enumerate(program.nodes) if node.op.name == "load")
    assert (copy_problem(program, load) == "") is fits
