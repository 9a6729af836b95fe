"""Drawn chains of reductions: carried, split, or both, they mean the same in float64."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ir.ops.base import Array
from ir.oracle import evaluate, random_inputs
from ir.program import Program
from ir.rewrite.split import split
from ir.rewrite.streaming import stream, why_not
from tests.rewrite.chains import chains


def agree(found: dict[str, Array], plain: dict[str, Array]) -> None:
    for name, expected in plain.items():
        scale = 1.0 + float(np.max(np.abs(expected)))
        np.testing.assert_allclose(found[name], expected, rtol=1e-8, atol=1e-9 * scale)


@given(program=chains(), block=st.integers(1, 18), seed=st.integers(0, 99))
@settings(max_examples=65, deadline=None)
def test_carried(program: Program, block: int, seed: int) -> None:
    assert why_not(program) == {}
    streamed = stream(program)
    assert any(node.op.name == "carry" for node in streamed.nodes)
    assert stream(streamed) == streamed
    inputs = random_inputs(program, np.random.default_rng(seed))
    agree(evaluate(streamed, inputs, block=block), evaluate(program, inputs))


@given(program=chains(keep=False), data=st.data(), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_split(program: Program, data: st.DataObject, seed: int) -> None:
    """Into parts that need not be equal, and may be empty."""
    parted = split(program, "k", data.draw(st.integers(2, program.axes["k"])))
    inputs = random_inputs(program, np.random.default_rng(seed))
    plain = evaluate(program, inputs)
    agree(evaluate(parted, inputs), plain)
    block = data.draw(st.integers(1, 5))
    agree(evaluate(stream(parted, frozenset({"k_part"})), inputs, block=block), plain)
    agree(evaluate(stream(parted), inputs, block=block), plain)
