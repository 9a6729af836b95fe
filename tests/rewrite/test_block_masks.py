"""Bounds of masks of data: the same truth values, and intervals that hold what they are of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ir.axes import Axis
from ir.builder import Graph, cast, contract, reduce, where
from ir.inputs import drawn_inputs
from ir.operators.attention import document_attention
from ir.ops.base import Array
from ir.ops.map import Map
from ir.oracle import evaluate
from ir.phases import phases_of
from ir.program import Program
from ir.rewrite import block_masks
from ir.rewrite.block_masks import bounded
from ir.rewrite.domain import live_range, sufficient
from ir.rewrite.forms import forms_of
from ir.rewrite.intervals import Blocks, Intervals
from ir.rewrite.work import Rates
from ir.tiles import Tile, apply
from ir.values import ascending, uniform

RATES = Rates({"bf16": 1e15, "f16": 1e15}, 6e13, 4e12)


def attention(mask: Callable[[Graph, Axis, Axis, Axis], Tile], sq: int, sk: int) -> Program:
    """Attention of two sequences under a mask; `where` keeps what it holds for."""
    g = Graph("masked")
    b, i, j, d, e = g.axes(b=2, i=sq, j=sk, d=4, e=3)
    q, k, v = (
        g.input(*one, "f32") for one in (("Q", (b, i, d)), ("K", (b, j, d)), ("V", (b, j, e)))
    )
    scores = where(mask(g, b, i, j), contract(q, k, over=d), -math.inf)
    p = exp_of(scores, j)
    g.output("O", contract(p, v, over=j), "f32", (b, i, e))
    return g.program()


def exp_of(scores: Tile, j: Axis) -> Tile:
    return apply("exp", scores - apply("max", reduce("max", scores, over=j), -1e30))


def same(g: Graph, b: Axis, i: Axis, j: Axis) -> Tile:
    documents = g.tensor("documents", (2, max(i.extent, j.extent)), "i32", values=ascending(0, 6))
    return documents[b, i] == documents[b, j]


def same_before(g: Graph, b: Axis, i: Axis, j: Axis) -> Tile:
    return same(g, b, i, j) & (g.iota(j) <= g.iota(i))


def near(g: Graph, b: Axis, i: Axis, j: Axis) -> Tile:
    """Places of tokens, sorted, at most 40 apart."""
    places = g.tensor("places", (2, max(i.extent, j.extent)), "i32", values=ascending(0, 900))
    return abs(places[b, i] - places[b, j]) <= 40


def limited(g: Graph, b: Axis, i: Axis, j: Axis) -> Tile:
    """Rows that end where they say, each later than the one before."""
    return g.iota(j) < g.input("ends", (b, i), "i32", values=ascending(1, 190))


def valid(g: Graph, b: Axis, i: Axis, j: Axis) -> Tile:
    """Keys before a place are padding; rows are those from 3 on."""
    kept = g.input("valid", (b, j), "u8", values=ascending(0, 1))
    return (kept == 1) & (g.iota(i) >= 3)


def prefixed(g: Graph, b: Axis, i: Axis, j: Axis) -> Tile:
    """What came before, and a prefix that is as long as it says."""
    ends = g.input("prefix", (b,), "i32", values=uniform(0, 60))
    return (g.iota(j) <= g.iota(i)) | (g.iota(j) < ends)


def with_first(g: Graph, b: Axis, i: Axis, j: Axis) -> Tile:
    """Blocks of 32 that are near and before, and the first points."""
    here, there = g.iota(i) // 32, g.iota(j) // 32
    return ((there <= here) & (there + 2 > here)) | (g.iota(j) < 9)


def padded(g: Graph, b: Axis, i: Axis, j: Axis) -> Tile:
    """The same for all rows."""
    return g.input("pad", (b, j), "u8", values=ascending(0, 1)) == 0


MASKS = {
    "padded": padded,
    "prefixed": prefixed,
    "with-first": with_first,
    "same": same,
    "same-before": same_before,
    "near": near,
    "limited": limited,
    "valid": valid,
}


def close(left: Array, right: Array) -> None:
    """But for the order in which a library of matrices adds numbers up."""
    np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("sq", "sk"), [(256, 256), (200, 333), (70, 260), (5, 400)])
@pytest.mark.parametrize("name", MASKS)
def test_bounds_change_no_result(name: str, sq: int, sk: int) -> None:
    program = attention(MASKS[name], sq, sk)
    found = bounded(program)
    if found is None:  # of few rows, what came before leaves as little
        assert name == "same-before"
        assert sq < 128
        return
    assert 0 < found.share < 1
    for seed in range(2):
        inputs = drawn_inputs(program, seed)
        left, right = evaluate(program, inputs), evaluate(found.program, inputs)
        close(left["O"], right["O"])


@pytest.mark.parametrize("name", MASKS)
def test_kernels_find_bounds_of_what_is_read_and_blocks_without_a_mask(name: str) -> None:
    program = attention(MASKS[name], 256, 256)
    found = bounded(program)
    assert found is not None
    last = phases_of(found.program)[-1].program
    assert {len(one.reads) for one in live_range(last, "j")} >= {1}
    choice = next(node for node in last.nodes if node.op == Map("where"))
    assert any(one.reads for one in sufficient(last, choice.args[0]) or ())


@pytest.mark.parametrize("first", [True, False])
def test_a_mask_of_fractions_beside_one_that_tells_stays_as_it_is(first: bool) -> None:
    g = Graph("two")
    b, i, j, d = g.axes(b=2, i=256, j=256, d=4)
    x, y = g.input("X", (b, i, j), "f32"), g.input("Y", (b, j, d), "f32")
    heights = g.tensor("heights", (2, 256), "f32")
    masks = [same(g, b, i, j), heights[b, i] < heights[b, j]]
    for mask in masks if first else masks[::-1]:
        x = where(mask, x, 0.0)
    g.output("Z", contract(x, y, over=j))
    program = g.program()
    found = bounded(program)
    assert found is not None
    inputs = drawn_inputs(program, 0)
    left, right = evaluate(program, inputs), evaluate(found.program, inputs)
    close(left["Z"], right["Z"])


def test_a_mask_of_numbers_in_no_order_has_no_bounds() -> None:
    def mask(g: Graph, b: Axis, i: Axis, j: Axis) -> Tile:
        colours = g.tensor("colours", (2, 256), "i32", values=uniform(0, 4))
        return colours[b, i] == colours[b, j]

    assert bounded(attention(mask, 256, 256)) is None


def test_bounds_of_coordinates_need_no_tables() -> None:
    for mask in (
        lambda g, b, i, j: g.iota(j) <= g.iota(i),
        lambda g, b, i, j: ~((g.iota(j) > g.iota(i)) | (g.iota(j) + 99 < g.iota(i))),
        lambda g, b, i, j: g.iota(j) // 16 <= g.iota(i) // 16,
    ):
        assert bounded(attention(mask, 256, 256)) is None


def test_a_choice_of_what_is_left_out_is_bounded_as_well() -> None:
    def outside(g: Graph, b: Axis, i: Axis, j: Axis) -> Tile:
        return ~same(g, b, i, j)

    g = Graph("outside")
    b, i, j, d = g.axes(b=2, i=256, j=256, d=4)
    x, y = g.input("X", (b, i, j), "f32"), g.input("Y", (b, j, d), "f32")
    g.output("Z", contract(where(outside(g, b, i, j), 0.0, x), y, over=j))
    program = g.program()
    found = bounded(program)
    assert found is not None
    inputs = drawn_inputs(program, 0)
    close(evaluate(program, inputs)["Z"], evaluate(found.program, inputs)["Z"])


def test_documents_are_a_form_with_its_reason() -> None:
    arguments = {"b": 1, "heads": 4, "sq": 2048, "d": 64, "documents": 8, "dtype": "bf16"}
    forms = forms_of(document_attention.build(**arguments), RATES)
    names = [form.steps[-1].rule for form in forms.offered[1:]]
    assert block_masks.NAME in names
    form = forms.offered[1 + names.index(block_masks.NAME)]
    assert form.judged is forms.offered[0].program
    assert form.work.seconds < forms.offered[0].work.seconds / 2


# --- intervals ------------------------------------------------------------------------------------

EXTENTS = {"i": 150, "j": 90}
LENGTH = 64
FUNCTIONS = ("add", "sub", "mul", "min", "max", "floordiv", "mod")


def drawn_tile(g: Graph, draw: Callable[..., Any], tensors: dict[str, Tile], depth: int) -> Tile:
    i, j = (Axis(*one) for one in EXTENTS.items())
    choice = draw(st.integers(0, 7 if depth else 3))
    if choice == 0:
        return g.iota(i)
    if choice == 1:
        return g.iota(j)
    if choice in (2, 3):
        return tensors["AB"[choice - 2]]
    if choice == 4:
        return g.constant(draw(st.integers(-9, 9)), "i32")
    parts = [drawn_tile(g, draw, tensors, depth - 1) for _ in range(2)]
    if choice == 5:
        return abs(parts[0]) if draw(st.booleans()) else parts[0] >> draw(st.integers(0, 5))
    return apply(draw(st.sampled_from(FUNCTIONS)), *parts)


@settings(max_examples=35, deadline=None)
@given(st.data())
def test_an_interval_holds_every_value_of_its_block(data: st.DataObject) -> None:
    g = Graph("drawn")
    i, j = g.axes(**EXTENTS)
    tensors = {
        "A": g.input("A", (i,), "i32", values=uniform(-(2**31), 2**31 - 1)),
        "B": g.input("B", (j,), "i8"),
    }
    left, right = (drawn_tile(g, data.draw, tensors, 2) for _ in range(2))
    compare = data.draw(st.sampled_from(("lt", "le", "eq")))
    truth = apply(compare, left, right)
    other = g.iota(i) < 99
    truth = data.draw(st.sampled_from((truth & other, truth | other, ~truth)))
    g.output("T", cast(truth, "i32") + 0 * (g.iota(i) + g.iota(j)), dims=(i, j))
    program = g.program()
    inputs = drawn_inputs(program, 5)
    values = evaluate(program, inputs)["T"]
    least, most = blocks_of(program, inputs)
    for a in range(least.shape[0]):
        for b in range(least.shape[1]):
            here = values[a * LENGTH : (a + 1) * LENGTH, b * LENGTH : (b + 1) * LENGTH]
            assert least[a, b] <= here.min()
            assert here.max() <= most[a, b]


def blocks_of(program: Program, inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The intervals of what is stored as T before it is cast, by blocks of both axes."""
    g = Graph.like("intervals", program.axes, program.inputs, ())
    blocks = {
        name: Blocks(g.axis(f"{name}o", -(-extent // LENGTH)), g.axis(f"{name}i", LENGTH), extent)
        for name, extent in EXTENTS.items()
    }
    made: dict[int, Tile] = {}
    for position, node in enumerate(program.nodes[:-1]):
        made[position] = g.add(node.op, *(made[arg] for arg in node.args))
    truth = next(n for n, node in enumerate(program.nodes) if is_cast_truth(program, n))
    found = Intervals(program, g, made, blocks).of(program.nodes[truth].args[0])
    assert found is not None
    spread = 0 * (g.iota(blocks["i"].outer) + g.iota(blocks["j"].outer))
    for name, end in (("least", found.least), ("most", found.most)):
        g.output(name, cast(end, "i32") + spread, dims=tuple(b.outer for b in blocks.values()))
    tables = g.program()
    answers = evaluate(tables, {spec.name: inputs[spec.name] for spec in tables.inputs})
    return answers["least"], answers["most"]


def is_cast_truth(program: Program, position: int) -> bool:
    node = program.nodes[position]
    return node.op.name == "cast" and program.nodes[node.args[0]].dtype == "bool"
