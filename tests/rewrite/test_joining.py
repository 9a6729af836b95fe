"""Axes that always go together become one: the same numbers, and products that engines take."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, reduce, where
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.registry import load_operator
from ir.rewrite.joining import joined_axes, short_joined
from ir.target import get_backend
from ir.targets.cuda.build.kernels import kernels_of
from ir.targets.cuda.space.residences import OPERANDS, pieces_of
from tests.targets.cuda_cases import HARDWARE


def pairs_inside() -> Program:
    """A row's dimension as halves and pairs; the same of the other factor."""
    g = Graph("pairs_inside")
    m, n, half, pair = g.axes(m=5, n=7, half=2, pair=3)
    a, b = g.tensor("A", (5, 6), "f32"), g.tensor("B", (7, 6), "f32")
    y = contract(a[m, half * 3 + pair], b[n, half * 3 + pair], over=(half, pair))
    g.output("Y", exp(y), "f32", (m, n))
    return g.program()


def neighbours() -> Program:
    """Three dimensions behind each other, kept and summed."""
    g = Graph("neighbours")
    b, h, m, k, e = g.axes(b=2, h=3, m=4, k=5, e=2)
    x, w = g.input("X", (b, h, m, k, e), "f32"), g.input("W", (b, h, k, e), "f32")
    g.output("Y", contract(x, w, over=(k, e)), "f32", (b, h, m))
    return g.program()


@pytest.mark.parametrize(
    ("make", "axes"), [(pairs_inside, {"m", "n", "half"}), (neighbours, {"b", "m", "k"})]
)
def test_axes_that_go_together_are_one(make: object, axes: set[str]) -> None:
    assert callable(make)
    program = make()
    joined = joined_axes(program)
    assert set(joined.axes) == axes
    inputs = random_inputs(program, np.random.default_rng(0))
    shaped = {s.name: inputs[s.name].reshape(s.shape) for s in joined.inputs}
    wanted, found = evaluate(program, inputs), evaluate(joined, shaped)
    for name, values in wanted.items():
        assert np.allclose(found[name].reshape(values.shape), values, rtol=1e-13)


def apart(kind: str) -> Program:
    """Two axes that are neighbours, but for one thing."""
    g = Graph("apart")
    i, j, k = g.axes(i=4, j=6, k=5)
    x = g.input("X", (i, j, k), "f32")
    other = {
        "turned": lambda: g.input("W", (j, i), "f32"),
        "alone": lambda: g.input("W", (j,), "f32"),
        "strided": lambda: g.tensor("W", (4, 7), "f32")[i, j],
        "counted": lambda: cast(g.iota(j), "f32"),
        "masked": lambda: where(g.iota(i) < 2, x, 0.0),
    }[kind]()
    g.output("Y", x * other, "f32", (i, j, k))
    return g.program()


@pytest.mark.parametrize("kind", ["turned", "alone", "strided", "counted", "masked"])
def test_axes_that_do_not_stay_apart(kind: str) -> None:
    program = apart(kind)
    assert {"i", "j"} <= set(joined_axes(program).axes)


def test_summed_and_kept_axes_stay_apart() -> None:
    g = Graph("half_summed")
    m, i, j, n = g.axes(m=3, i=4, j=6, n=2)
    x, w = g.input("X", (m, i, j), "f32"), g.input("W", (j, n), "f32")
    g.output("Y", contract(x, w, over=j), "f32", (m, i, n))
    joined = joined_axes(g.program())
    assert set(joined.axes) == {"m", "j", "n"}  # rows of rows are rows
    assert joined.axes["m"] == 12


def test_attention_behind_a_rotation_is_one_kernel_on_tensor_cores() -> None:
    """The rotated queries and keys are stored, their halves and pairs one axis."""
    program = load_operator("rotary_attention").build(
        b=1, heads=8, s=256, d=128, kv_heads=2, dtype="bf16"
    )
    pieces = pieces_of(program, OPERANDS)
    assert len(pieces) == 3
    assert "pair" not in pieces[-1].program.axes
    kinds = [kernel.kind for kernel in kernels_of(program, HARDWARE, "wgmma", OPERANDS)]
    assert kinds == ["block", "block", "tensor"]


def test_axes_of_more_points_together_than_a_coordinate_has_stay_apart() -> None:
    """Eight gigabytes of bf16: every element by itself, and every target has kernels of it."""
    program = load_operator("activation").build(m=65536, n=65536, dtype="bf16")
    assert joined_axes(program) is program
    shorter = load_operator("activation").build(m=65536, n=32767, dtype="bf16")
    assert dict(joined_axes(shorter).extents) == {"m": 65536 * 32767}
    kernels = kernels_of(program, HARDWARE)
    assert [dict(kernel.program.extents) for kernel in kernels] == [dict(program.extents)]


def thin(k: int, n: int, kind: str = "sum") -> Program:
    """What squares of a thin matrix come to, or its columns, or twice its elements."""
    g = Graph("thin")
    rows, columns = g.axes(k=k, n=n)
    x = g.input("X", (rows, columns), "bf16")
    if kind == "product":
        g.output("Y", contract(x, g.input("W", (rows, columns), "bf16"), over=(rows, columns)))
    elif kind == "twice":
        g.output("Y", x * 2.0, "bf16")
    else:
        over = columns if kind == "rows" else (rows, columns)
        g.output("Y", reduce("sum", cast(x, "f32") * cast(x, "f32"), over=over))
    return g.program()


@pytest.mark.parametrize("kind", ["sum", "twice"])
def test_axes_that_fill_no_vector_are_part_of_longer_ones(kind: str) -> None:
    program = thin(1001, 3, kind)
    joined = short_joined(program)
    assert joined.axes == {"k": 3003}
    inputs = random_inputs(program, np.random.default_rng(1))
    flat = {name: array.reshape(-1) for name, array in inputs.items()}
    (wanted,), (found,) = evaluate(program, inputs).values(), evaluate(joined, flat).values()
    np.testing.assert_allclose(found.reshape(wanted.shape), wanted)


def test_long_axes_and_those_of_products_stay() -> None:
    for program in (thin(64, 16), thin(64, 3, "product"), thin(64, 3, "rows")):
        assert short_joined(program) == program


@pytest.mark.parametrize("kind", ["sum", "twice"])
def test_kernels_of_a_cpu_take_them_as_one(kind: str) -> None:
    """The arrays of a kernel are as the program has them."""
    program, backend = thin(1001, 3, kind), get_backend("cpu")
    hardware = backend.hardware(1)
    space = backend.space(program, hardware)
    assert "tile.n.0" not in space.names
    row = space.seed_rows(np.random.default_rng(0))[0]
    kernel = backend.lower(program, space.schedule(row), hardware)
    assert kernel.arguments[0].shape == (1001, 3)
