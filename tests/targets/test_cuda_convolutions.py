"""Convolutions as torch lays them out, and their gradients: on tensor cores, and right."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, contract
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.build.laid import laid_anew
from ir.targets.cuda.build.program_text import lower_all
from ir.targets.cuda.space.engines import residence_space, routes_of
from ir.targets.cuda.space.residences import LAID, USUAL, residences
from ir.targets.cuda.space.tensor import TensorKernel
from tests.emulator.emulate import MODES, compiler
from tests.few import draws, few_rows
from tests.judging import bounds_of
from tests.targets.cuda_cases import HARDWARE
from tests.targets.test_cuda_emulated import problems

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")


def forward(n: int, h: int, w: int, c: int, f: int, stride: int = 1) -> Program:
    """Channels ahead of rows, taps behind channels."""
    g = Graph("forward")
    N, Y, X = g.axes(n=n, y=h // stride, x=w // stride)
    C, F, R, S = g.axes(c=c, f=f, r=3, s=3)
    image = g.tensor("X", (n, c, h, w), "f16", fill=0)
    weight = g.input("W", (F, C, R, S), "f16")
    windows = image[N, C, stride * Y + R - 1, stride * X + S - 1]
    g.output("Y", contract(windows, weight, over=(C, R, S)), "f16", (N, F, Y, X))
    return g.program()


def gradient(n: int, h: int, w: int, c: int, f: int, taps: int = 3, last: bool = True) -> Program:
    """Of the weights; `last`: channels behind rows."""
    g = Graph("gradient")
    N, Y, X, C, F, R, S = g.axes(n=n, y=h, x=w, c=c, f=f, r=taps, s=taps)
    image = g.tensor("X", (n, h, w, c) if last else (n, c, h, w), "f16", fill=0)
    y, x = Y + R - taps // 2, X + S - taps // 2
    windows = image[N, y, x, C] if last else image[N, C, y, x]
    above = g.input("dY", (N, Y, X, F) if last else (N, F, Y, X), "f16")
    g.output("dW", contract(windows, above, over=(N, Y, X)), "f32", (F, R, S, C))
    return g.program()


def shifted(k: int, by: int, times: int = 1) -> Program:
    """A sum whose operands both begin elsewhere: behind its end they have elements, too."""
    g = Graph("shifted")
    rows, m, n = g.axes(k=k, m=64, n=64)
    a, b = (g.tensor(name, (times * k + 24, 64), "f16", fill=0) for name in "AB")
    g.output("C", contract(a[times * rows - by, m], b[times * rows - by, n], over=rows), "f32")
    return g.program()


def kinds(program: Program, engine: str, residence: str = "usual") -> list[str]:
    return [kernel.kind for kernel in kernels_of(program, HARDWARE, engine, residence)]


def only(program: Program) -> TensorKernel:
    (kernel,) = kernels_of(program, HARDWARE, "wgmma")
    assert isinstance(kernel, TensorKernel)
    return kernel


def test_images_whose_rows_are_innermost_are_laid_anew() -> None:
    program = forward(2, 8, 16, 16, 32)
    *copies, product = laid_anew(program, frozenset(), {})
    shapes = {spec.name: spec.shape for part in copies for spec in part.outputs}
    assert shapes == {"laid_X": (2, 8, 16, 16), "laid_W": (32, 3, 3, 16)}
    assert {spec.name for spec in product.inputs} == set(shapes)
    assert LAID in residences(program, 132)
    assert kinds(program, "wgmma", LAID)[-1] == "tensor"
    assert kinds(program, "wgmma")[-1] == "tensor"  # of a copy with each tap by itself


def test_what_products_take_as_it_is_stays() -> None:
    last, few = gradient(2, 8, 16, 16, 32), forward(1, 8, 16, 3, 4)
    for program in (last, few):
        assert laid_anew(program, frozenset(), {}) == (program,)
        assert LAID not in residences(program, 132)


def test_blocks_have_several_rows_of_an_image() -> None:
    """12 points are no whole steps of 16, and what lies behind them belongs to the next row."""
    kernel = only(gradient(2, 8, 12, 64, 64))
    assert (kernel.roles.main_walk, kernel.roles.listed) == ("x", "y")
    assert kernel.tile_domain("x") == (12,)
    assert only(gradient(2, 8, 16, 64, 64)).roles.listed == ""
    assert only(gradient(2, 8, 12, 64, 64, taps=1)).roles.listed == ""


@needs_compiler
@pytest.mark.parametrize(
    ("program", "words"),
    few_rows(
        [
            (forward(2, 6, 10, 64, 72), LAID),
            (forward(4, 16, 24, 128, 128, stride=2), LAID),
            (gradient(2, 8, 12, 64, 64), "tile.y"),
            (gradient(2, 6, 24, 72, 40, taps=5), "tile.y"),
            (gradient(2, 8, 12, 32, 40, last=False), LAID),
            (shifted(40, 1), "target"),
            (shifted(48, 1), "wgmma"),
            (shifted(40, 0), "wgmma"),
            (shifted(20, 1, times=2), "target"),
        ],
        (0, 1, 2, 4, 5, 6, 7),
    ),
)
@draws(3, 6)
@pytest.mark.alike(2)
def test_their_kernels_mean_their_programs(program: Program, words: str, count: int) -> None:
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted, rng, tried = bounds_of(program, inputs), np.random.default_rng(2), 0
    residence = LAID if words == LAID else USUAL
    space = residence_space(program, HARDWARE, None, residence)
    routes = {one.engine: one for one in routes_of(program, HARDWARE, residence)}
    for row in (*space.seed_rows(rng), *space.sample(rng, 500)):
        schedule = space.schedule(row)
        if (words not in schedule.to_json() and words != LAID) or tried == count:
            continue
        route = routes[str(schedule.get("engine", next(iter(routes))))]
        values = route.own(schedule.as_dict())
        kernel = lower_all(program, values, HARDWARE, route.engine, residence)
        assert not problems(program, kernel, inputs, wanted, tried % len(MODES)), schedule
        tried += 1
    assert tried == count
