"""A product beside the ones that a chain goes on from, whose axes are not the chain's."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, reduce, sigmoid
from ir.axes import Axis
from ir.inputs import random_inputs
from ir.program import Program
from ir.schedule import Schedule
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.engines import residence_space
from ir.targets.cuda.space.residences import UNLIKE, residences
from ir.targets.cuda.space.tensor import TensorKernel
from ir.tiles import Tile
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems


def attention(pairs: bool, n: int = 40, heads: int = 3) -> Program:
    """Attention whose scores have a projection of pairs (or another product of rows) added."""
    g = Graph("pairs")
    h, i, j, d, e, c = g.axes(h=heads, i=n, j=n, d=16, e=16, c=16)
    q, k = g.input("Q", (i, h, d), "bf16"), g.input("K", (j, h, d), "bf16")
    if pairs:
        z, w = g.input("Z", (i, j, c), "bf16"), g.input("W", (c, h), "bf16")
        bias = contract(z, w, over=c)
    else:
        z, w = g.input("Z", (i, h, c), "bf16"), g.input("W", (j, h, c), "bf16")
        bias = sigmoid(contract(z, w, over=c))
    s = contract(q, k, over=d) * 0.25 + bias
    p = exp(s - reduce("max", s, over=j))
    o = contract(cast(p, "bf16"), g.input("V", (j, h, e), "bf16"), over=j)
    g.output("O", o / reduce("sum", p, over=j), "bf16", (i, h, e))
    return g.program()


def test_what_is_no_part_of_the_chain_is_stored_and_the_chain_is_one_kernel() -> None:
    program = attention(True, 1024, 16)
    assert UNLIKE in residences(program, 132)
    bias, chain = kernels_of(program, HARDWARE, "wgmma", UNLIKE)
    assert isinstance(bias, TensorKernel)
    assert isinstance(chain, TensorKernel)
    assert bias.program.outputs[0].shape == (1024, 16, 1024)
    assert len(chain.roles.products) == 2


def factored(n: int = 24, heads: int = 3, rank: int = 2) -> Program:
    """Attention each of whose rows is a product of its own, of heads and features."""
    g = Graph("factored")
    h, i, j, d, e, r = g.axes(h=heads, i=n, j=n, d=16, e=16, r=rank)

    def tensor(name: str, rows: Axis, features: Axis) -> Tile:
        a, b = (
            g.input(f"{name}a", (rows, r, h), "bf16"),
            g.input(f"{name}b", (rows, r, features), "bf16"),
        )
        return cast(contract(a, b, over=r), "bf16")

    s = contract(tensor("Q", i, d), tensor("K", j, d), over=d) * 0.25
    p = exp(s - reduce("max", s, over=j))
    o = contract(cast(p, "bf16"), tensor("V", j, e), over=j)
    g.output("O", o / reduce("sum", p, over=j), "bf16", (i, h, e))
    return g.program()


def test_products_of_which_none_is_part_of_the_chain_are_stored() -> None:
    program = factored(1024, 16, 6)
    *rows, chain = kernels_of(program, HARDWARE, "wgmma", UNLIKE)
    assert len(rows) == 3
    assert isinstance(chain, TensorKernel)
    assert len(chain.roles.products) == 2
    space = BACKEND.space(program, HARDWARE)
    assert UNLIKE in space.decision("residence").domain


def test_products_of_the_same_rows_and_columns_stay_in_the_chain() -> None:
    assert UNLIKE not in residences(attention(False, 1024), 132)


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("program", [attention(True), factored()], ids=["bias", "factors"])
def test_it_is_right(program: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    space = residence_space(program, HARDWARE, None, UNLIKE)
    for row in space.sample(np.random.default_rng(2), 3):
        values = space.schedule(row).as_dict()
        named = {f"{UNLIKE}.{name}": value for name, value in values.items()}
        schedule = Schedule.of("cuda", {"residence": UNLIKE, **named})
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert problems(program, kernel, inputs, wanted, 0) == []
