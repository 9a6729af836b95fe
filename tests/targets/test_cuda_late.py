"""What an epilogue alone reads is asked of L2 during the main loop: its lines, and no others."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ir import Graph, cast, contract, gelu, reduce
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.plans.late import ASKED, NAME, NEEDED, late_loads, late_tiles
from ir.targets.cuda.rows.hardware import known_hardware
from tests.cuda.run import needs_compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, built
from tests.targets.test_cuda_emulated import problems


def residual(m: int = 200, n: int = 136, k: int = 192) -> Program:
    """Y = gelu(X W^T + b) R + S: a factor and an addend beside a bias."""
    g = Graph("residual")
    mm, nn, kk = g.axes(m=m, n=n, k=k)
    x, w = g.input("X", (mm, kk), "bf16"), g.input("W", (nn, kk), "bf16")
    y = gelu(contract(x, w, over=kk) + g.input("b", (nn,), "bf16"))
    s = g.input("S", (mm, nn), "bf16")
    g.output("Y", y * g.input("rest", (mm, nn), "f32") + cast(s, "f32"), "bf16")
    return g.program()


def read_late(program: Program) -> list[str]:
    return [program.nodes[p].op.tensor for p in late_loads(program)]  # type: ignore[attr-defined]


def test_what_the_products_are_made_of_is_not_late() -> None:
    assert sorted(read_late(residual())) == ["S", "rest"]
    assert read_late(built("matmul", {"m": 64, "n": 64, "k": 64, "dtype": "bf16"})) == []
    assert NAME not in BACKEND.space(built("matmul", {"m": 64, "n": 64, "k": 64}), HARDWARE).names


def test_rows_that_are_not_aligned_are_not_asked_for() -> None:
    assert read_late(residual(n=132)) == ["rest"]  # rows of S have 264 bytes


def test_sums_in_front_wait_for_what_they_read() -> None:
    g = Graph("summed")
    m, n, k = g.axes(m=64, n=64, k=64)
    r = g.input("R", (m, n), "f32")
    product = contract(g.input("X", (m, k), "bf16"), g.input("W", (n, k), "bf16"), over=k)
    g.output("Y", product * r + reduce("sum", r, over=n), "f32")
    assert read_late(g.program()) == []


def test_tiles_have_lines() -> None:
    (r, s) = late_tiles(residual(), {"m": 128, "n": 64})
    assert (r.along, r.across, r.lines) == (s.along, s.across, s.lines) == ("n", ("m",), 128)
    assert {r.bytes, s.bytes} == {128, 256}
    assert list(late_tiles(residual(), {"m": 128, "n": 8})) == []  # too short


def test_it_is_a_choice_of_wgmma_alone() -> None:
    space = BACKEND.space(residual(), HARDWARE)
    name = next(name for name in space.names if NAME in name.split("."))
    assert space.decision(name).domain == (NEEDED, ASKED)
    a100 = BACKEND.space(residual(), known_hardware("a100"))
    assert not any(NAME in name.split(".") for name in a100.names)


@needs_compiler
@pytest.mark.parametrize("shape", [(200, 136, 192), (70, 264, 64)])
@draws(2, 6)
def test_kernels_that_ask_mean_the_program(shape: tuple[int, int, int], count: int) -> None:
    program = residual(*shape)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    pins = {name: ASKED for name in space.names if NAME in name.split(".")}
    asking = 0
    space = space.pin({**pins, "engine": "wgmma"})
    for row in space.sample(np.random.default_rng(3), count):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        asking += len(re.findall(r"tw_ask_lines\(", kernel.text("cuda")))
        assert not problems(program, kernel, inputs, wanted, 3)
    assert asking
