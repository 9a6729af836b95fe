"""Tensors contiguous along different axes: squares of neighbours, and products of whose batches
neighbours in memory are."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ir import Graph, contract
from ir.inputs import random_inputs
from ir.program import Program
from ir.space import Space
from ir.targets.cuda.build.kernels import kernels_of
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems


def turned(n: int, k: int, c: int, dtype: str) -> Program:
    g = Graph("turned")
    i, j, e = g.axes(i=n, j=k, e=c)
    g.output("Y", g.input("X", (i, j, e), dtype), dtype, (i, e, j))
    return g.program()


def channels_last(n: int, c: int) -> Program:
    """Products of matrices, one for each channel, which lie innermost (triangle updates)."""
    g = Graph("channels")
    i, j, k, e = g.axes(i=n, j=n, k=n, e=c)
    left, right = g.input("A", (i, k, e), "bf16"), g.input("B", (j, k, e), "bf16")
    g.output("Z", contract(left, right, over=k), "bf16", (i, j, e))
    return g.program()


@pytest.mark.parametrize(("dtype", "words"), [("bf16", 8), ("f32", 4)])
def test_the_first_schedule_reads_and_writes_vectors(dtype: str, words: int) -> None:
    program = turned(64, 256, 128, dtype)
    space = BACKEND.space(program, HARDWARE)
    seeds = [space.schedule(row) for row in space.seed_rows(np.random.default_rng(0))]
    texts = [BACKEND.lower(program, one, HARDWARE).text("cuda") for one in seeds]
    both = [t for t in texts if "tw_load_16" in t and re.search(r"tw_store_16\w*\(Y_at", t)]
    assert both
    assert any(f"X_2[{words * words}]" in text for text in both)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("program", [turned(3, 40, 72, "bf16"), turned(2, 33, 20, "f32")])
def test_transposed_tensors_are_right(program: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted, space = bounds_of(program, inputs), BACKEND.space(program, HARDWARE)
    rng = np.random.default_rng(0)
    for turn, row in enumerate([*space.seed_rows(rng)[:3], *space.sample(rng, 3)]):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, kernel, inputs, wanted, turn)


@pytest.mark.parametrize("engine", ["wgmma", "mma"])
def test_operands_whose_neighbours_are_of_other_batches_are_copied_first(engine: str) -> None:
    kernels = kernels_of(channels_last(128, 32), HARDWARE, engine)
    assert [kernel.kind for kernel in kernels][:2] == ["block", "block"]
    assert kernels[2].kind == {"wgmma": "tensor", "mma": "mma"}[engine]


def test_seeds_of_which_none_is_legal_are_mended() -> None:
    """Rows along two axes that are neighbours in no order that tiles of powers of two have."""
    g = Graph("outer")
    s, i, j, c, d = g.axes(s=64, i=40, j=48, c=24, d=24)
    a, b = g.input("A", (s, i, c), "bf16"), g.input("B", (s, j, d), "bf16")
    g.output("Y", contract(a, b, over=s), "bf16", (i, j, c, d))
    program = g.program()
    (kernel,) = kernels_of(program, HARDWARE, "wgmma")
    assert kernel.kind == "tensor"
    alone = Space(
        "cuda", tuple(kernel.decisions()), tuple(kernel.constraints()), tuple(kernel.seeds())
    )
    assert not alone.legal(alone.seed_matrix).any()
