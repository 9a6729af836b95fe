"""Tables that are the numbers of a code are made by arithmetic; others are read."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, lookup
from ir.dtypes import to_float
from ir.inputs import random_inputs
from ir.program import Program
from ir.targets.cuda.text.coded import Code, code_of
from tests.emulator.emulate import compiler
from tests.judging import strictly
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_emulated import problems

FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
SIGNED = (*FP4, 0.0, *(-number for number in FP4[1:]))
E3M0 = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
NEITHER = (-1.0, -0.7, -0.5, -0.4, -0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.2, 0.3, 0.4, 0.6, 0.7, 1.0)
COUNTS = (0.0, 1.0, 2.0, 3.0)
TABLES = {"fp4": SIGNED, "unsigned": FP4, "powers": E3M0, "counts": COUNTS, "nf4": NEITHER}


def test_codes() -> None:
    assert code_of(SIGNED, "f32") == Code(3, 22, 2.0**126)
    assert code_of(FP4, "f32") == Code(3, 22, 2.0**126)
    assert code_of(COUNTS, "f32") == Code(2, 22, 2.0**127)
    patterns = np.arange(16, dtype=np.uint8)
    assert code_of(tuple(float(x) + 0.0 for x in to_float(patterns, "e2m1")), "f32") is not None


@pytest.mark.parametrize(
    "entries",
    [
        NEITHER,
        SIGNED[:-1],  # no whole code
        (*SIGNED[:-1], -5.0),
        (0.0, 0.0, 0.0, 0.0),
        (1.0, 2.0, 4.0, 8.0),  # 0 stands for another number
        (0.0, 3.0, 6.0, 9.0),  # no power of two
        (*FP4, -0.0, *SIGNED[9:]),  # two zeros
    ],
)
def test_no_codes(entries: tuple[float, ...]) -> None:
    assert code_of(entries, "f32") is None


def test_other_types_are_read() -> None:
    assert code_of(COUNTS, "i32") is None


def decoding(entries: tuple[float, ...]) -> Program:
    """Each entry, and what stands for indices beyond the table, over 1 plus 2."""
    g = Graph("decoding")
    i, j = g.axes(i=6, j=40)
    v = lookup(entries, (g.iota(i) * 7 + g.iota(j)) % (len(entries) + 4) - 2)
    g.output("Y", v, "f32", (i, j))
    g.output("Z", 1.0 / (v + 2.0), "f32", (i, j))
    return g.program()


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++) to emulate with")
@pytest.mark.parametrize("name", TABLES)
def test_kernels_have_the_numbers(name: str) -> None:
    program = decoding(TABLES[name])
    inputs = random_inputs(program, np.random.default_rng(0))
    space = BACKEND.space(program, HARDWARE)
    for row in space.sample(np.random.default_rng(1), 2):
        kernel = BACKEND.lower(program, space.schedule(row), HARDWARE)
        read = "table_" in kernel.text("cuda").rpartition("//@ kernel")[2]
        assert read == (name == "nf4")
        assert problems(program, kernel, inputs, strictly(program, inputs), 0) == []
