"""How values between kernels lie in memory: neighbours are many where nothing asks otherwise."""

from __future__ import annotations

import math

from ir import Graph, Program, cast, contract, exp, reduce
from ir.targets.cuda.build.orders import long_last


def mixed(heads: int) -> Program:
    """Scores of heads, mixed by a small matrix ahead of a softmax along j, and another behind."""
    g = Graph("mixed")
    h, k, f, i, j, d, e = g.axes(h=heads, k=heads, f=heads, i=64, j=96, d=32, e=32)
    q, key = g.input("Q", (h, i, d), "bf16"), g.input("K", (h, j, d), "bf16")
    v = g.input("V", (f, j, e), "bf16")
    first, second = g.input("A", (h, k), "f32"), g.input("B", (k, f), "f32")
    s = contract(contract(q, key, over=d) * (1 / math.sqrt(32)), first, over=h)
    p = exp(s - reduce("max", s, over=j))
    weights = contract(p / reduce("sum", p, over=j), second, over=k)
    g.output("O", contract(cast(weights, "bf16"), v, over=j), "bf16", (f, i, e))
    return g.program()


def node_over(program: Program, axes: tuple[str, ...]) -> int:
    return next(n for n, node in enumerate(program.nodes) if node.axes == axes)


def test_a_short_axis_goes_ahead_of_the_long_one() -> None:
    program = mixed(heads=4)
    assert long_last(program, node_over(program, ("i", "j", "k"))) == ("i", "k", "j")


def test_a_long_axis_stays() -> None:
    program = mixed(heads=32)
    assert long_last(program, node_over(program, ("i", "j", "k"))) == ("i", "j", "k")


def test_what_an_operand_is_computed_of_stays() -> None:
    program = mixed(heads=4)
    assert long_last(program, node_over(program, ("i", "j", "f"))) == ("i", "j", "f")
