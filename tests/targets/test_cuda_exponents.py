"""Extremes behind functions that keep the order, and tangents in exponents."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ir import Graph, cast, contract, exp, maximum, operator, reduce, sigmoid, tanh, where
from ir.alternatives import RESIDENCE
from ir.inputs import random_inputs
from ir.program import Program
from ir.rewrite.walking import walked
from ir.targets.cuda.rows.hardware import known_hardware
from ir.targets.cuda.text.exponents import LOG2E, Ordered, ordered_extreme, shifted_exponent
from ir.tiles import Tile
from ir.values import constant, indices
from tests.emulator.emulate import compiler
from tests.few import by_turns, draws, few
from tests.judging import bounds_of
from tests.targets.cuda_cases import BACKEND, HARDWARE, drawn
from tests.targets.test_meaning_of_numbers import run_emulated

CARDS = (HARDWARE, known_hardware("rtx4090"))
KEPT: dict[str, Callable[[Tile], Tile]] = {
    "scaled": lambda x: x * 0.25,
    "tangent": lambda x: tanh(x * 0.1) * 5.0,
    "twice": lambda x: sigmoid(2.0 * tanh(x)),
}
LOST: dict[str, Callable[[Tile], Tile]] = {
    "itself": lambda x: x,
    "falling": lambda x: tanh(x) * -1.0,
    "even": lambda x: x * x,
    "whole": lambda x: cast(x, "i32") * 2,
}


def _extreme(
    made: Callable[[Tile], Tile], kind: str = "max"
) -> tuple[Program, int, Ordered | None]:
    g = Graph("extreme")
    i, j = g.axes(i=8, j=8)
    x = g.input("X", (i, j), "f32")
    g.output("M", reduce(kind, made(x), over=j))
    program = g.program()
    (at,) = (p for p, n in enumerate(program.nodes) if n.op.name == "reduce")
    return program, at, ordered_extreme(program, at)


@pytest.mark.parametrize("name", KEPT)
def test_what_keeps_the_order_comes_behind_an_extreme(name: str) -> None:
    for kind in ("max", "min"):
        program, at, found = _extreme(KEPT[name], kind)
        assert found is not None
        assert program.nodes[found.value].op.name == "load"
        assert found.through[-1] == program.nodes[at].args[0]
    assert _extreme(KEPT[name], "sum")[2] is None


@pytest.mark.parametrize("name", LOST)
def test_what_does_not_is_asked_for_at_every_point(name: str) -> None:
    assert _extreme(LOST[name])[2] is None


@operator
def capped(
    g: Graph, q: int, k: int, d: int, cap: float = 30.0, dtype: str = "bf16",
    causal: bool = False, total: bool = False,
) -> None:  # fmt: skip
    """Attention with a cap on its scores, and the largest of them, or their sum of exponentials."""
    query, key, depth, column = g.axes(q=q, k=k, d=d, e=d)
    queries, keys = g.input("Q", (query, depth), dtype), g.input("K", (key, depth), dtype)
    values = g.input("V", (key, column), dtype)
    score = tanh(contract(queries, keys, over=depth) * 0.05) * cap
    if causal:
        score = where(g.iota(key) <= g.iota(query), score, -np.inf)
    most = reduce("max", score, key)
    p = exp(score - most)
    whole = reduce("sum", p, key)
    g.output("O", contract(cast(p, dtype), values, over=key) / whole, dtype)
    g.output("M", whole if total else most, "f32")


def _texts(**arguments: object) -> list[str]:
    program = capped.build(q=256, k=512, d=64, **arguments)
    return [
        BACKEND.lower(program, schedule, HARDWARE).text("cuda").split("//@ kernel")[1]
        for schedule in drawn(program, 0, 2, 2)
        if RESIDENCE not in dict(schedule.values)  # others have scores in memory
    ]


def test_a_tangent_in_an_exponent_needs_no_series() -> None:
    for text in _texts():
        assert "tw_reciprocal(both" in text  # a product of two, or of four


@pytest.mark.parametrize(
    "other",  # the last: a sum in 32 bits is told as well
    few([{"cap": -30.0}, {"cap": 2000.0}, {"dtype": "tf32"}, {"total": True}], (0, 3)),
)
def test_other_tangents_are_exact(other: dict[str, object]) -> None:
    assert not any("30.0f)) + 1.0f" in text for text in _texts(**other))


def test_how_far_a_tangent_in_an_exponent_is_off() -> None:
    """In arithmetic of 32 bits, whose exponentials and reciprocals are to nearest here."""
    one, two, cap = np.float32(1), np.float32(2 * LOG2E), np.float32(50)
    x = np.linspace(-200, 200, 4_000_002).astype(np.float32)
    grown = np.exp2(np.minimum(x * two, np.float32(30))) + one
    second, third, fourth = (np.roll(grown, len(x) // part) for part in (2, 3, 4))
    both, others = grown * second, third * fourth
    for inverse in (one / grown, one / both * second, one / (both * others) * others * second):
        found = inverse.astype(np.float64) * float(-2 * cap) + 50.0
        assert np.abs(found - 50 * np.tanh(x.astype(np.float64))).max() < 50 * 2.0**-22


CAPPED = [
    pytest.param(cap, dtype, *flags, marks=() if flags in kept else pytest.mark.long)
    for cap, dtype, kept in (
        (30.0, "bf16", ((False, False), (True, True))),
        (900.0, "f16", ((True, False),)),
        (-30.0, "bf16", ((False, True),)),
    )
    for flags in ((False, False), (False, True), (True, False), (True, True))
]


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
@pytest.mark.parametrize(("cap", "dtype", "total", "causal"), CAPPED)
@draws(1, 2)
@pytest.mark.alike(2)
def test_capped_scores_are_right(
    cap: float, dtype: str, total: bool, causal: bool, count: int
) -> None:
    program = capped.build(q=40, k=72, d=32, cap=cap, dtype=dtype, causal=causal, total=total)
    inputs = random_inputs(program, np.random.default_rng(2))
    wanted = bounds_of(program, inputs)
    for hardware in CARDS:
        for schedule in drawn(program, 1, 1, count, hardware=hardware):
            found = run_emulated(BACKEND.lower(program, schedule, hardware), inputs)
            assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []


# what is made of a product (s), a loaded number (b) and coordinates, and whether what rounding the
# extreme costs is little beside its own error
SHIFTED: dict[str, tuple[Callable[[Tile, Tile, Tile], Tile], bool]] = {
    "a product": (lambda s, b, j: s, True),
    "scaled": (lambda s, b, j: s * 0.125, True),
    "rounded": (lambda s, b, j: cast(cast(s, "bf16"), "f32"), True),
    "slopes": (lambda s, b, j: s * 0.125 - b * cast(j, "f32"), True),
    "masked by infinity": (lambda s, b, j: where(j < 9, s * 2.0, -np.inf), True),
    "kept small": (lambda s, b, j: maximum(s, -60.0), True),
    "scaled by much": (lambda s, b, j: s * 100.0, True),
    "loaded": (lambda s, b, j: b, False),
    "masked by a number": (lambda s, b, j: where(j < 9, s * 2.0, -1e9), False),
    "a mask is added": (lambda s, b, j: s + cast(j < 9, "f32") * -1e30, False),
    "a loaded mask is added": (lambda s, b, j: s * 0.125 + b, False),
    "kept above": (lambda s, b, j: maximum(s, -1e4), False),
}


@pytest.mark.parametrize("name", SHIFTED)
def test_an_exponent_is_one_multiply_add_where_its_value_is_rounded_itself(name: str) -> None:
    made, fused = SHIFTED[name]
    g = Graph("exponents")
    i, j, k = g.axes(i=16, j=64, k=16)
    product = contract(g.input("Q", (i, k), "f16"), g.input("K", (j, k), "f16"), over=k)
    x = made(product, g.input("B", (i, j), "f32"), g.iota(j))
    g.output("Y", reduce("sum", exp(x - reduce("max", x, over=j)), over=j), "f32", (i,))
    program = walked(g.program(), frozenset({"j"}))
    found = [
        shifted_exponent(program, position) is not None
        for position, node in enumerate(program.nodes)
        if getattr(node.op, "function", "") == "exp"
    ]
    assert any(found) == fused


@operator
def wholly_masked(g: Graph, q: int, k: int, d: int, number: float, loaded: bool) -> None:
    """Attention whose first rows see no key: a number in the place of their scores."""
    query, key, depth, column = g.axes(q=q, k=k, d=d, e=d)
    score = contract(g.input("Q", (query, depth), "f16"), g.input("K", (key, depth), "f16"), depth)
    seen = g.input("seen", (query, key), "u8", values=indices(2))
    score = where((seen > 0) & (g.iota(query) >= q // 2), score * 0.125, number)
    if loaded:
        score = where(g.iota(query) < 8, g.input("B", (query, key), "f32", constant(number)), score)
    p = exp(score - reduce("max", score, over=key))
    values = g.input("V", (key, column), "f16")
    g.output("O", contract(cast(p, "f16"), values, over=key) / reduce("sum", p, over=key), "f16")


@pytest.mark.skipif(compiler() is None, reason="no C++ compiler to emulate with")
@pytest.mark.parametrize(
    ("number", "loaded"), by_turns([-1e9, -1e30, -3.4028234663852886e38], [False, True])
)
@draws(2, 4)
@pytest.mark.alike(2)
def test_rows_that_are_wholly_masked_have_a_mean(number: float, loaded: bool, count: int) -> None:
    program = wholly_masked.build(q=32, k=136, d=32, number=number, loaded=loaded)
    inputs = random_inputs(program, np.random.default_rng(3))
    wanted = bounds_of(program, inputs)
    for schedule in drawn(program, 2, count - 1, count):
        found = run_emulated(BACKEND.lower(program, schedule, HARDWARE), inputs)
        assert [v.detail for n, b in wanted.items() if not (v := b.judge(found[n])).right] == []
