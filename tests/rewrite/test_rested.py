"""Axes as whole units and a rest: the same results, and parts of any extent on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ir import Graph, contract, cumulative, exp, reduce
from ir.errors import UsageError
from ir.inputs import drawn_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.registry import load_operator
from ir.rewrite.rested import rested
from ir.rewrite.split import split
from ir.target import get_backend
from tests.judging import bounds_of
from tests.targets.test_meaning_of_numbers import run_cpu

BACKEND = get_backend("cpu")
HOST = BACKEND.hardware(2)


def decode(keys: int) -> Program:
    """A few queries over many keys."""
    g = Graph("decode")
    j, d, h = g.axes(j=keys, d=16, h=3)
    q, k = g.input("q", (h, d), "f16"), g.input("k", (j, d), "f16")
    v = g.tensor("v", (keys, 16), "f16")
    (e,) = g.axes(e=16)
    s = contract(q, k, over=d) * 0.25
    p = exp(s - reduce("max", s, over=j))
    g.output("o", contract(p, v[j, e], over=j) / reduce("sum", p, over=j), "f32", (h, e))
    return g.program()


def counted(n: int) -> Program:
    """Whole numbers, coordinates, and a sum over two axes."""
    g = Graph("counted")
    i, m = g.axes(i=n, m=5)
    x = g.input("x", (m, i), "u8")
    g.output("largest", reduce("max", x + g.iota(i) % 7, over=i), "i32", (m,))
    g.output("all", reduce("sum", x * g.iota(i), over=(m, i)), "i32", ())
    return g.program()


def of(name: str, **arguments: Any) -> Program:
    return load_operator(name).build(**arguments)


CASES = [
    (decode(203), "j", 64),
    (counted(100), "i", 32),
    (of("matmul", m=5, n=6, k=67), "k", 16),
    (of("attention", b=1, heads=2, sq=37, d=8, causal=True), "sk", 16),
]


@pytest.mark.parametrize(("program", "axis", "unit"), CASES, ids=lambda v: getattr(v, "name", None))
def test_the_same_results(program: Program, axis: str, unit: int) -> None:
    found = rested(program, axis, unit)
    extent = program.axes[axis]
    assert found.axes[axis] == extent // unit * unit
    assert found.axes[f"{axis}_rest"] == extent % unit
    inputs = drawn_inputs(program, 1)
    for name, exact in evaluate(program, inputs).items():
        np.testing.assert_allclose(evaluate(found, inputs)[name], exact, rtol=1e-9)
        np.testing.assert_allclose(
            evaluate(split(found, axis, 2), inputs)[name], exact, rtol=1e-9, atol=1e-12
        )


def test_what_takes_an_axis_whole_is_refused() -> None:
    g = Graph("kept")
    m, t = g.axes(m=3, t=33)
    x = g.input("x", (m, t), "f32")
    g.output("y", cumulative("sum", x, t), "f32", (m, t))
    with pytest.raises(UsageError):
        rested(g.program(), "t", 16)
    with pytest.raises(UsageError, match="fold takes n whole"):
        rested(of("logsumexp", m=5, n=77), "n", 32)
    with pytest.raises(UsageError, match="no units of 16 and a rest"):
        rested(of("matmul", m=5, n=6, k=64), "k", 16)
    with pytest.raises(UsageError, match="no units of 128 and a rest"):
        rested(of("matmul", m=5, n=6, k=64), "k", 128)


@pytest.mark.parametrize("make", [decode, counted])
def test_parts_of_any_extent_on_a_cpu(make: Any, code_cache: Path) -> None:
    program: Program = make(1031)
    space = BACKEND.space(program, HOST)
    names = [d.name for d in space.decisions if d.name.split(".")[-1] == "split"]
    assert names
    inputs = drawn_inputs(program, 1)
    wanted = bounds_of(program, inputs)
    rng = np.random.default_rng(0)
    (choices,) = (d.domain for d in space.decisions if d.name == "split")
    for choice in choices[1:]:
        rows = space.pin(split=choice).sample(rng, 6)
        for row in rows:
            kernel = BACKEND.lower(program, space.pin(split=choice).schedule(row), HOST)
            (found,) = run_cpu(kernel, [inputs], code_cache)
            assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []


def test_of_few_points_parts_come_first() -> None:
    """As they lie; where many points keep threads busy, none are split."""

    def first(program: Program) -> dict[str, Any]:
        space = BACKEND.space(program, HOST)
        return space.schedule(space.seed_rows(np.random.default_rng(0))[0]).as_dict()

    few = first(decode(4099))
    assert (few["split"], few["pack.s0.k"]) == ("j:2", "no")
    assert first(of("matmul", m=64, n=64, k=1031))["split"] == "none"
