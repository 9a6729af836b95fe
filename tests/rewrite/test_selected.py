"""Sums by one-hot factors as reads and scatters, sums under triangles as running sums."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, indices, reduce, where
from ir.axes import Axis
from ir.inputs import random_inputs
from ir.oracle import evaluate
from ir.program import Program
from ir.rewrite import prefixed, selected
from ir.rewrite.forms import forms_of
from ir.rewrite.work import Rates
from ir.tiles import Tile
from tests.cuda.run import needs_compiler
from tests.targets.formed import form_problems

RATES = Rates({"bf16": 1e15, "i8": 2e15}, other=3e13, bytes=4e12)
EXTENTS = {"t": 24, "v": 40, "d": 16, "w": 24}
Body = Callable[[Graph, dict[str, Tile]], Tile]


def built(body: Body) -> Program:
    """A program of a table E(v, d), rows X(t, d), places i(t), j(t) and coordinates of all axes."""
    g = Graph("built")
    axes = dict(zip(EXTENTS, g.axes(**EXTENTS), strict=True))
    t, v, d, _w = axes.values()
    have: dict[str, Tile] = {
        "e": cast(g.input("E", (v, d), "bf16"), "f32"), "x": g.input("X", (t, d), "f32"),
        "i": g.input("i", (t,), "i32", values=indices(44)), "s": g.input("s", (v,), "f32"),
        **{name: g.iota(axis) for name, axis in axes.items()},
    }  # fmt: skip
    have["near"] = have["i"] - 2  # some of which are outside
    y = body(g, have)
    g.output("Y", y, y.dtype)
    return g.program()


def _axis(name: str) -> Axis:
    return Axis(name, EXTENTS[name])


def over(tile: Tile, *axes: str) -> Tile:
    return reduce("sum", tile, over=tuple(map(_axis, axes)))


READS: dict[str, Body] = {
    "row": lambda g, h: over(where(h["v"] == h["i"], h["e"], 0.0), "v"),
    "outside": lambda g, h: over(where(h["near"] == h["v"], h["e"] * h["s"], 0.0), "v"),
    "factor": lambda g, h: over(cast(h["v"] == h["near"], "f32") * exp(h["e"]), "v"),
    "both": lambda g, h: over(
        where((h["s"] > 0.1) & (h["v"] == h["i"]), h["e"], 0.0) * h["s"], "v"
    ),
    "product": lambda g, h: contract(
        cast(where(h["v"] == h["near"], 1.0, 0.0), "bf16"),
        cast(h["e"], "bf16"),
        over=_axis("v"),
    ),
    "factors": lambda g, h: over(
        h["e"] * cast(h["v"] == h["near"], "f32") * where(h["v"] == h["near"], 1.0, 0.0), "v"
    ),
    "count": lambda g, h: over(cast(h["v"] == h["near"], "i32"), "v"),
    "two": lambda g, h: over(where(h["v"] == h["i"], h["e"] * h["x"], 0.0), "v", "d"),
    "diagonal": lambda g, h: over(where(h["t"] == h["w"], h["x"] * (h["w"] + 1), 0.0), "t"),
}
SENT: dict[str, Body] = {
    "rows": lambda g, h: over(where(h["v"] == h["near"], h["x"], 0.0), "t"),
    "counts": lambda g, h: over(cast(h["near"] == h["v"], "i32"), "t"),
    "means": lambda g, h: contract(
        cast(cast(h["i"] == h["v"], "f32"), "bf16"), cast(h["x"], "bf16"), over=_axis("t")
    ),
    "some": lambda g, h: over(where((h["x"] > 0) & (h["v"] == h["i"]), h["x"], 0.0), "t"),
}
PREFIXES: dict[str, Body] = {
    "up to": lambda g, h: over(where(h["t"] <= h["w"], h["x"], 0.0), "t"),
    "before": lambda g, h: over(where(h["t"] < h["w"], h["x"] * h["x"], 0.0), "t"),
    "from": lambda g, h: over(where(h["t"] >= h["w"], h["x"], 0.0), "t"),
    "after": lambda g, h: over(where(h["t"] - 1 > h["w"], h["x"], 0.0), "t"),
    "earlier": lambda g, h: over(where(h["t"] <= h["w"] - 3, h["x"], 0.0), "t"),
    "product": lambda g, h: contract(
        cast(cast(h["w"] >= h["t"], "f32"), "bf16"), cast(h["x"], "bf16"), over=_axis("t")
    ),
    "rows": lambda g, h: over(where(h["t"] <= h["w"], h["x"], 0.0), "t", "d"),
    "masked": lambda g, h: over(where((h["t"] <= h["w"]) & (h["x"] > 0), h["x"], 0.0), "t"),
}
OTHERS: dict[str, Body] = {
    "no place": lambda g, h: over(where(h["s"] == 1.0, h["e"], 0.0), "v"),
    "otherwise": lambda g, h: over(where(h["v"] == h["i"], h["e"], 1.0), "v"),
    "later": lambda g, h: over(where(h["t"] <= h["w"] + 3, h["x"], 0.0), "t"),
    "varies": lambda g, h: over(where(h["t"] <= h["w"], h["x"] * h["w"], 0.0), "t"),
    "either": lambda g, h: over(where((h["t"] <= h["w"]) | (h["x"] > 0), h["x"], 0.0), "t"),
    "longer": lambda g, h: over(where(h["t"] <= h["v"], h["x"], 0.0), "t"),
}


def same(program: Program, made: Program) -> None:
    inputs = random_inputs(program, np.random.default_rng(5))
    wanted, had = evaluate(program, inputs), evaluate(made, inputs)
    for name in wanted:
        np.testing.assert_allclose(had[name], wanted[name], rtol=1e-12, atol=1e-12)


def ops(program: Program) -> set[str]:
    return {node.op.name for node in program.nodes}


@pytest.mark.parametrize("name", READS)
def test_what_one_term_has_is_read(name: str) -> None:
    found = selected.rewritten(program := built(READS[name]))
    assert found is not None
    same(program, found[1])
    sums = [n for n in found[1].nodes if n.op.name in ("reduce", "contract")]
    assert len(sums) == (name == "two")
    assert name == "count" or "read" in ops(found[1])


@pytest.mark.parametrize("name", SENT)
def test_what_goes_to_one_place_is_sent(name: str) -> None:
    found = selected.rewritten(program := built(SENT[name]))
    assert found is not None
    same(program, found[1])
    assert "scatter" in ops(found[1])
    assert not ops(found[1]) & {"reduce", "contract"}


@pytest.mark.parametrize("name", PREFIXES)
def test_sums_under_a_triangle_are_running_ones(name: str) -> None:
    found = prefixed.rewritten(program := built(PREFIXES[name]))
    assert found is not None
    same(program, found[1])
    assert "fold" in ops(found[1])
    assert "contract" not in ops(found[1])


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    program = built(OTHERS[name])
    assert selected.rewritten(program) is None
    assert prefixed.rewritten(program) is None


def test_a_large_table_is_read_and_not_multiplied() -> None:
    """On paper, and with the read made where the table lies."""
    g = Graph("table")
    t, v, d = g.axes(t=4096, v=32000, d=512)
    place = g.input("i", (t,), "i32", values=indices(32000))
    hot = cast(where(g.iota(v) == place, 1.0, 0.0), "bf16")
    g.output("Y", contract(hot, g.input("E", (v, d), "bf16"), over=v), "bf16", (t, d))
    best = min(forms_of(g.program(), RATES).offered, key=lambda form: form.work.seconds)
    assert not ops(best.program) & {"reduce", "contract", "read"}


def test_counts_of_few_places_are_sent() -> None:
    g = Graph("counts")
    n, b = g.axes(n=1 << 22, b=256)
    same_one = cast(g.input("X", (n,), "u8"), "i32") == g.iota(b)
    g.output("H", reduce("sum", cast(same_one, "i32"), over=n), "i32")
    best = min(forms_of(g.program(), RATES).offered, key=lambda form: form.work.seconds)
    assert "scatter" in ops(best.program)


@needs_compiler
@pytest.mark.parametrize("body", [READS["outside"], READS["both"], SENT["some"], SENT["counts"],
                                  PREFIXES["after"], PREFIXES["masked"]])  # fmt: skip
def test_kernels_of_it_are_right(body: Body) -> None:
    program = built(body)
    found = selected.rewritten(program) or prefixed.rewritten(program)
    assert found is not None
    assert not form_problems(program, found[1], "usual")
