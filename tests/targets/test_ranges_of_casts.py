"""A cast to a float type limits what it casts, wherever the value is kept: on both targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from explorer.check import Bounds
from ir import Graph, cast, contract, minimum, reduce
from ir.inputs import drawn_inputs
from ir.ops.base import Array
from ir.program import Program
from ir.values import normal
from tests.emulator.emulate import compiler
from tests.few import draws
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, drawn
from tests.targets.test_cuda_emulated import problems
from tests.targets.test_meaning_of_numbers import cpu_kernels, run_cpu


def elementwise() -> Program:
    """Casts that maps read: to f16 from numbers beyond it, to e4m3, and one through the other."""
    g = Graph("elementwise")
    m, n = g.axes(m=40, n=96)
    x = g.input("X", (m, n), "f32", values=normal(300.0))
    half, eighth = cast(x * x, "f16"), cast(x, "e4m3")
    g.output("half", 1.0 / (1.0 + cast(half, "f32")))
    g.output("eighth", cast(eighth, "f32") * 2.0)
    g.output("both", cast(cast(half, "e4m3"), "f32") + 1.0)
    return g.program()


def reduced() -> Program:
    """Casts that reductions read."""
    g = Graph("reduced")
    m, n = g.axes(m=40, n=96)
    x = g.input("X", (m, n), "f16", values=normal(300.0))
    half = cast(x * x, "f16")
    g.output("most", reduce("max", half, over=n))
    g.output("sum", reduce("sum", cast(x, "e4m3"), over=n), "f32")
    g.output("capped", reduce("sum", minimum(cast(half, "f32"), 7e4) - x, over=n), "f32")
    return g.program()


def behind_a_product(dtype: str, scale: float) -> Program:
    """A cast of a product's results, read by the epilogue and stored by another output."""
    g = Graph(f"behind_{dtype}")
    m, n, k = g.axes(m=64, n=64, k=64)
    a = g.input("A", (m, k), "bf16", values=normal(scale))
    b = g.input("B", (k, n), "bf16", values=normal(scale))
    found = cast(contract(a, b, over=k), dtype)
    g.output("kept", found, dtype)
    g.output("read", minimum(cast(found, "f32"), 7e4) * 0.5, "bf16")
    return g.program()


def read_by_a_product() -> Program:
    """A cast that a product of the same type reads."""
    g = Graph("read_by_a_product")
    m, n, k = g.axes(m=64, n=64, k=64)
    a = g.input("A", (m, k), "f32", values=normal(300.0))
    b = g.input("B", (k, n), "e4m3", values=normal(1.0))
    g.output("C", contract(cast(a, "e4m3"), b, over=k), "f32")
    return g.program()


PROGRAMS = (
    elementwise(),
    reduced(),
    behind_a_product("e4m3", 8.0),
    behind_a_product("f16", 60.0),
    read_by_a_product(),
)
every = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: str(program.name))


def expected(program: Program) -> tuple[dict[str, Array], dict[str, Bounds]]:
    inputs = drawn_inputs(program, 3)
    return inputs, bounds_of(program, inputs)


@every
def test_what_is_beyond_the_range_is_known(program: Program) -> None:
    bounds = expected(program)[1]
    assert sum(bound.unbounded for bound in bounds.values()) == 0


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@every
@draws(1, 2)
def test_kernels_of_the_gpu_keep_to_them(program: Program, count: int) -> None:
    inputs, bounds = expected(program)
    for schedule in drawn(program, 1, 1, count):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert problems(program, kernel, inputs, bounds, 6) == [], schedule.to_json()


@every
@pytest.mark.alike(2)
def test_kernels_of_the_host_keep_to_them(program: Program, code_cache: Path) -> None:
    inputs, bounds = expected(program)
    for kernel in cpu_kernels(program, 2):
        (found,) = run_cpu(kernel, [inputs], code_cache)
        assert [name for name in bounds if not bounds[name].judge(found[name]).right] == []
