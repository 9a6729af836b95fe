"""Tensors may be called what kernels call something else, or what C++ does."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract, cumulative, indices, recur, scatter, silu
from ir.errors import ProgramError
from ir.inputs import random_inputs
from ir.program import Program
from ir.rewrite.undotted import undotted
from ir.targets.cuda.text.naming import kernel_name, text_name
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

NAMES = (
    ("v", "i", "lane", "row"), ("group", "smem", "member", "tile"), ("max", "thread", "int", "u32"),
)  # fmt: skip


def _named(names: tuple[str, ...]) -> Program:
    g = Graph("named")
    m, n, k = g.axes(m=72, n=80, k=64)
    x, w = g.input(names[0], (m, k), "bf16"), g.input(names[1], (n, k), "bf16")
    bias = g.input(names[2], (n,), "f32")
    g.output(names[3], cast(silu(contract(x, w, over=k) + bias), "bf16"))
    return g.program()


def test_names_of_the_text_are_no_tensors() -> None:
    assert [text_name(name) for name in ("A", "bias_A", "t7")] == ["A", "bias_A", "t7"]
    words = ("v", "int", "x", "NULL", "TW_INF", "threadIdx")
    assert [text_name(word) for word in words] == [f"{word}_data" for word in words]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("engine", ["wgmma", "mma", "fma"])
@pytest.mark.parametrize("names", NAMES)
def test_any_name_will_do(names: tuple[str, ...], engine: str) -> None:
    program = _named(names)
    inputs = random_inputs(program, np.random.default_rng(0))
    space = BACKEND.space(program, HARDWARE).pin({"engine": engine})
    row = space.sample(np.random.default_rng(0), 1)[0]
    kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
    assert {argument.name for argument in kernel.arguments} >= set(names)
    assert not problems(program, kernel, inputs, bounds_of(program, inputs), 0)


def _stepped(names: tuple[str, ...]) -> Program:
    """What plain kernels have: states, running sums, places that are sent to, and the axes."""
    g = Graph("stepped")
    t, n, k = g.axes(**{names[0]: 6, names[1]: 20, names[2]: 5})
    x = g.input(names[3], (t, n), "f32")
    state = g.state(t, (n,))
    g.output(names[4], recur(state, 0.5 * state + x))
    g.output(names[5], cumulative("sum", x, n))
    place = g.input(names[6], (n,), "i32", values=indices(5))
    g.output(names[7], scatter("sum", x, {k: place}))
    return g.program()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("names", [
    ("new", "operator", "and", "float", "this", "u32", "switch", "try"),
    ("threadIdx", "for_", "main", "blockIdx", "volatile", "min", "fmaf", "__global__"),
    ("point", "room", "thread", "delete", "xor", "i64", "asm", "warpSize"),
])  # fmt: skip
def test_any_name_will_do_in_plain_kernels(names: tuple[str, ...]) -> None:
    program = _stepped(names)
    inputs = random_inputs(program, np.random.default_rng(0))
    space = BACKEND.space(program, HARDWARE)
    for row in space.sample(np.random.default_rng(0), 2):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, kernel, inputs, bounds_of(program, inputs), 0)


def _dotted() -> Program:
    """Names as a model has them, beside those that they would be without dots."""
    g = Graph("dotted")
    m, n, k = g.axes(**{"a.m": 24, "a_m": 40, "k.0": 32})
    x, w = g.input("up.0.weight", (m, k), "bf16"), g.input("up_0_weight", (n, k), "bf16")
    y = contract(x, w, over=k) + g.input("a.m", (n,), "f32")
    g.output("y.1", y, "bf16", (m, n))
    g.output("y_1", cumulative("sum", y, n), "f32", (m, n))
    return g.program()


def test_names_without_dots_are_nobody_else_s() -> None:
    program = undotted(_dotted())
    assert [axis for axis, _ in program.extents] == ["a_m1", "a_m", "k_0"]
    assert [spec.name for spec in program.tensors] == [
        "up_0_weight1", "up_0_weight", "a_m1", "y_11", "y_1",
    ]  # fmt: skip
    assert undotted(program) is program


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
def test_names_may_have_dots() -> None:
    program = _dotted()
    inputs = random_inputs(program, np.random.default_rng(0))
    space = BACKEND.space(program, HARDWARE)
    for row in space.sample(np.random.default_rng(0), 3):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        named = [a.name for a in kernel.arguments if a.role != "workspace"]
        assert named == ["up.0.weight", "up_0_weight", "a.m", "y.1", "y_1"]
        assert not problems(program, kernel, inputs, bounds_of(program, inputs), 0)


def test_a_tensor_has_another_name_than_memory_of_kernels_own() -> None:
    g = Graph("named")
    g.output("Y", g.input("workspace", (g.axis("m", 4),), "f32") * 2.0)
    with pytest.raises(ProgramError, match="choose another name"):
        g.program()


OPERATORS = (
    "exp",
    "new",
    "main",
    "double",
    "f32",
    "tw_sync",
    "threadIdx",
    "div",
    "fmaxf",
    "register",
)


def test_kernels_are_called_as_their_program_where_nothing_else_is() -> None:
    assert [kernel_name(name) for name in ("softmax", "exp_2", "a.b")] == [
        "softmax",
        "exp_2",
        "a_b",
    ]
    assert [kernel_name(name) for name in OPERATORS] == [f"{name}_kernel" for name in OPERATORS]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_may_be_called_as_a_function_or_a_word_of_the_language(name: str) -> None:
    g = Graph(name)
    m, n = g.axes(m=16, n=24)
    g.output("Y", silu(g.input("X", (m, n), "f32")), "f32")
    program = g.program()
    inputs = random_inputs(program, np.random.default_rng(0))
    space = BACKEND.space(program, HARDWARE)
    row = space.sample(np.random.default_rng(0), 1)[0]
    kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
    assert not problems(program, kernel, inputs, bounds_of(program, inputs), 0)
