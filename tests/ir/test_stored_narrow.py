"""Values between phases are as narrow as all of their readers round them to."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, Program, cast, contract, cumulative, recurrence, reduce, sqrt, where
from ir.inputs import random_inputs
from ir.phases import phases_of
from ir.registry import load_operator
from tests.cuda.run import needs_compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems


def scanned(readers: tuple[str, ...], fill: float = 0.0) -> Program:
    """A scan, and products of what it is one step before, rounded for each as named."""
    g = Graph("scanned")
    c, i, j, k = g.axes(c=5, i=6, j=7, k=8)
    total = recurrence(g.input("F", (c, i), "f32"), g.input("X", (c, i, k), "f32"), c)
    before = total.at(c=c - 1, fill=fill)
    for number, rounded in enumerate(readers):
        w = g.input(f"W{number}", (k, j), rounded or "f32")
        left = cast(before, rounded) if rounded else sqrt(before * before)
        g.output(f"Y{number}", contract(left, w, over=k), "f32", (c, i, j))
    return g.program()


def between(program: Program) -> dict[str, str]:
    """The types of what phases leave for each other."""
    own = {spec.name for spec in program.tensors}
    specs = (spec for phase in phases_of(program) for spec in phase.program.outputs)
    return {spec.name: spec.dtype for spec in specs if spec.name not in own}


@pytest.mark.parametrize(
    ("readers", "dtypes"),
    [
        (("bf16",), {"bf16"}),
        (("f16", "f16"), {"f16"}),
        (("bf16", "f16"), {"f32"}),  # two roundings
        (("bf16", ""), {"f32"}),  # one reads it as it is
    ],
)
def test_what_all_readers_round_alike_is_stored_so(
    readers: tuple[str, ...], dtypes: set[str]
) -> None:
    program = scanned(readers)
    assert {*between(program).values()} == dtypes
    assert all(phase.program.outputs for phase in phases_of(program))


def test_what_stands_outside_is_read_as_it_is() -> None:
    assert {*between(scanned(("bf16",), fill=0.3)).values()} == {"f32"}


def test_an_output_keeps_its_type() -> None:
    g = Graph("kept")
    m, n, k = g.axes(m=6, n=8, k=5)
    total = cumulative("sum", g.input("X", (m, n), "f32"), n)
    g.output("T", total, "f32", (m, n))
    w = g.input("W", (n, k), "bf16")
    g.output("Y", contract(cast(total, "bf16"), w, over=n), "f32", (m, k))
    last = phases_of(g.program())[-1].program
    written = [spec for phase in phases_of(g.program()) for spec in phase.program.outputs]
    assert {spec.name: spec.dtype for spec in written}["T"] == "f32"
    assert "Y" in {spec.name for spec in last.outputs}


def test_what_is_added_up_in_memory_stays_wide() -> None:
    program = load_operator("embedding_backward").build(m=23, rows=9, d=6, dtype="bf16")
    assert "bf16" not in between(program).values()


@needs_compiler
@pytest.mark.parametrize("readers", [("bf16",), ("f16", "f16")])
def test_kernels_of_it_mean_the_program(readers: tuple[str, ...]) -> None:
    program = scanned(readers)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE)
    for row in space.sample(np.random.default_rng(2), 4):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, kernel, inputs, wanted, 0)


def test_states_between_chunks_are_as_products_take_them() -> None:
    setting = {"b": 1, "t": 12, "heads": 4, "p": 3, "n": 5, "groups": 2, "chunk": 4}
    program = load_operator("mamba2_chunked").build(**setting, dtype="f16")
    assert "f16" in between(program).values()


def opened(dtype: str = "u8", fill: float = 0) -> Program:
    """The largest of the least numbers around each point."""
    g = Graph("opened")
    y, x, p, q = g.axes(y=9, x=14, p=3, q=3)
    image = g.tensor("I", (9, 14), dtype, fill=0)
    low = reduce("min", image[y + p - 1, x + q - 1], over=(p, q))
    high = reduce("max", low.at(y=y + p - 1, x=x + q - 1, fill=fill), over=(p, q))
    g.output("O", high, "i32", (y, x))
    return g.program()


@pytest.mark.parametrize(
    ("dtype", "fill", "stored"),
    [("u8", 0, "u8"), ("i8", -100, "i8"), ("u8", 300, "i16"), ("i16", 0, "i16"), ("i32", 0, "i32")],
)
def test_whole_numbers_are_stored_in_the_bytes_that_they_need(
    dtype: str, fill: float, stored: str
) -> None:
    assert {*between(opened(dtype, fill)).values()} == {stored}


def test_what_is_made_of_narrow_ones_is_known_again() -> None:
    g = Graph("sums")
    y, x, p = g.axes(y=9, x=14, p=3)
    count = reduce("sum", g.tensor("I", (9, 14), "u8", fill=0)[y + p - 1, x], over=p)
    again = reduce("sum", count.at(y=y + p - 1, fill=0), over=p)
    g.output("O", reduce("max", again.at(x=x + p - 1, fill=0), over=p), "i32", (y, x))
    assert [*between(g.program()).values()] == ["i16", "i16"]  # 765 and 2295 at most


@needs_compiler
@pytest.mark.parametrize(("dtype", "fill"), [("u8", 0), ("i8", -100), ("u8", 300)])
def test_kernels_of_narrow_whole_numbers_are_right(dtype: str, fill: float) -> None:
    program = opened(dtype, fill)
    inputs = random_inputs(program, np.random.default_rng(1))
    wanted, space = bounds_of(program, inputs), BACKEND.space(program, HARDWARE)
    for row in space.sample(np.random.default_rng(2), 4):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, kernel, inputs, wanted, 0)


def test_what_says_where_something_ends_stays_as_it_is() -> None:
    g = Graph("ends")
    i, j = g.axes(i=8, j=16)
    count = reduce("sum", g.input("have", (i, j), "u8"), over=j)
    ends = count.at(i=7 - i)
    x = where(g.iota(j) < ends, g.input("X", (i, j), "f32"), 0.0)
    g.output("Y", reduce("sum", x, over=j), "f32", (i,))
    assert {*between(g.program()).values()} == {"i32"}
