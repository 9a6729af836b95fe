"""Batches of small products taken together: exact, offered where accesses are short, right."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, contract
from ir.inputs import drawn_inputs, random_inputs
from ir.operators.convolution import grouped_conv2d
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite import diagonal
from ir.rewrite.forms import forms_of
from ir.rewrite.work import Rates
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

CARD = Rates({"bf16": 8e14, "f16": 8e14}, 6e13, 3e12)
PROCESSOR = Rates({}, 1e11, 2e10)


def heads(m: int, g: int, c: int, f: int, outside: str = "") -> Program:
    """A small linear map for each of many heads that lie side by side, biased if so said."""
    graph = Graph("heads")
    i, h, j, k = graph.axes(i=m, h=g, j=c, k=f)
    x, w = graph.input("X", (i, h, j), "bf16"), graph.input("W", (h, j, k), "bf16")
    y = contract(x, w, over=j)
    if outside:
        y = y + graph.input("bias", (h, k), "f32")
    graph.output("Y", y, "f32", (i, h, k))
    return graph.program()


def grouped(n: int, side: int, c: int, f: int, groups: int) -> Program:
    return grouped_conv2d.build(
        n=n, h=side, w=side, c=c, f=f, groups=groups, padding=1, dtype="bf16"
    )


PROGRAMS = {
    "heads": heads(1100, 24, 8, 6),
    "heads, biased": heads(1024, 12, 4, 8, "bias"),
    "convolution": grouped(2, 24, 32, 32, 8),
    "convolution of uneven groups": grouped(1, 36, 48, 24, 12),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_zeros_off_the_diagonal_change_no_sum(name: str) -> None:
    program = PROGRAMS[name]
    found = diagonal.diagonal(program)
    assert found is not None
    assert found.share < 1
    inputs = drawn_inputs(program, 3)
    apart = {one.name: inputs[one.name].reshape(one.shape) for one in found.program.inputs}
    wanted, have = evaluate(program, inputs)["Y"], evaluate(found.program, apart)["Y"]
    np.testing.assert_array_equal(have.reshape(wanted.shape), wanted)


@pytest.mark.parametrize(
    "program",
    [heads(1024, 8, 64, 8), heads(1024, 8, 8, 64), heads(64, 8, 8, 8), heads(4096, 1, 4, 4)],
    ids=["long rows", "many columns", "few rows", "one batch"],
)  # fmt: skip
def test_products_that_fill_lines_or_have_few_rows_stay_apart(program: Program) -> None:
    assert diagonal.diagonal(program) is None


def test_the_form_is_offered_where_tensor_cores_pay_for_the_zeros() -> None:
    program = grouped(64, 56, 128, 128, 32)
    offered = {name: [one.name for one in forms_of(program, rates).offered]
               for name, rates in (("card", CARD), ("processor", PROCESSOR))}  # fmt: skip
    assert any(name.startswith(diagonal.NAME) for name in offered["card"])
    assert not any(name.startswith(diagonal.NAME) for name in offered["processor"])


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
def test_its_kernels_are_right() -> None:
    program = PROGRAMS["convolution"]
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted, space = bounds_of(program, inputs), BACKEND.space(program, HARDWARE)
    forms = [str(v) for v in space.decision("form").domain if str(v).startswith(diagonal.NAME)]
    space = space.pin({"form": forms[0]})
    rng = np.random.default_rng(0)
    for turn, row in enumerate([*space.seed_rows(rng)[:1], *space.sample(rng, 1)]):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, kernel, inputs, wanted, turn)
