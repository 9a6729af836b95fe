"""Axes laid end to end though masks and tables tell them apart: the same numbers, one kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, reduce, where
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.flattened import flattened, laid_flat, with_fewer_axes
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.tensor import TensorKernel
from ir.tiles import Tile
from tests.targets.cuda_cases import HARDWARE

WINDOW = 7


def windows(apart: str = "") -> Program:
    """Attention inside shifted windows: a bias by how far points are apart, a mask of regions."""
    g = Graph("windows")
    w, n = WINDOW, 2
    b, h, y, x, i, j, k, m, d, e = g.axes(
        b=1, h=3, y=n, x=n, i=w, j=w, k=w, m=w, d=16, e=16
    )  # fmt: skip
    last = (k, m, d) if apart != "turned" else (m, k, d)
    q = g.input("Q", (b, y, x, h, i, j, d), "bf16")
    keys = g.input("K", (b, y, x, h, *last), "bf16")
    v = g.input("V", (b, y, x, h, k, m, e), "bf16")
    bias = g.tensor("bias", (3, 2 * w - 1, 2 * w - 1), "f32")
    s = contract(q, keys, over=d) * 0.25 + bias[h, i - k + (w - 1), j - m + (w - 1)]

    def region(big: object, small: object) -> Tile:
        edge = (g.iota(big) == n - 1) & (g.iota(small) >= w - w // 2)  # type: ignore[arg-type]
        return where(edge, 1, 0)

    s = where((region(y, i) == region(y, k)) & (region(x, j) == region(x, m)), s, -1e9)
    p = exp(s - reduce("max", s, over=(k, m)))
    if apart == "summed":
        p = p + reduce("sum", p, over=m)
    o = contract(cast(p, "bf16"), v, over=(k, m)) / reduce("sum", p, over=(k, m))
    g.output("O", o, "bf16", (b, y, x, h, i, j, e))
    return g.program()


def patches() -> Program:
    """Patches of an image, whose numbers of taps no copy takes."""
    g = Graph("patches")
    n, y, x, c, r, s, f = g.axes(n=2, y=2, x=2, c=3, r=14, s=14, f=24)
    image = g.tensor("I", (2, 3, 28, 28), "bf16")
    weights = g.input("W", (f, c, r, s), "bf16")
    taps = image[n, c, y * 14 + r, x * 14 + s]
    g.output("Y", contract(taps, weights, over=(c, r, s)), "bf16", (n, y, x, f))
    return g.program()


def in_place() -> Program:
    """Windows of an image as it lies, moved around its edge by half a window."""
    g = Graph("in_place")
    w, n = 6, 12
    y, x, h, i, j, k, m, d, e = g.axes(
        y=n // w, x=n // w, h=2, i=w, j=w, k=w, m=w, d=16, e=16
    )  # fmt: skip
    t = {name: g.tensor(name, (n, n, 2, 16), "bf16") for name in "QKV"}

    def at(name: str, a: object, c: object, last: object) -> Tile:
        rows = (g.coordinate(y * w + a) + w // 2) % n  # type: ignore[operator]
        columns = (g.coordinate(x * w + c) + w // 2) % n  # type: ignore[operator]
        return t[name][rows, columns, h, last]

    s = contract(at("Q", i, j, d), at("K", k, m, d), over=d) * 0.25
    p = exp(s - reduce("max", s, over=(k, m)))
    o = contract(cast(p, "bf16"), at("V", k, m, e), over=(k, m)) / reduce("sum", p, over=(k, m))
    g.output("O", o, "bf16", (y, x, i, j, h, e))
    return g.program()


def same(program: Program, other: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(0))
    shaped = {s.name: inputs[s.name].reshape(s.shape) for s in other.inputs}
    wanted, found = evaluate(program, inputs), evaluate(other, shaped)
    for name, values in wanted.items():
        assert np.allclose(found[name].reshape(values.shape), values, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [windows, patches, in_place])
def test_they_mean_the_same(make: Callable[[], Program]) -> None:
    program = make()
    found = [*with_fewer_axes(program), *laid_flat(program)]
    assert found
    for other in found:
        assert len(other.axes) < len(program.axes)
        same(program, other)


def test_rows_and_columns_of_windows_are_one_axis_of_an_attention_in_one_kernel() -> None:
    program = windows()
    *_, last = with_fewer_axes(program)
    assert last.axes["i"] == last.axes["k"] == WINDOW * WINDOW
    (kernel,) = kernels_of(program, HARDWARE, "wgmma")
    assert isinstance(kernel, TensorKernel)


def test_what_no_operand_has_so_stays_apart() -> None:
    """Keys the other way round, or a sum along one of two axes."""
    turned = next(iter(flattened(windows("turned"))))
    assert turned.axes["k"] == WINDOW
    for other in flattened(windows("summed")):
        assert other.axes["k"] == WINDOW


@pytest.mark.parametrize("make", [patches, in_place])
def test_what_lies_apart_is_written_anew_for_tensor_cores(make: Callable[[], Program]) -> None:
    program = make()
    kernels = kernels_of(program, HARDWARE, "wgmma")
    assert isinstance(kernels[-1], TensorKernel)
    assert sum(isinstance(kernel, TensorKernel) for kernel in kernels) == 1


def test_nothing_is_made_of_what_has_no_such_axes() -> None:
    g = Graph("plain")
    m, n, k = g.axes(m=8, n=8, k=16)
    y = contract(g.input("A", (m, k), "bf16"), g.input("B", (n, k), "bf16"), over=k)
    g.output("Y", y, "bf16", (m, n))
    program = g.program()
    assert with_fewer_axes(program) == ()
    assert laid_flat(program) == ()


def test_coordinates_of_what_is_laid_end_to_end_have_room() -> None:
    """A mask of one of two axes that are 2^32 points together: i32 counts no such place."""
    g = Graph("huge")
    b, y, x, d, k = g.axes(b=2, y=2**16, x=2**16, d=8, k=8)
    q = g.input("Q", (b, y, x, k), "bf16")
    s = contract(q, g.input("W", (d, k), "bf16"), over=k)
    g.output("O", where(g.iota(y) < 7, s, 0.0), "bf16", (b, y, x, d))
    for other in (*with_fewer_axes(g.program()), *laid_flat(g.program())):
        assert max(other.axes.values()) < 2**31
