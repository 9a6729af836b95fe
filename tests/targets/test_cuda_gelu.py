"""GELU as one function: which products it stands for, and how exact it is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ir import Graph, Tile, cast, erf, gelu, operator
from ir.kernel import Kernel
from ir.operators.matmul import matmul_bias_act
from ir.program import Program
from tests.emulator.emulate import MODES, compiler, emulate
from tests.targets.cuda_cases import BACKEND, HARDWARE

HALF = math.sqrt(0.5)


@operator
def written(g: Graph, n: int, form: str = "usual") -> None:
    """Y = x (1 + erf(x / sqrt 2)) / 2 in several forms, and what only looks like it."""
    (axis,) = g.axes(n=n)
    x = g.input("X", (axis,), "f32")
    forms: dict[str, Tile] = {
        "usual": gelu(x),
        "late half": x * (1.0 + erf(x * HALF)) * 0.5,
        "inner": (erf(HALF * x) + 1.0) * (0.5 * x),
        "twice": gelu(x) * x,
        "no half": x * (1.0 + erf(x * HALF)),
        "other scale": x * (1.0 + erf(x * 0.7)) * 0.5,
        "other value": x * (1.0 + erf((x * x) * HALF)) * 0.5,
        "minus": x * (2.0 + erf(x * HALF)) * 0.5,
    }
    g.output("Y", forms[form], "f32")


@operator
def whole(g: Graph, n: int) -> None:
    """Y = GELU(X) without what is behind the point."""
    (axis,) = g.axes(n=n)
    g.output("Y", cast(gelu(g.input("X", (axis,), "f32")), "i32"), "i32")


def kernel_of(program: Program) -> Kernel:
    space = BACKEND.space(program, HARDWARE)
    row = space.seed_rows(np.random.default_rng(0))[0]
    return BACKEND.lower(program, space.schedule(row), HARDWARE)


@pytest.mark.parametrize("form", ["usual", "late half", "inner", "twice"])
def test_products_in_any_order_are_one_function(form: str) -> None:
    text = kernel_of(written.build(n=256, form=form)).text("cuda")
    assert "tw_gelu(" in text
    assert "tw_erf(" not in text


@pytest.mark.parametrize("form", ["no half", "other scale", "other value", "minus"])
def test_what_only_looks_like_it_is_left_alone(form: str) -> None:
    text = kernel_of(written.build(n=256, form=form)).text("cuda")
    assert "tw_gelu(" not in text
    assert "tw_erf(" in text


def test_what_is_decided_by_its_last_bit_is_computed_as_written() -> None:
    assert "tw_gelu(" not in kernel_of(whole.build(n=256)).text("cuda")


def test_epilogues_have_it() -> None:
    program = matmul_bias_act.build(m=128, n=128, k=128, dtype="bf16")
    assert "tw_gelu(" in kernel_of(program).text("cuda")


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
def test_it_is_closer_than_its_formula_in_f32() -> None:
    kernel = kernel_of(written.build(n=4096))
    x = np.linspace(-6, 15, 4096, dtype=np.float32)
    x[:4] = (np.inf, np.nan, -0.0, -np.inf)
    y = np.zeros_like(x)
    run = emulate(kernel.text("cuda"), kernel.text("launch"), {"X": x, "Y": y}, mode=MODES[0])
    assert run.faults == ()
    assert y[0] == np.inf
    assert np.isnan(y[1])
    assert y[2] == 0
    assert np.isnan(y[3])  # -inf * 0
    kept = np.abs(x) > 1e-3
    x, y = x[kept & np.isfinite(x)], y[kept & np.isfinite(x)]
    normal = np.array([math.erfc(-float(value) * HALF) / 2 for value in x])
    error = np.abs(y - x * normal)
    assert error[x < 2].max() < 3.6e-7
    assert (error / np.abs(x * normal)).max() < 3.5e-4
