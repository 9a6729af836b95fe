"""Weights that are bits of narrow integers, widened two at a time: fields of any width."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, apply, cast, contract
from ir.inputs import random_inputs
from ir.program import Program
from tests.emulator.emulate import compiler
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

# bits that are moved away at the first place, as many more at the second, and those that are kept
FIELDS = [(0, 4, 15), (0, 4, 0xFFFF), (0, 4, 0xFF), (0, 8, 0x7FFF), (2, 6, 0xFFFF), (4, -4, 0xFFFF),
          (1, 5, 3), (4, -2, 0xFFF)]  # fmt: skip


def fields(first: int, apart: int, mask: int) -> Program:
    g = Graph("fields")
    i, j, k = g.axes(i=64, j=64, k=64)
    half = g.axis("half", 2)
    a, w = g.input("A", (i, k, half), "f16"), g.input("W", (j, k), "u8")
    moved = apply("shr", cast(w, "i32"), g.iota(half) * apart + first)
    bits = cast(apply("bitand", moved, mask), "f16")
    g.output("C", contract(a, bits, over=(k, half)), "f32", (i, j))
    return g.program()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.alike(2)
def test_fields_are_the_bits_that_are_kept(field: tuple[int, int, int]) -> None:
    program = fields(*field)
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE).pin(engine="wgmma_rs")
    (row,) = space.sample(np.random.default_rng(1), 1)
    kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
    assert not problems(program, kernel, inputs, wanted, 0)


def test_both_places_are_taken_at_once() -> None:
    """One multiplication for two places, with no more bits than the integer has."""
    program = fields(2, 4, 0xFFFF)
    space = BACKEND.space(program, HARDWARE).pin(engine="wgmma_rs")
    (row,) = space.sample(np.random.default_rng(1), 1)
    text = BACKEND.lower(program, space.schedule(row), HARDWARE).text("cuda")
    assert "tw_fields(" in text
    assert "0x3fu)" in text.split("tw_fields((u32)", 1)[1].split(";", 1)[0]


def rounded(through: str) -> Program:
    """Bytes that are rounded to a type of fewer digits than the product's, then scaled."""
    g = Graph("rounded")
    i, j, k = g.axes(i=64, j=64, k=64)
    a, w = g.input("A", (i, k), "f16"), g.input("W", (j, k), "u8")
    scale = g.input("scale", (j, k), "f16")
    weights = cast(cast(cast(w, through), "f32") * scale, "f16")
    g.output("C", contract(a, weights, over=k), "f32", (i, j))
    return g.program()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("through", ["e4m3", "f16", "f32"])
def test_what_is_rounded_on_the_way_stays_rounded(through: str) -> None:
    program = rounded(through)
    inputs = random_inputs(program, np.random.default_rng(0))
    wanted = bounds_of(program, inputs)
    space = BACKEND.space(program, HARDWARE).pin(engine="wgmma_rs")
    texts = []
    for row in space.sample(np.random.default_rng(1), 3):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        assert not problems(program, kernel, inputs, wanted, 0)
        texts.append(kernel.text("cuda"))
    assert any("tw_mul_f16x2(" in text for text in texts) == (through != "e4m3")
