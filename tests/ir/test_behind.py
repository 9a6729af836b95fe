"""What is elementwise behind a scatter joins its phase, where nobody else needs the sums."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from ir import Graph, Tile, reduce, scatter, where
from ir.behind import behind_scatters
from ir.inputs import random_inputs
from ir.ops.base import Array
from ir.oracle import evaluate
from ir.phases import Phase, phases_of
from ir.plain.build import plain_kernels
from ir.plain.meaning import meanings
from ir.plain.pieces import Ways
from ir.program import Program
from ir.registry import load_operator
from tests.judging import bounds_of

SENT = {"embedding_backward": "bf16", "segment_mean": "f32", "scatter": "f32"}
WAYS = (Ways(), Ways(pieces=3), Ways(owners=4), Ways(ordered=True))


def computed(
    phases: tuple[Phase, ...], inputs: Mapping[str, Array], ways: Ways
) -> dict[str, Array]:
    known = dict(inputs)
    for phase in phases:
        if phase.plain:
            own = {spec.name: known[spec.name] for spec in phase.program.inputs}
            known |= meanings(plain_kernels(phase.program, ways), own)
        else:
            known |= evaluate(phase.program, known)
    return known


def judged(program: Program, ways: Ways) -> None:
    inputs = random_inputs(program, np.random.default_rng(0))
    found = computed(behind_scatters(phases_of(program)), inputs, ways)
    for name, bounds in bounds_of(program, inputs).items():
        assert bounds.judge(found[name]).right


@pytest.mark.parametrize("ways", WAYS, ids=str)
@pytest.mark.parametrize("name", SENT)
def test_the_same_comes_of_it(name: str, ways: Ways) -> None:
    program = load_operator(name).build(m=23, d=6, dtype=SENT[name], **(
        {"segments": 9} if name == "segment_mean" else {"rows": 9}
    ))  # fmt: skip
    phases = phases_of(program)
    joined = behind_scatters(phases)
    assert len(joined) == len(phases) - 1
    assert all(phase.plain for phase in joined)
    judged(program, ways)


def sums(more: str) -> Program:
    g = Graph("sums")
    t, k, d = g.axes(t=7, k=5, d=3)
    x, w = g.input("x", (t, d), "f32"), g.input("w", (t,), "i32")
    total: Tile = scatter("sum", x, {k: w, d: d})
    if more == "twice":
        g.output("o", total * 2.0, "f32", (k, d))
        g.output("p", where(total > 0, total, 0.0), "f32", (d, k))
    elif more == "reduced":
        g.output("o", total * 2.0, "f32", (k, d))
        g.output("p", reduce("sum", total, over=d), "f32", (k,))
    elif more == "elsewhere":
        g.output("o", total.at(k=4 - k) * 2.0, "f32", (k, d))
    else:
        g.output("o", total, "f32", (k, d))
        g.output("p", total * 2.0, "f32", (k, d))
    return g.program()


def test_several_outputs_at_the_same_places() -> None:
    assert [phase.plain for phase in behind_scatters(phases_of(sums("twice")))] == [True]
    for ways in WAYS:
        judged(sums("twice"), ways)


@pytest.mark.parametrize("more", ["reduced", "elsewhere"])
def test_what_is_read_otherwise_is_in_memory(more: str) -> None:
    phases = phases_of(sums(more))
    assert behind_scatters(phases) == phases


def test_sums_that_are_an_output_too() -> None:
    judged(sums("both"), Ways(ordered=True))
