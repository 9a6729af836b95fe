"""Factors of whole numbers that are made of others are out of the compiler's sight.

NVRTC takes the whole byte for a number that was a part of it, where it makes a dot product.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from explorer.runtime.cuda import CudaRuntime
from ir import Graph, Operator, cast, contract, operator, recur, reduce
from ir.errors import MissingTarget
from ir.inputs import random_inputs
from ir.program import Program
from ir.schedule import Schedule
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

try:
    CudaRuntime().prepare()
    MISSING = ""
except MissingTarget as missing:
    MISSING = str(missing)
M, N, K = 3, 8, 256


@operator
def two_bits(g: Graph) -> None:
    """Words of four crumbs, as a user takes them apart."""
    m, n, o, p = g.axes(m=M, n=N, o=K // 4, p=4)
    w = cast(g.input("W", (n, o), "u8"), "i32")
    w = (((w >> (2 * g.iota(p))) & 3) ^ 2) - 2
    g.output("C", reduce("sum", cast(g.input("A", (m, o, p), "i8"), "i32") * w, over=(o, p)))


@operator
def crumbs(g: Graph) -> None:
    """The same, of a dtype."""
    m, n, k = g.axes(m=M, n=N, k=K)
    w = cast(g.input("W", (n, k), "i2"), "i8")
    g.output("C", contract(g.input("A", (m, k), "i8"), w, over=k))


@operator
def nibbles(g: Graph) -> None:
    """Both factors."""
    m, n, k = g.axes(m=M, n=N, k=K)
    a, b = (cast(g.input(s, (x, k), "i4"), "i32") for s, x in (("A", m), ("B", n)))
    g.output("C", reduce("sum", a * b, over=k))


@operator
def twelve_bits(g: Graph) -> None:
    """Parts of halves by bytes."""
    m, n, k = g.axes(m=M, n=N, k=K)
    a = (cast(g.input("A", (m, k), "i16"), "i32") << 20) >> 20
    g.output("C", reduce("sum", a * cast(g.input("B", (n, k), "i8"), "i32"), over=k))


@operator
def steps(g: Graph) -> None:
    """A state that a step adds such a product to."""
    t, n, p = g.axes(t=K // 4, n=N, p=4)
    w = cast(g.input("W", (t, n), "u8"), "i32")
    x = cast(g.input("X", (t, n, p), "i8"), "i32")
    h = g.state(t, (n,), 0, "i32")
    w = (((w >> (2 * g.iota(p))) & 3) ^ 2) - 2
    g.output("C", recur(h, h + reduce("sum", x * w, over=p)))


@operator
def named_steps(g: Graph) -> None:
    """Such products of a state, of a number that a step has by a name, as it is used twice."""
    t, n, k = g.axes(t=5, n=N, k=N)
    a = cast(g.input("A", (n, k), "i8"), "i32")
    h = g.state(t, (n,), 1, "i32")
    w = (((h >> 2) & 3) ^ 2) - 2
    y = reduce("sum", a * w * w + w, over=n)
    g.output("C", recur(h, ((y + g.iota(k)) % 16).at(k=n)))


PROGRAMS = (two_bits, crumbs, nibbles, twelve_bits, steps, named_steps)


def drawn(program: Program, count: int) -> list[Schedule]:
    space = BACKEND.space(program, HARDWARE)
    rows = space.sample(np.random.default_rng(5), count)
    return [space.schedule(row) for row in rows]


@pytest.mark.parametrize("one", PROGRAMS, ids=lambda one: one.name)
def test_made_factors_are_hidden(one: Operator) -> None:
    program = one.build()
    plain = re.compile(r"\* \(?v(_\d+)?\b")
    for schedule in drawn(program, 6):
        text = BACKEND.lower(program, schedule, HARDWARE).text("cuda")
        assert text.count("tw_factor(") > 1
        assert not plain.search(text.split("TW_KERNEL")[-1])


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("one", PROGRAMS, ids=lambda one: one.name)
def test_they_are_what_they_were(one: Operator) -> None:
    program = one.build()
    inputs = random_inputs(program, np.random.default_rng(3))
    wanted = bounds_of(program, inputs)
    for schedule in drawn(program, 2):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        assert problems(program, kernel, inputs, wanted, 0) == []


@pytest.mark.gpu
@pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")
@pytest.mark.parametrize("one", PROGRAMS, ids=lambda one: one.name)
def test_a_card_has_them_right(one: Operator, tmp_path: Path) -> None:
    program, runtime = one.build(), CudaRuntime()
    inputs = random_inputs(program, np.random.default_rng(3))
    wanted = bounds_of(program, inputs)
    for schedule in drawn(program, 12):
        kernel = BACKEND.lower(program, schedule, HARDWARE)
        loaded = runtime.load(runtime.compile(kernel, tmp_path))
        arrays = []
        for argument in kernel.arguments:
            if argument.role == "input":
                arrays.append(runtime.place(inputs[argument.name]))
            else:
                arrays.append(runtime.empty(argument.shape, argument.dtype))
        loaded.bind(arrays)()
        for argument, array in zip(kernel.arguments, arrays, strict=True):
            if argument.role == "output":
                assert wanted[argument.name].judge(runtime.fetch(array)).right, schedule
