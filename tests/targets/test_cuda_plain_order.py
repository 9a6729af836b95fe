"""When threads of a group meet: no later than where one is at what another one writes, and no more
often. Emulated by one block a point and by several; every meeting that is left out is missed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ir import Graph, contract, reduce, rsqrt
from ir.folding import recur
from ir.plain.build import plain_kernel
from ir.plain.code import GROUP, Array, Call, Element, Let, Loop, Name, Number, Spread, Write
from ir.plain.meetings import Access, Order, accesses_of, contended
from ir.program import Program
from tests.emulator.emulate import compiler
from tests.targets.cuda_cases import BACKEND, HARDWARE
from tests.targets.test_cuda_phases import check, ways
from tests.targets.test_cuda_plain import kernel, place, spread, turned

needs_compiler = pytest.mark.skipif(compiler() is None, reason="no C++ compiler (g++)")


def waves() -> Program:
    """Two states, of which one is read beside its own points, and every step is stored."""
    g = Graph("waves")
    t, i = g.axes(t=5, i=1100)
    first = g.input("U", (i,), "f32")
    now, before = g.state(t, (i,), first), g.state(t, (i,), first * 0.5)
    bend = now.at(i=i - 1, fill=0.0) + now.at(i=i + 1, fill=0.0) - 2.0 * now
    after = 2.0 * now - before + 0.25 * bend
    g.output("Y", after, "f32", (t, i))
    g.output("end", recur(now, after), "f32", (i,))
    g.output("old", recur(before, now), "f32", (i,))
    return g.program()


def grid() -> Program:
    """A stencil along two axes; the end alone is stored."""
    g = Graph("grid")
    t, i, j = g.axes(t=4, i=29, j=41)
    u = g.state(t, (i, j), g.input("X", (i, j), "f32"))
    around = u.at(i=i - 1, fill=0.0) + u.at(i=i + 1, fill=0.0) + u.at(j=j - 1, fill=0.0)
    g.output("Y", recur(u, u + 0.125 * (around - 3.0 * u)), "f32", (i, j))
    return g.program()


def power() -> Program:
    """A product, a sum over what it makes, and a state that is made of both."""
    g = Graph("power")
    t, i, j = g.axes(t=3, i=48, j=48)
    v = g.state(t, (i,), g.input("first", (i,), "f32"))
    product = contract(g.input("A", (i, j), "f32"), v.at(i=j), j)
    g.output("v", recur(v, product * rsqrt(reduce("sum", product * product, i) + 1e-3)))
    return g.program()


def settling() -> Program:
    """A stencil whose steps say how much they change in all, which the state is divided by."""
    g = Graph("settling")
    t, i, j = g.axes(t=3, i=72, j=72)
    u = g.state(t, (i, j), g.input("X", (i, j), "f32"))
    change = 0.2 * (u.at(i=i - 1, fill=0.0) + u.at(j=j + 1, fill=0.0) - 2.0 * u)
    size = reduce("sum", change * change, over=(i, j))
    g.output("size", size, "f32", (t,))
    g.output("Y", recur(u, (u + change) * rsqrt(size + 1.0)), "f32", (i, j))
    return g.program()


def two_axes() -> Program:
    """States over different axes, each made of the other's sum."""
    g = Graph("two_axes")
    t, i, j = g.axes(t=3, i=48, j=64)
    w = g.input("W", (i, j), "f32")
    u, v = g.state(t, (i,), g.input("u", (i,), "f32")), g.state(t, (j,), 1.0)
    new_u, new_v = contract(w, v, j) * 0.1, contract(w, u, i) * 0.1
    g.output("us", u * 2.0, "f32", (t, i))
    g.output("u_end", recur(u, new_u))
    g.output("v_end", recur(v, new_v + v))
    return g.program()


PROGRAMS = (waves, grid, power, settling, two_axes)


def teams(program: Program) -> list[dict[str, Any]]:
    """One block a point, and the two smallest teams that the program has."""
    space = BACKEND.space(program, HARDWARE)
    domain = next(d.domain for d in space.decisions if d.name == "team")
    return [{"threads": 64, "team": team} for team in domain[:3]]


def meetings(program: Program) -> int:
    """In a step, by a team of two blocks or more."""
    (schedule,) = ways(program, teams(program)[1])
    text = BACKEND.lower(program, schedule, HARDWARE).text("cuda")
    step = text[text.index("for (i64 i_t") :]
    return step[: step.index("\n  }\n")].count("tw_await(")


@needs_compiler
@pytest.mark.parametrize("make", PROGRAMS)
@pytest.mark.alike(2)
def test_steps_are_right_by_blocks_alone_and_by_teams(make: Callable[[], Program]) -> None:
    program = make()
    check(program, ways(program, *teams(program)))


@pytest.mark.parametrize("make", [waves, grid])
def test_a_step_of_a_stencil_meets_once(make: Callable[[], Program]) -> None:
    assert meetings(make()) == 1


@needs_compiler
@pytest.mark.parametrize("make", [waves, grid, power, settling])
def test_no_meeting_of_a_step_is_one_too_many(
    make: Callable[[], Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each that is left out is a race that the emulator sees."""
    program, clashes = make(), Order.clashes
    (schedule,) = ways(program, teams(program)[1])
    for left_out in range(meetings(program)):
        found = [0]

        def but_one(
            self: Order, accesses: Iterable[Access], found: list[int] = found, out: int = left_out
        ) -> bool:
            meets = clashes(self, accesses)
            found[0] += meets
            return meets and found[0] != out + 1

        monkeypatch.setattr(Order, "clashes", but_one)
        with pytest.raises(AssertionError):
            check(program, 2 * [schedule])


def test_threads_go_on_with_what_they_left_themselves() -> None:
    """The same place of a point is the same thread's; any other is another one's."""
    row = Array("row_1", "f32", 150, GROUP)
    at, other = Name("i_1"), Name("i_2")
    own = Spread(((other, 150),), (Write("y", place(other), Element("row_1", other, "f32")),))
    first = spread(Write("row_1", at, Number(1.0, "f32")))
    order = Order(kernel(first, own, arrays=(row,)).body, frozenset())
    order.note(accesses_of((first,)))
    assert not order.clashes(accesses_of((own,)))
    assert order.clashes(accesses_of(turned().body[1:]))
    assert order.clashes(accesses_of((own,), share=2))
    shorter = Spread(((other, 75),), own.body)
    assert order.clashes(accesses_of((shorter,)))
    order.met()
    assert not order.clashes(accesses_of(turned().body[1:]))


def test_places_are_seen_through_names_and_loops() -> None:
    at, inner, named = Name("i_1"), Name("k_1"), Name("n_1")
    index = Call("add", (Call("mul", (at, Number(4, "i64")), "i64"), inner), "i64")
    direct = Spread(((at, 8),), (Loop(inner, 4, (Write("a", index, Number(0.0, "f32")),)),))
    by_name = Spread(
        ((at, 8),),
        (Loop(inner, 4, (Let(named, index), Write("b", at, Element("a", named, "f32")))),),
    )
    written = {access for access in accesses_of((direct,)) if access.writes}
    read = {access for access in accesses_of((by_name,)) if access.array == "a"}
    assert {access.place for access in written} == {access.place for access in read} != {None}


def test_an_array_that_one_statement_touches_is_nobody_elses() -> None:
    program = waves()
    body = plain_kernel(program).body
    assert "Y" not in contended(body)
    assert {name for name in contended(body) if name.startswith("state")}
