"""Chains along several axes that are walked together: carried, split into parts, or refused."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, reduce
from ir.errors import ProgramError, UsageError
from ir.inputs import random_inputs
from ir.ops.base import Scope, TileType
from ir.ops.load import Load
from ir.ops.reduce import Carry
from ir.oracle import evaluate
from ir.program import Program
from ir.registry import load_operator
from ir.rewrite.indexing import indexed
from ir.rewrite.parting import parted
from ir.rewrite.split import split
from ir.rewrite.streaming import stream
from ir.rewrite.walking import walked
from ir.text import parse

SIZES = {"b": 2, "heads": 4, "kv_heads": 2, "d": 8, "pages": 6, "page": 4, "slots": 9}


def paged() -> Program:
    return load_operator("paged_attention").build(**SIZES)


def half(over: bool) -> Program:
    """Weights relative to the largest of a page, or of all; summed over all."""
    g = Graph("half")
    rows, pages, keys, columns = g.axes(i=3, p=4, o=5, v=6)
    scores = g.input("S", (rows, pages, keys), "f32")
    values = g.input("V", (pages, keys, columns), "f32")
    top = reduce("max", scores, over=(pages, keys) if over else keys)
    weights = exp(scores - top)
    g.output("O", contract(weights, values, over=(pages, keys)))
    return g.program()


def carries(program: Program) -> list[tuple[str, ...]]:
    return [node.op.over for node in program.nodes if isinstance(node.op, Carry)]


def same(program: Program, other: Program) -> bool:
    inputs = random_inputs(program, np.random.default_rng(0))
    found, wanted = evaluate(other, inputs), evaluate(program, inputs)
    return all(np.allclose(found[name], wanted[name], 1e-12, 1e-12) for name in wanted)


def test_a_softmax_along_two_axes_is_one_pass() -> None:
    program = paged()
    made = walked(program, frozenset("po"), ("p", "o"))
    assert carries(made) == [("p", "o")] * 3
    assert same(program, made)
    assert parse(str(made)) == made
    assert "beside" in str(made)
    assert carries(walked(program, frozenset("po"))) == []


def test_reductions_along_some_of_the_axes_keep_their_pass() -> None:
    joint = stream(half(True), joint=("p", "o"))
    assert carries(joint) == [("p", "o")] * 2
    assert same(half(True), joint)
    alone = stream(half(False), joint=("p", "o"))
    assert not carries(alone)


@pytest.mark.parametrize("parts", [2, 3, 4, 5])
def test_parts_of_one_axis_of_several(parts: int) -> None:
    """Equal ones or not, of the outer axis and of the inner one."""
    program = paged()
    assert same(program, split(program, "p", parts))
    assert same(program, split(program, "o", min(parts, 4)))
    if 6 % parts == 0:
        made = parted(program, "p", parts)
        assert any(spec.shape == (2, parts, 6 // parts) for spec in made.tensors)


def test_a_chain_along_other_axes_as_well_is_not_split() -> None:
    with pytest.raises(UsageError, match="cannot be split"):
        split(half(False), "o", 5)


def test_what_is_rescaled_varies_along_no_axis_that_is_gone() -> None:
    body, factor = TileType(("i", "p", "o"), "f32"), TileType(("i", "p"), "f32")
    scope = Scope({"i": 2, "p": 3, "o": 4}, {})
    carry = Carry("sum", "o", True, False, ("p",))
    assert carry.infer((body, TileType(("i",), "f32")), scope).axes == ("i",)
    with pytest.raises(ProgramError, match="p and o"):
        carry.infer((body, factor), scope)


def test_axes_in_computed_indices_are_terms() -> None:
    g = Graph("shifted")
    rows, points = g.axes(i=4, j=6)
    first = g.input("first", (rows,), "i32")
    table = g.tensor("T", (9, 20), "f32", 0.0)
    where = first + g.coordinate(points) * 2 + g.coordinate(points)
    g.output("Y", cast(table[where, points], "f32"))
    program = g.program()
    made = indexed(program)
    ops = (node.op for node in made.nodes)
    (load,) = (op for op in ops if isinstance(op, Load) and op.tensor == "T")
    assert [str(index) for index in load.index] == ["3*j + [0]", "j"]
    inputs = random_inputs(program, np.random.default_rng(0))
    inputs["first"][:] = [-4, 0, 3, 30]
    assert (evaluate(made, inputs)["Y"] == evaluate(program, inputs)["Y"]).all()


def test_an_index_that_is_no_sum_stays_as_it_is() -> None:
    g = Graph("looked_up")
    rows, points = g.axes(i=4, j=6)
    which = g.input("which", (rows, points), "i32")
    g.output("Y", g.tensor("T", (9,), "f32")[which])
    program = g.program()
    assert indexed(program) is program
