"""Forms of a program on CUDA: every one of them right in emulation, and named by a schedule."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, contract, where
from ir.inputs import random_inputs
from ir.kernel import Kernel
from ir.program import Program
from ir.registry import load_operator
from ir.target import Hardware, get_backend
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems


def grouped(g: Graph) -> None:
    """(Q K^T) V, which is Q (K^T V)."""
    b, i, j, d, e = g.axes(b=1, i=128, j=128, d=16, e=24)
    q, k = g.input("Q", (b, i, d), "bf16"), g.input("K", (b, j, d), "bf16")
    v = g.input("V", (b, j, e), "bf16")
    g.output("O", contract(contract(q, k, over=d), v, over=j), "f32", (b, i, e))


def causal(g: Graph) -> None:
    """The same with a mask, which is a state of chunks."""
    i, j, d, e = g.axes(i=256, j=256, d=8, e=8)
    q, k, v = g.input("Q", (i, d), "f32"), g.input("K", (j, d), "f32"), g.input("V", (j, e), "f32")
    weights = where(g.iota(j) <= g.iota(i), contract(q, k, over=d), 0.0)
    g.output("O", contract(weights, v, over=j), "f32", (i, e))


def written(function: Callable[[Graph], None]) -> Program:
    g = Graph(function.__name__)
    function(g)
    return g.program()


PROGRAMS = {
    "grouped": written(grouped),
    "causal": written(causal),
    "mamba2": load_operator("mamba2").build(b=1, t=256, heads=2, p=16, n=16),
}


def threads_of(kernel: Kernel) -> int:
    """Threads of all blocks of its launches."""
    launches = json.loads(kernel.text("launch"))["kernels"]
    return sum(math.prod(one["grid"]) * one["block"] for one in launches)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("name", PROGRAMS)
@draws(2, 8)
@pytest.mark.alike(2)
def test_every_form_is_right(name: str, count: int) -> None:
    program = PROGRAMS[name]
    forms = BACKEND.forms(program, HARDWARE).offered
    assert len(forms) > 1
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    for form in forms[:3]:
        pinned = space.pin({"form": form.name})
        drawn = pinned.sample(np.random.default_rng(2), count)
        kernels = [BACKEND.lower(program, pinned.schedule(row), HARDWARE) for row in drawn]
        kernel = min(kernels, key=threads_of)  # teams of blocks take a minute to emulate
        assert not problems(program, kernel, inputs, wanted, 0), form.name
        shapes = {a.name: a.shape for a in kernel.arguments if a.role != "workspace"}
        assert shapes == {spec.name: spec.shape for spec in program.tensors}


def test_cards_have_rates_of_their_own() -> None:
    """What is less work is a matter of the units: plain ones are slow beside tensor cores."""
    for name in BACKEND.machines:
        card = BACKEND.machine(name)
        assert isinstance(card, Hardware)
        offered = BACKEND.forms(PROGRAMS["grouped"], card).offered
        assert any(step.rule == "regroup" for form in offered for step in form.steps)
    assert get_backend("cuda").name == BACKEND.name
