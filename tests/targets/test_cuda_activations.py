"""Activations between two products belong to the first one's kernel, however often they read it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, Tile, cast, contract, gelu, maximum, sigmoid, silu
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.build.kernels import kernels_of
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

Made = Callable[[Callable[[], Tile]], Tile]
ACTIVATIONS: dict[str, Made] = {
    "silu": lambda make: silu(make()),
    "gelu": lambda make: gelu(make()),
    "squared": lambda make: (lambda x: maximum(x, 0.0) * maximum(x, 0.0))(make()),
    "twice": lambda make: (lambda x: sigmoid(x) * x + x * x)(make()),
    "gated": lambda make: silu(make()) * make(),
}


def _two_layers(made: Made, kept: bool = False) -> Program:
    g = Graph("two_layers")
    m, n, k, o = g.axes(m=72, n=328, k=288, o=48)
    x = g.input("X", (m, k), "bf16")
    weights = iter(range(1, 3))

    def product() -> Tile:
        return contract(x, g.input(f"W{next(weights)}", (n, k), "bf16"), over=k)

    hidden = cast(made(product), "bf16")
    if kept:
        g.output("H", hidden)
    g.output("Y", cast(contract(hidden, g.input("V", (o, n), "bf16"), over=n), "bf16"))
    return g.program()


@pytest.mark.parametrize("engine", ["wgmma", "mma"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_there_are_two_kernels(name: str, engine: str) -> None:
    kernels = kernels_of(_two_layers(ACTIVATIONS[name]), HARDWARE, engine)
    assert [len(k.program.outputs) for k in kernels] == [1, 1]
    assert kernels[0].program.outputs[0].dtype == "bf16"


def test_hidden_rows_that_are_an_output_are_computed_once() -> None:
    kernels = kernels_of(_two_layers(ACTIVATIONS["silu"], kept=True), HARDWARE, "wgmma")
    assert [[spec.name for spec in k.program.outputs] for k in kernels] == [["H"], ["Y"]]
    assert "H" in {spec.name for spec in kernels[1].program.inputs}


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("name", ["twice", "gated", "kept"])
@draws(2, 3)
@pytest.mark.alike(2)
def test_they_mean_the_program(name: str, count: int) -> None:
    program = _two_layers(ACTIVATIONS.get(name, ACTIVATIONS["silu"]), name == "kept")
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    for turn, row in enumerate(space.sample(np.random.default_rng(2), count)):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, kernel, inputs, wanted, (0, 15, 9)[turn])
