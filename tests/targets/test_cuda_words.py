"""States of a group with points beside each other, loops in words, jammed iterations."""

from __future__ import annotations

from typing import Any

import pytest

from ir import Graph, contract, recur, reduce, rsqrt, tanh
from ir.plain.accesses import every
from ir.plain.build import plain_kernel
from ir.plain.code import Let, Loop, Name, Number, Spread, Write
from ir.plain.jammed import can_jam
from ir.program import Program
from ir.targets.cuda.plain.plain_shape import loops_of_registers
from ir.targets.cuda.plain.plain_words import words_of
from tests.emulator.emulate import compiler
from tests.targets.test_cuda_phases import check, ways

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")


def recurrent(b: int, t: int, n: int, dtype: str) -> Program:
    """h = tanh(W h + x): every sequence of a batch multiplies by the same matrix."""
    g = Graph("recurrent")
    bb, tt, i, j = g.axes(b=b, t=t, i=n, j=n)
    x, w = g.input("x", (tt, i, bb), dtype), g.input("W", (i, j), dtype)
    h = g.state(tt, (i, bb))
    new = tanh(contract(w, h.at(i=j), j) * 0.25 + x)
    last = recur(h, new)
    g.output("H", new, "f32", (tt, i, bb))
    g.output("h", last)
    return g.program()


def transposed(b: int, t: int, n: int) -> Program:
    """A linear state, read along its rows: s = s + k (v - k s)."""
    g = Graph("corrected")
    bb, tt, k, v = g.axes(b=b, t=t, k=n, v=n)
    keys, values = g.input("K", (bb, tt, k), "bf16"), g.input("V", (bb, tt, v), "bf16")
    s = g.state(tt, (bb, k, v))
    new = s + keys * (values - contract(keys, s, k)) * 0.125
    g.output("S", recur(s, new))
    return g.program()


PROGRAMS = {
    "recurrent": recurrent(16, 3, 24, "f32"),
    "recurrent bf16": recurrent(8, 2, 16, "bf16"),
    "corrected": transposed(2, 3, 32),
}


@needs_compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_points_beside_each_other(name: str) -> None:
    program = PROGRAMS[name]
    pins: list[dict[str, Any]] = [
        {"beside": 8, "threads": 64, "run": 4},
        {"beside": 8, "threads": 32, "run": 1},
        {"beside": 1, "threads": 64, "run": 8},
    ]
    check(program, ways(program, *pins))


def test_words_are_of_rows_that_begin_at_one() -> None:
    kernel = plain_kernel(recurrent(16, 3, 24, "f32"))
    (loop,) = [s for s in every(kernel.body) if isinstance(s, Loop) and s.variable.name[2] == "j"]
    words = words_of(kernel, loop)
    assert words is not None
    assert words.count == 4
    assert {row.array for row in words.rows} == {"W"}
    uneven = plain_kernel(recurrent(16, 3, 23, "f32"))
    (loop,) = [s for s in every(uneven.body) if isinstance(s, Loop) and s.variable.name[2] == "j"]
    assert words_of(uneven, loop) is None


def test_loops_that_hold_nothing_else_are_written_out() -> None:
    many = plain_kernel(transposed(64, 3, 32))
    loops = [s for s in every(many.body) if isinstance(s, Loop)]
    assert {id(s) for s in loops if s.variable.name.startswith("i_k")} == loops_of_registers(many)


def test_what_is_written_at_the_end_can_be_computed_together() -> None:
    i = Name("i_1")
    write = Write("y", i, Number(0.0, "f32"))
    let = Let(Name("v_1", "f32"), Number(0.0, "f32"))
    assert can_jam(Spread(((i, 4),), (let, write)))
    assert not can_jam(Spread(((i, 4),), (write, let)))
    assert not can_jam(Spread(((i, 4),), (Loop(Name("j_1"), 3, (write,)), write)))
    assert not can_jam(Spread((), (write,)))


@needs_compiler
def test_lanes_share_sums() -> None:
    """Of rows and of columns, in words and one by one, with a block for all and with several."""
    program = power(48)
    pins: list[dict[str, Any]] = [
        {"threads": 64, "share": 32, "team": 1},
        {"threads": 64, "share": 8, "team": 4, "run": 4},
        {"threads": 32, "share": 4, "team": 4, "run": 1},
        {"threads": 128, "share": 1, "team": 4},
    ]
    check(program, ways(program, *pins))
    states = recurrent(4, 2, 40, "bf16")
    check(states, ways(states, {"share": 8, "threads": 64}, {"share": 16, "threads": 32}))


def power(n: int) -> Program:
    """v = A v / |A v|: a fold between loops of all threads, which several blocks do each."""
    g = Graph("power")
    t, i, j = g.axes(t=3, i=n, j=n)
    a, first = g.input("A", (i, j), "f32"), g.input("first", (i,), "f32")
    v = g.state(t, (i,), first)
    product = contract(a, v.at(i=j), j)
    last = recur(v, product * rsqrt(reduce("sum", product * product, i) + 1e-3))
    g.output("v", last)
    return g.program()
