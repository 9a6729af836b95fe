"""Products in steps of plain kernels on tensor cores: right wherever operands lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from explorer.runtime import nvrtc
from ir import Graph, cast, contract, recur, sigmoid, tanh, where
from ir.errors import MissingTarget
from ir.inputs import drawn_inputs
from ir.program import Program
from ir.schedule import Schedule
from ir.values import normal
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")


def corrected(i: int, d: int, e: int, masked: bool = False, dtype: str = "bf16") -> Program:
    """A state that products with it correct, chunk after chunk: operands in words and in elements
    of inputs, a block's arrays across."""
    g = Graph("corrected")
    h, t, ii, dd, ee = g.axes(h=2, t=3, i=i, d=d, e=e)
    w, k = (g.input(name, (h, t, ii, dd), dtype, normal(0.2)) for name in "WK")
    y = g.input("Y", (h, t, ii, ee), dtype)
    before = g.state(t, (h, dd, ee))
    rounded = cast(before, dtype)
    left = where(g.iota(dd) <= g.iota(ii), w, 0.0) if masked else w
    u = y - contract(left, rounded, over=dd)
    last = recur(before, before * 0.5 + contract(k, cast(u, dtype), over=ii))
    g.output("U", u, dtype, (h, t, ii, ee))
    g.output("S", last, "f32", (h, dd, ee))
    return g.program()


def wide(i: int, d: int, e: int, *, narrow: bool = False, transition: bool = False) -> Program:
    """The same of f32: factors are split into parts, but for what has few bits to begin with; or a
    state that one matrix is multiplied with and that is read with its axes in other places."""
    g = Graph("wide")
    h, t, ii, dd, ee, rows = g.axes(h=2, t=3, i=i, d=d, e=e, rows=d)
    before = g.state(t, (h, dd, ee))
    if transition:
        matrix = g.input("A", (h, t, rows, dd), "f32", normal(0.2))
        found = contract(matrix, before, over=dd).at({rows: dd})
        after = 0.5 * before + found + g.input("B", (h, t, dd, ee), "f32")
    else:
        w = g.input("W", (h, t, ii, dd), "f32", normal(0.2))
        k = g.input("K", (h, t, ii, dd), "bf16" if narrow else "f32", normal(0.2))
        u = g.input("Y", (h, t, ii, ee), "bf16") - contract(w, before, over=dd)
        after = before * 0.5 + contract(k, u, over=ii)
        g.output("U", u, "f32", (h, t, ii, ee))
    g.output("S", recur(before, after), "f32", (h, dd, ee))
    return g.program()


def gated(b: int, n: int) -> Program:
    """A gated unit along t: three products of one state in one loop, columns apart."""
    g = Graph("gated")
    bb, t, i, j = g.axes(b=b, t=3, i=n, j=n)
    x = g.input("X", (t, i, bb), "f32")
    reset, update, new = (g.input(name, (i, j), "bf16", normal(n**-0.5)) for name in "RZN")
    h = g.state(t, (i, bb))
    other = cast(h.at(i=j), "bf16")
    r, z, c = (contract(weight, other, over=j) for weight in (reset, update, new))
    z = sigmoid(z + x)
    after = (1.0 - z) * tanh(x + sigmoid(r) * c) + z * h
    recur(h, after)
    g.output("H", after, "bf16", (t, i, bb))
    return g.program()


def scheduled(program: Program, **values: Any) -> Schedule:
    """The first seed, with points of blocks, and other values where there is a choice."""
    space = BACKEND.space(program, HARDWARE)
    seed = space.schedule(space.seed_rows(np.random.default_rng(0))[0]).as_dict()
    own = {"alone": False, "team": 1, "share": 1, **values}
    seed |= {name: value for name, value in own.items() if name in seed}
    schedule = space.schedule(space.encode(Schedule.of("cuda", seed)))
    refused = space.refusal(schedule)
    assert refused is None, refused
    return schedule


CASES = [
    (corrected(32, 64, 32), {"beside": 32, "mma": "16x16", "threads": 128}),
    (corrected(32, 64, 32), {"beside": 16, "mma": "32x32", "threads": 64}),
    (corrected(20, 24, 8), {"beside": 8, "mma": "16x8", "threads": 64}),  # nothing divides
    (corrected(36, 40, 24, dtype="f16"), {"beside": 8, "mma": "32x16", "threads": 32}),
    (corrected(32, 32, 16, masked=True), {"beside": 16, "mma": "16x32", "threads": 128}),
    (wide(32, 64, 32), {"beside": 16, "mma": "16x16", "threads": 128}),
    (wide(20, 24, 8), {"beside": 8, "mma": "16x8", "threads": 64}),
    (wide(36, 40, 24, narrow=True), {"beside": 8, "mma": "32x16", "threads": 32}),
    (wide(16, 48, 32, transition=True), {"beside": 32, "mma": "16x32", "threads": 128}),
    (gated(16, 40), {"beside": 16, "mma": "16x8", "threads": 64}),
    (gated(24, 32), {"beside": 8, "mma": "64x16", "threads": 32}),
]


@needs_compiler
@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.alike(2)
def test_products_mean_their_program(number: int, prefetch: bool) -> None:
    program, values = CASES[number]
    schedule = scheduled(program, prefetch=prefetch, **values)
    kernel = BACKEND.lower(program, schedule, HARDWARE)
    text = kernel.text("cuda")
    assert "tw_mma_m16n8k16" in text
    assert ("tw_prefetch(" in text) == prefetch
    inputs = drawn_inputs(program, number)
    bounds = bounds_of(program, inputs)
    for mode in (0, 9, 15):
        assert not problems(program, kernel, inputs, bounds, mode)


def test_ways_to_read_operands() -> None:
    program, values = CASES[0]
    text = BACKEND.lower(program, scheduled(program, **values), HARDWARE).text("cuda")
    assert "tw_ldmatrix_x4_trans" in text  # rounded states and corrections: neighbours are columns
    assert "tw_load_8(W" in text  # neighbours along the depth
    assert "tw_load_8(K" not in text  # neighbours are rows: elements


def test_wide_numbers_are_split() -> None:
    for number, products in ((5, 6), (7, 3)):
        program, values = CASES[number]
        text = BACKEND.lower(program, scheduled(program, **values), HARDWARE).text("cuda")
        assert "tw_split_bf16(" in text
        assert text.count("tw_mma_m16n8k16_bf16(sums") == 6 + products
    program, values = CASES[5]
    text = BACKEND.lower(program, scheduled(program, **values), HARDWARE).text("cuda")
    assert "tw_load_16(W" in text  # neighbours along the depth, four to a word


def test_they_compile() -> None:
    try:
        nvrtc.version()
    except MissingTarget as missing:
        pytest.skip(str(missing))
    for program, values in (CASES[0], CASES[2], CASES[-1], CASES[5], CASES[7]):
        text = BACKEND.lower(program, scheduled(program, **values), HARDWARE).text("cuda")
        code, _ = nvrtc.compile_text(text, "sm_90a", ())
        assert code


def test_a_point_by_itself_has_no_products() -> None:
    program, values = CASES[2]
    space = BACKEND.space(program, HARDWARE)
    one = scheduled(program, **values).as_dict() | {"beside": 1}
    refused = space.refusal(Schedule.of("cuda", one))
    assert refused is not None
    assert refused.constraint == "mma"
