"""Factors of few points are multiplied with each other first, and what they come to stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Axis, Graph, Tile, cast, contract, exp, reduce
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.grouped import grouped
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.engines import residence_space
from ir.targets.cuda.space.residences import USUAL
from tests.cuda.run import needs_compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

Scaled = Callable[[Graph, Tile, tuple[Axis, ...]], Tile]


def scales(g: Graph, x: Tile, axes: tuple[Axis, ...]) -> Tile:
    m = axes[0]
    return x * g.input("a", (m,), "f32") * g.input("b", (), "f32")


def of_both_sides(g: Graph, x: Tile, axes: tuple[Axis, ...]) -> Tile:
    m, n, _ = axes
    return x * g.input("a", (m,), "f32") * g.input("b", (n,), "f32")


def by_a_number(g: Graph, x: Tile, axes: tuple[Axis, ...]) -> Tile:
    m = axes[0]
    return x * 0.5 * g.input("a", (m,), "f32")


def rounded(g: Graph, x: Tile, axes: tuple[Axis, ...]) -> Tile:
    m = axes[0]
    return x * g.input("a", (m,), "bf16") * g.input("b", (m,), "bf16")


def read_twice(g: Graph, x: Tile, axes: tuple[Axis, ...]) -> Tile:
    m = axes[0]
    first = x * g.input("a", (m,), "f32")
    return first * g.input("b", (m,), "f32") + exp(first)


def twice(g: Graph, x: Tile, axes: tuple[Axis, ...]) -> Tile:
    m = axes[0]
    first = g.input("a", (m,), "f32") * g.input("b", (m,), "f32")
    return x * (first * first)


def narrow_ones(g: Graph, x: Tile, axes: tuple[Axis, ...]) -> Tile:
    """Two narrow numbers, each of which meets a wide one before the other."""
    m, n, _ = axes
    y, z = g.input("y", (m, n), "bf16"), g.input("z", (m, n), "bf16")
    return y * g.input("a", (m,), "f32") * z * g.input("b", (m,), "f32") + x


def a_narrow_one(g: Graph, x: Tile, axes: tuple[Axis, ...]) -> Tile:
    m, n, _ = axes
    y = g.input("y", (m, n), "bf16")
    return y * g.input("a", (m,), "f32") * g.input("b", (m,), "f32") + x


def beside_others(g: Graph, x: Tile, axes: tuple[Axis, ...]) -> Tile:
    """Scales of rows, of columns, and a number, in any order."""
    m, n, _ = axes
    c = g.input("c", (n,), "f32")
    return g.input("a", (m,), "f32") * (c * x) * g.input("b", (), "f32") * g.input("d", (m,), "f32")


CASES: dict[Scaled, int | None] = {  # products of all points, and none where nothing changes
    scales: 1, of_both_sides: None, by_a_number: None, rounded: None, read_twice: None,
    twice: None, beside_others: 2, narrow_ones: None, a_narrow_one: 1,
}  # fmt: skip


def program_of(scaled: Scaled, m: int = 24, n: int = 40) -> Program:
    g = Graph("scaled")
    axes = mm, nn, kk = g.axes(m=m, n=n, k=32)
    x = contract(g.input("X", (mm, kk), "bf16"), g.input("Y", (kk, nn), "bf16"), over=kk)
    g.output("Z", scaled(g, x, axes), "f32", (mm, nn))
    return g.program()


@pytest.mark.parametrize("scaled", CASES)
def test_factors_are_grouped_where_they_are_fewer(scaled: Scaled) -> None:
    program, most = program_of(scaled), CASES[scaled]
    found = grouped(program)
    if most is None:
        assert found is program
        return
    wide = [n for n in found.nodes if getattr(n.op, "function", "") == "mul" and len(n.axes) == 2]
    assert len(wide) == most
    inputs = random_inputs(program, np.random.default_rng(0))
    before, after = evaluate(program, inputs)["Z"], evaluate(found, inputs)["Z"]
    np.testing.assert_allclose(after, before, rtol=1e-12)
    assert grouped(found) is found or grouped(found).nodes == found.nodes


def block_scales() -> Program:
    """Scales of rows and of blocks of columns for each part of a sum."""
    g = Graph("block_scales")
    m, nb, ni, kb, ki = g.axes(m=72, nb=2, ni=64, kb=3, ki=32)
    a, b = g.input("A", (m, kb, ki), "bf16"), g.input("B", (nb, ni, kb, ki), "bf16")
    part = contract(a, b, over=ki) * g.input("sa", (m, kb), "f32")
    total = reduce("sum", part * g.input("sb", (nb, kb), "f32"), over=kb)
    g.output("C", cast(total, "bf16"), "bf16", (m, nb, ni))
    return g.program()


@needs_compiler
def test_partial_sums_are_scaled_once() -> None:
    program = block_scales()
    (kernel,) = kernels_of(program, HARDWARE, "wgmma")
    wide = [
        n for n in kernel.program.nodes
        if getattr(n.op, "function", "") == "mul" and "ni" in n.axes
    ]  # fmt: skip
    assert len(wide) == 1
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    space = residence_space(program, HARDWARE, None, USUAL)
    for row in space.sample(np.random.default_rng(1), 4):
        schedule = space.schedule(row)
        made = BACKEND.lower(program, schedule, HARDWARE)
        assert not problems(program, made, inputs, wanted, 0), schedule.to_json()
