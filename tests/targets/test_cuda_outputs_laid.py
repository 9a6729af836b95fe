"""Outputs whose neighbours are of several batches: as the products have them, and once more."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.targets.cuda.build.laid import outputs_anew
from ir.targets.cuda.space.residences import MADE, pieces_of, residences
from tests.cuda.run import needs_compiler
from tests.targets.cuda_cases import HARDWARE
from tests.targets.formed import form_problems

PROCESSORS = int(HARDWARE["sms"])


def blocks(
    dims: str = "mnb", m: int = 24, b: int = 16, n: int = 40, k: int = 32, dtype: str = "bf16"
) -> Program:
    """Each of b blocks of a matrix times its own, a bias of the columns, in some order of axes."""
    g = Graph("blocks")
    axes = dict(zip("mbnk", g.axes(m=m, b=b, n=n, k=k), strict=True))
    x = g.tensor("X", (m, b * k), "bf16")[axes["m"], axes["b"] * k + axes["k"]]
    w = g.input("W", (axes["b"], axes["n"], axes["k"]), "bf16")
    y = contract(x, w, over=axes["k"]) + g.input("c", (axes["n"],), "f32")
    g.output("Y", y, dtype, tuple(axes[name] for name in dims))
    return g.program()


def test_neighbours_of_several_batches_are_copied() -> None:
    program = blocks(dtype="f32")
    product, copy = outputs_anew(program, frozenset())
    (made,) = product.outputs
    assert made.name == "made_Y"
    assert made.shape == (16, 24, 40)
    inputs = random_inputs(program, np.random.default_rng(0))
    between = evaluate(product, inputs)
    wanted = evaluate(program, inputs)["Y"]
    given = {"made_Y": between["made_Y"].astype(np.float32)}
    np.testing.assert_allclose(evaluate(copy, given)["Y"], wanted, rtol=1e-6)


@pytest.mark.parametrize("dims", ["bmn", "bnm", "mbn", "nbm"])
def test_lines_of_one_product_stay(dims: str) -> None:
    program = blocks(dims)
    assert outputs_anew(program, frozenset()) == (program,)
    assert MADE not in residences(program, PROCESSORS)


def test_a_name_that_is_taken_is_left_alone() -> None:
    (product, _) = outputs_anew(blocks(), frozenset({"made_Y"}))
    assert product.outputs[0].name == "made_made_Y"


def test_it_is_one_of_the_residences_and_joined_with_others() -> None:
    found = residences(blocks(m=2048, b=64, n=64, k=64), PROCESSORS)
    assert MADE in found
    g = Graph("two")
    m, b, p, q, s = g.axes(m=64, b=16, p=16, q=16, s=16)
    x = g.tensor("X", (64, 256), "bf16")
    y = contract(x[m, b * 16 + p], g.input("L", (b, q, p), "bf16"), over=p)
    z = contract(cast(y, "bf16"), g.input("R", (q, s, b), "bf16"), over=b)
    g.output("Y", z, "bf16", (m, s, q))
    several = [name for name in residences(g.program(), PROCESSORS) if name.endswith(MADE)]
    assert several
    assert all(len(pieces_of(g.program(), name)) > 1 for name in several)


@needs_compiler
def test_its_kernels_are_right() -> None:
    assert not form_problems(blocks(), blocks(), MADE)
