"""The polynomials behind the functions are as exact as their comments say."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from explorer.runtime.once import run_once
from ir import Graph, erf, operator, sigmoid, tanh
from ir.target import get_backend
from ir.targets.cpu import mathlib


@pytest.mark.parametrize(
    ("series", "bound"),
    [(mathlib.EXP2, 8.3e-8), (mathlib.EXP2_F16, 3e-6), (mathlib.EXP2_BF16, 8.7e-5)],
)
def test_fractions_of_two(series: tuple[float, ...], bound: float) -> None:
    f = np.linspace(0, 1, 4097, endpoint=False)
    error = np.abs(np.polynomial.polynomial.polyval(f, series) / np.exp2(f) - 1)
    assert bound / 1.2 < error.max() < bound
    assert series[0] == 1  # a state whose maximum stays is rescaled by 1, however often


def test_narrow_series_stay_below_half_a_last_place() -> None:
    """By at least a factor of eight: storing the result rounds off far more."""
    for dtype, bits in (("bf16", 8), ("f16", 11)):
        f = np.linspace(0, 1, 4097)
        value = np.polynomial.polynomial.polyval(f, mathlib.EXP2_FOR[dtype])
        assert np.abs(value / np.exp2(f) - 1).max() < 2.0**-bits / 2 / 8


@operator
def wide(g: Graph, n: int) -> None:
    (i,) = g.axes(n=n)
    x = g.input("X", (i,), "f64")
    for name, function in (("E", erf), ("T", tanh), ("S", sigmoid)):
        g.output(name, function(x))


def test_f64_is_as_exact_as_f64(code_cache: Path) -> None:
    """Relative errors of a few units of the last places, near 0 and far from it."""
    backend, n = get_backend("cpu"), 4001
    program, hardware = wide.build(n=n), backend.hardware(1)
    space = backend.space(program, hardware)
    schedule = space.schedule(space.seed_rows(np.random.default_rng(0))[0])
    kernel = backend.lower(program, schedule, hardware)
    x = np.concatenate([np.linspace(-8, 8, n - 1000), np.logspace(-9, 0, 1000)])
    outputs = [np.empty(n) for _ in range(3)]
    _, found = run_once(kernel, [x, *outputs], cache_dir=code_cache)
    functions: tuple[Callable[[float], float], ...] = (
        math.erf,
        math.tanh,
        lambda v: 1 / (1 + math.exp(-v)),
    )
    for have, function in zip(found, functions, strict=True):
        want = np.array([function(value) for value in x])
        assert (np.abs(have - want) <= 4e-14 * np.abs(want)).all()


def test_two_to_the_zeroth_is_one() -> None:
    """A weight of e^0 may be truncated to an integer."""
    assert mathlib.EXP2[0] == 1.0
