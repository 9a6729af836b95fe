"""Programs of several phases: run one after the other they compute what the whole does."""

from __future__ import annotations

import numpy as np
import pytest

from ir import (
    Graph,
    Program,
    ProgramError,
    argmax,
    cast,
    contract,
    cumulative,
    evaluate,
    exp,
    parse,
    random_inputs,
    recur,
    recurrence,
    reduce,
    scatter,
    top,
    where,
)
from ir.dtypes import from_float, to_float
from ir.loops import loops_of
from ir.ops.fold import Fold
from ir.ops.load import Load
from ir.ops.read import Read
from ir.phases import PLAIN, phases_of
from tests.ir.programs import legendre, streamed


def routed() -> Program:
    g = Graph("routed")
    t, h, e, k, f = g.axes(t=6, h=8, e=4, k=2, f=5)
    x, w = g.input("X", (t, h), "f32"), g.input("W", (e, h), "f32")
    values, chosen = top(contract(x, w, over=h), e, k)
    p = exp(values - reduce("max", values, over=k))
    gates = p / reduce("sum", p, over=k)
    experts = g.tensor("E", (4, 5, 8), "f32")
    up = contract(x, experts[chosen, f, h], over=h) * gates
    g.output("Y", reduce("sum", up, over=k))
    g.output("Chosen", chosen)
    g.output("Load", scatter("sum", cast(gates * 0.0 + 1.0, "i32"), {e: chosen}))
    return g.program()


def delta() -> Program:
    g = Graph("delta")
    b, t, d, c, o = g.axes(b=2, t=5, d=3, c=4, o=4)
    q, k = g.input("Q", (b, t, d), "f32"), g.input("K", (b, t, d), "f32")
    v, w = g.input("V", (b, t, c), "f32"), g.input("W", (c, o), "f32")
    projected = contract(v, w, over=c)
    state = g.state(t, (b, d, o))
    after = state * 0.5 + k * (projected - contract(state, k, over=d))
    g.output("O", cast(contract(after, q, over=d), "bf16"), dims=(b, t, o))
    g.output("S", recur(state, after))
    g.output("History", after.at(t=t - 1, fill=0.0))
    return g.program()


def chained() -> Program:
    """Reads of reads, folds of what folds gave, outputs of every kind."""
    g = Graph("chained")
    t, c = g.axes(t=7, c=3)
    x = g.input("X", (t, c), "f32")
    first = cumulative("sum", x, t)
    second = recurrence(first.at(t=t - 1, fill=0.5) * 0.1, x, t)
    g.output("First", first)
    g.output("Narrow", cast(second, "f16"))
    total = reduce("sum", second * second, over=t)
    g.output("Total", total)
    g.output("Far", total.at(c=argmax(total, c)) - total)
    g.output("Turned", x.at(t=6 - t) + second)
    return g.program()


def stencil() -> Program:
    g = Graph("stencil")
    steps, x = g.axes(n=4, x=9)
    start = g.input("U", (x,), "f32")
    u = g.state(steps, (x,), start)
    after = (u.at(x=x - 1, fill=0.0) + u.at(x=x + 1, fill=0.0)) * 0.5
    g.output("V", recur(u, after))
    return g.program()


def unread() -> Program:
    """A scatter that is an output and is read too; a loop of which nothing reads the end."""
    g = Graph("unread")
    t, e = g.axes(t=9, e=4)
    count = scatter("sum", g.constant(1, "i32"), {e: g.input("expert", (t,), "i32")})
    g.output("Count", count)
    g.output("Before", cumulative("sum", count, e) - count)
    x = g.input("X", (e,), "f32")
    state = g.state(t, (e,), x)
    recur(state, state * 0.5 + count)
    g.output("Steps", state * 2.0)
    return g.program()


def smoothed() -> Program:
    """Masked scores, the mask's axes the other way round, that are read at other points."""
    g = Graph("smoothed")
    b, i, j, d, r = g.axes(b=3, i=6, j=7, d=4, r=3)
    q, k = g.input("Q", (b, i, d), "f32"), g.input("K", (b, j, d), "f32")
    s = where(g.iota(j) <= i, contract(q, k, over=d), 0.0)
    g.output("S", reduce("sum", s.at(i=i - r, j=j + r - 1, fill=0.0), over=r), dims=(b, i, j))
    return g.program()


def ranked() -> Program:
    """The largest of what a state is at each step, and where elements are sent by it."""
    g = Graph("ranked")
    t, c, k, e = g.axes(t=5, c=6, k=2, e=6)
    state = g.state(t, (c,))
    after = state * 0.5 + g.input("X", (t, c), "f32")
    values, places = top(after, c, k)
    g.output("V", values * 2.0, dims=(t, k))
    g.output("N", scatter("sum", cast(values * 0.0 + 1.0, "i32"), {e: places}))
    g.output("S", recur(state, after))
    return g.program()


PROGRAMS = {
    "ranked": ranked,
    "routed": routed,
    "smoothed": smoothed,
    "delta": delta,
    "chained": chained,
    "stencil": stencil,
    "unread": unread,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_phases_compute_what_the_whole_does(name: str) -> None:
    program = PROGRAMS[name]()
    inputs = random_inputs(program, np.random.default_rng(3))
    memory = dict(inputs)
    for phase in phases_of(program):
        part = phase.program
        assert parse(str(part)) == part
        found = evaluate(part, {spec.name: memory[spec.name] for spec in part.inputs})
        memory |= {s.name: from_float(found[s.name], s.dtype) for s in part.outputs}
    for key, expected in evaluate(program, inputs).items():
        dtype = program.scope.tensors[key].dtype
        near = {"bf16": 1e-2, "f16": 2e-3}.get(dtype, 1e-5)
        found_here = to_float(memory[key], dtype)
        np.testing.assert_allclose(found_here, expected, rtol=near, atol=near)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_phase_is_plain_or_free_of_what_is_plain(name: str) -> None:
    for phase in phases_of(PROGRAMS[name]()):
        ops = [node.op for node in phase.program.nodes]
        assert any(isinstance(op, PLAIN) for op in ops) == phase.plain
        if not phase.plain:
            assert not any(isinstance(op, Read) for op in ops)


def test_a_program_without_such_ops_is_its_only_phase() -> None:
    program = streamed()
    (phase,) = phases_of(program)
    assert phase.program is program
    assert not phase.plain


def test_what_is_kept_lies_as_what_it_is_made_of() -> None:
    """Not as a mask that comes to it first: rows of products are rows in memory."""
    first, second = phases_of(smoothed())
    (kept,) = first.program.outputs
    assert kept.shape == (3, 6, 7)
    (load,) = [n.op for n in second.program.nodes if isinstance(n.op, Load)]
    assert [tuple(axis for axis, _ in index.terms) for index in load.index] == [
        ("b",),
        ("i", "r"),
        ("j", "r"),
    ]


def test_states_of_one_fold_share_a_kernel() -> None:
    kinds = [
        sum(isinstance(node.op, Fold) for node in phase.program.nodes)
        for phase in phases_of(chained())
        if phase.plain
    ]
    assert sum(kinds) == 3


def behind_a_fold(other: str = "") -> Program:
    """What is made of prefixes, and `other`: of a fold beside, or where the prefixes go on."""
    g = Graph("behind")
    i, j = g.axes(i=3, j=7)
    x = g.input("X", (i, j), "f32")
    running = cumulative("sum", x, j)
    scale = reduce("max", x, over=j)
    made = running * scale + g.iota(j)
    if other == "level":
        made = made - cumulative("max", x, j)
    g.output("Y", made, "f16", (i, j))
    if other == "read":
        g.output("Z", reduce("sum", made, over=j), "f32", (i,))
    return g.program()


@pytest.mark.parametrize(
    ("other", "plain"), [("", [False, True]), ("read", [False, True, False]),
                         ("level", [True, True, False])],
)  # fmt: skip
def test_what_is_elementwise_behind_a_fold_is_its_kernels(other: str, plain: list[bool]) -> None:
    program = behind_a_fold(other)
    phases = phases_of(program)
    assert [phase.plain for phase in phases] == plain
    memory = dict(random_inputs(program, np.random.default_rng(3)))
    wanted = evaluate(program, memory)
    for phase in phases:
        part = phase.program
        found = evaluate(part, {spec.name: memory[spec.name] for spec in part.inputs})
        memory |= {s.name: from_float(found[s.name], s.dtype) for s in part.outputs}
    for key, expected in wanted.items():
        dtype = program.scope.tensors[key].dtype
        np.testing.assert_allclose(to_float(memory[key], dtype), expected, rtol=2e-3, atol=2e-3)


def test_a_step_that_needs_the_end_is_refused() -> None:
    g = Graph("round")
    t, c = g.axes(t=4, c=3)
    x = g.input("X", (t, c), "f32")
    state = g.state(t, (c,))
    g.output("Y", recur(state, state + x + reduce("sum", state * x, over=t)))
    with pytest.raises(ProgramError, match="needs all steps"):
        loops_of(g.program())


def test_long_chains_are_cut_as_short_ones_are() -> None:
    g = Graph("long")
    (t,) = g.axes(t=4)
    x = g.input("X", (t,), "f32")
    for place in range(3000):
        x = x + x.at(t=3 - t) * 0.0 if place == 1500 else x * 1.0001
    g.output("Y", cumulative("sum", x, t))
    assert [phase.plain for phase in phases_of(g.program())] == [False, True]


def test_terms_of_sums_over_all_steps_are_no_part_of_a_step() -> None:
    """Polynomials, one by one, and sums of them for many rows: the rows have no place in a step."""
    program = legendre(6, 5, 20)
    (loop,) = loops_of(program)
    rows = [p for p, node in enumerate(program.nodes) if {"b", "l"} <= {*node.axes}]
    assert len(rows) == 2
    assert not loop.inside.intersection(rows)
    first, second = phases_of(program)
    assert [first.plain, second.plain] == [True, False]
    assert [spec.shape for spec in first.program.outputs] == [(6, 20)]


def test_terms_of_one_row_are_a_step_s() -> None:
    program = legendre(6, 1, 20)
    (loop,) = loops_of(program)
    (product,) = (p for p, node in enumerate(program.nodes) if {"b", "l", "n"} <= {*node.axes})
    assert product in loop.inside


def test_what_a_step_stores_stays_in_it() -> None:
    """It is as much as what it is made of, or is no sum's."""
    g = Graph("stored")
    t, b, n = g.axes(t=6, b=5, n=20)
    state = g.state(t, (n,), 1.0)
    term = g.input("C", (b, t), "f32") * state
    g.output("terms", term)
    g.output("Y", recur(state, 0.5 * state))
    program = g.program()
    assert [spec.name for phase in phases_of(program) for spec in phase.program.outputs] == [
        "terms", "Y",
    ]  # fmt: skip
