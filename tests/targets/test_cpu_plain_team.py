"""Threads that share the loops of a point: they meet where they must, and give what one gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from explorer.measure import Measurer
from ir import Graph, absolute, argmax, contract, maximum, minimum, reduce
from ir.folding import recur
from ir.program import Program
from ir.schedule import Schedule
from ir.target import Hardware, get_backend
from ir.values import uniform
from tests.few import by_turns, few
from tests.targets.test_cuda_plain_order import grid, power, settling, two_axes, waves

CPU = get_backend("cpu")
MACHINE = CPU.hardware(2)


def cube(x: int = 9, y: int = 7, z: int = 40, dtype: str = "f32") -> Program:
    """A stencil along three axes, and how far each step goes."""
    g = Graph("cube")
    t, i, j, k = g.axes(t=4, x=x, y=y, z=z)
    u = g.state(t, (i, j, k), g.input("U", (i, j, k), dtype))
    around = -6.0 * u
    for axis in (i, j, k):
        for step in (-1, 1):
            around = around + u.at({axis: axis + step}, fill=0.0)
    change = 0.1 * around
    g.output("moved", reduce("sum", change * change, over=(i, j, k)), "f32", (t,))
    g.output("end", recur(u, u + change), dtype, (i, j, k))
    return g.program()


def shortest(n: int = 37) -> Program:
    """Paths over one more place at each step: a row and a column that steps move."""
    g = Graph("shortest")
    k, i, j = g.axes(k=n, i=n, j=n)
    d = g.state(k, (i, j), g.input("D", (i, j), "f32", values=uniform(0, 1)))
    g.output("S", recur(d, minimum(d, d.at(j=k) + d.at(i=k))), "f32", (i, j))
    return g.program()


def cells(m: int = 21, n: int = 45) -> Program:
    """Whole numbers, in states as narrow as they are."""
    g = Graph("cells")
    t, i, j = g.axes(t=5, i=m, j=n)
    x = g.state(t, (i, j), g.input("X", (i, j), "i8", values=uniform(0, 2)))
    near = x.at(i=i - 1, fill=0) + x.at(i=i + 1, fill=0) + x.at(j=j - 1, fill=0)
    g.output("Y", recur(x, (near + x) % 2), "i8", (i, j))
    return g.program()


def farthest(n: int = 150, k: int = 9) -> Program:
    """One thread's choice is what all go on with; elements that lie three apart."""
    g = Graph("farthest")
    t, i = g.axes(t=k, i=n)
    p = g.tensor("P", (n, 3), "f32")
    near = g.state(t, (i,), 1e10)
    last = g.state(t, (), g.constant(0, "i32"))
    apart = [p[i, z] - p[last, z] for z in range(3)]
    new = minimum(near, apart[0] * apart[0] + apart[1] * apart[1] + apart[2] * apart[2])
    g.output("chosen", last, "i32", (t,))
    recur(near, new)
    recur(last, argmax(new, i))
    return g.program()


def rings(n: int = 70) -> Program:
    """What goes round, a mirrored read, and numbers of the places themselves."""
    g = Graph("rings")
    t, i, j = g.axes(t=3, i=5, j=n)
    u = g.state(t, (i, j), g.input("U", (i, j), "f32"))
    here = u.at(j=j - 1, fill=1.0) + u.at(j=n - 1 - j) - absolute(u) * 0.01
    g.output("Y", recur(u, maximum(here * 0.25, u * 0.5) + (g.iota(j) - 2) * 0.001), "f32", (i, j))
    return g.program()


def balanced(m: int = 70, n: int = 83) -> Program:
    """Sums of rows and of columns in turns: vectors along a sum, and beside it."""
    g = Graph("balanced")
    t, i, j = g.axes(t=3, i=m, j=n)
    k = g.input("K", (i, j), "f32", values=uniform(0.5, 2))
    v = g.state(t, (j,), 1.0)
    u = 1.0 / contract(k, v, j)
    g.output("v", recur(v, 1.0 / contract(k, u, i)))
    return g.program()


PROGRAMS: tuple[Callable[[], Program], ...] = (
    waves, grid, power, settling, two_axes, cube, shortest, cells, farthest, rings, balanced,
)  # fmt: skip


def schedules(program: Program, machine: Hardware = MACHINE) -> list[Schedule]:
    """With a thread for each point, and with all for one."""
    space = CPU.space(program, machine)
    rows = space.seed_rows(np.random.default_rng(0))
    return [space.schedule(row) for row in rows]


def team_of(schedule: Schedule) -> int:
    """Threads at a point, of a program of one phase or the first of several."""
    return int(schedule.get("team") or schedule.get("p0.team") or 1)


@pytest.mark.parametrize(("make", "threads"), by_turns(PROGRAMS, [2, 5]))
@pytest.mark.alike(2)
def test_threads_together_give_what_one_gives(
    make: Callable[[], Program], threads: int, code_cache: Path
) -> None:
    program, machine = make(), CPU.hardware(threads)
    ways = schedules(program, machine)
    assert {team_of(schedule) for schedule in ways} == {1, threads}
    with Measurer(program, "cpu", machine, cache_dir=code_cache) as measurer:
        assert [o.detail for o in measurer.measure(ways) if not o.ok] == []


@pytest.mark.parametrize(
    "extent", few([1, 2, 3, 15, 16, 17, 18, 19, 33, 34, 35, 63, 67], (0, 2, 4, 5, 10, 12))
)
@pytest.mark.alike(2)
def test_rows_of_any_length_are_whole(extent: int, code_cache: Path) -> None:
    """Vectors away from the edges, a few lanes, and elements one by one."""
    for program in (cube(3, 2, extent), shortest(extent), cells(3, extent), balanced(7, extent)):
        ways = schedules(program)
        with Measurer(program, "cpu", MACHINE, cache_dir=code_cache) as measurer:
            assert [o.detail for o in measurer.measure(ways) if not o.ok] == []


def barriers(program: Program) -> int:
    (team,) = (s for s in schedules(program) if team_of(s) == 2)
    text = CPU.lower(program, team, MACHINE).text("llvm")
    return text.count("call void @tilewright_barrier")


def test_a_step_of_a_stencil_meets_once() -> None:
    """And once before the steps, and once behind them at most."""
    assert barriers(grid()) <= 3
    assert barriers(shortest()) <= 3


def test_vectors_are_away_from_the_edges() -> None:
    (alone,) = (s for s in schedules(cube()) if team_of(s) == 1)
    text = CPU.lower(cube(), alone, MACHINE).text("llvm")
    assert "x float> @llvm" in text or "x float>, ptr" in text
