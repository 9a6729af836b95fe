"""States that only add up: reductions, of the same values, and which states stay loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, cast, exp, maximum, minimum, recur
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite.accumulated import rewritten
from ir.rewrite.forms import forms_of
from ir.rewrite.work import Rates
from ir.tiles import Tile
from tests.cuda.run import needs_compiler
from tests.targets.formed import form_problems

Step = Callable[[Tile, Tile, Tile], Tile]


def loop(step: Step, first: bool = False, seen: bool = False) -> Program:
    """A state over (m, n) along t, of X(t, m) and W(t, n)."""
    g = Graph("loop")
    t, m, n = g.axes(t=7, m=12, n=20)
    x, w = g.input("X", (t, m), "f32"), g.input("W", (t, n), "f32")
    begin = g.input("S", (m, n), "f32") if first else 0.0
    state = g.state(t, (m, n), begin)
    new = step(state, x, w)
    g.output("Y", recur(state, new) * 0.5, "f32", (m, n))
    if seen:
        g.output("all", new, "f32", (t, m, n))
    return g.program()


SUMS: dict[str, tuple[Step, bool]] = {
    "sum": (lambda s, x, w: s + x * w, False),
    "turned": (lambda s, x, w: exp(x) * w + s, True),
    "less": (lambda s, x, w: s - x * w, True),
    "largest": (lambda s, x, w: maximum(s, x + w), True),
    "least": (lambda s, x, w: minimum(x - w, s), False),
}
OTHERS: dict[str, Step] = {
    "scaled": lambda s, x, w: s * 0.5 + x * w,
    "from": lambda s, x, w: x * w - s,
    "rounded": lambda s, x, w: cast(cast(s + x * w, "bf16"), "f32"),
    "of itself": lambda s, x, w: s + s * x * w,
    "lacks": lambda s, x, w: s + w,
}


@pytest.mark.parametrize("name", SUMS)
def test_what_steps_add_is_summed_over_all(name: str) -> None:
    step, first = SUMS[name]
    program = loop(step, first)
    found = rewritten(program)
    assert found is not None
    assert not {node.op.name for node in found[1].nodes} & {"before", "recur"}
    inputs = random_inputs(program, np.random.default_rng(4))
    wanted, had = evaluate(program, inputs)["Y"], evaluate(found[1], inputs)["Y"]
    np.testing.assert_allclose(had, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", OTHERS)
def test_other_steps_stay(name: str) -> None:
    assert rewritten(loop(OTHERS[name])) is None


def test_a_state_that_is_seen_on_the_way_stays() -> None:
    assert rewritten(loop(SUMS["sum"][0], seen=True)) is None


def test_rank_one_updates_are_a_product() -> None:
    g = Graph("updates")
    k, m, n = g.axes(k=256, m=512, n=512)
    a, b = g.input("A", (k, m), "bf16"), g.input("B", (k, n), "bf16")
    s = g.state(k, (m, n), 0.0)
    g.output("C", recur(s, s + cast(a, "f32") * b), "f32", (m, n))
    rates = Rates({"bf16": 1e15}, other=3e13, bytes=4e12)
    best = min(forms_of(g.program(), rates).offered, key=lambda form: form.work.seconds)
    assert [node.op.name for node in best.program.nodes].count("contract") == 1


@needs_compiler
@pytest.mark.parametrize("name", ["less", "largest"])
def test_kernels_of_it_are_right(name: str) -> None:
    program = loop(*SUMS[name])
    found = rewritten(program)
    assert found is not None
    assert not form_problems(program, found[1], "usual")
