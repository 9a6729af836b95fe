"""Grids over several steps, each made of the one before it."""

from __future__ import annotations

from ir import Graph, operator, recur, where
from ir.values import uniform

EXTENTS: dict[str, dict[str, dict[str, object]]] = {
    "diffusion": {
        "small": {"m": 9, "n": 13, "steps": 4},
        "large": {"m": 4096, "n": 4096, "steps": 16},
    },
    "waves": {
        "small": {"n": 37, "steps": 6},
        "large": {"n": 1048576, "steps": 64},
    },
    "life": {
        "small": {"m": 9, "n": 13, "steps": 5},
        "large": {"m": 4096, "n": 4096, "steps": 16},
    },
}


@operator
def diffusion(
    g: Graph, m: int, n: int, steps: int, rate: float = 0.125, dtype: str = "f32"
) -> None:
    """Y = X after `steps` of x[i, j] += rate * (the sum of its 4 neighbours - 4 x[i, j]).

    Heat in the plane, with 0 beyond the edges; between steps in f32.
    """
    i, j, step = g.axes(i=m, j=n, step=steps)
    x = g.state(step, (i, j), g.input("X", (i, j), dtype))
    beside = x.at(j=j - 1, fill=0) + x.at(j=j + 1, fill=0)
    around = x.at(i=i - 1, fill=0) + x.at(i=i + 1, fill=0) + beside
    g.output("Y", recur(x, x + (around - x * 4.0) * rate), dtype, (i, j))


@operator
def waves(g: Graph, n: int, steps: int, speed: float = 0.5, dtype: str = "f32") -> None:
    """u[t + 1, i] = 2 u[t, i] - u[t - 1, i] + speed^2 (u[t, i - 1] + u[t, i + 1] - 2 u[t, i]).

    A wave on a string whose ends are held at 0: two states that go together, position and the one
    before it. U is the first position, Y every one of `steps`.
    """
    i, t = g.axes(i=n, t=steps)
    first = g.input("U", (i,), dtype)
    u, previous = g.state(t, (i,), first), g.state(t, (i,), first * 1.0)
    bend = u.at(i=i - 1, fill=0) + u.at(i=i + 1, fill=0) - u * 2.0
    moved = u * 2.0 - previous + bend * (speed * speed)
    recur(u, moved)
    recur(previous, u)
    g.output("Y", moved, dtype, (t, i))


@operator
def life(g: Graph, m: int, n: int, steps: int) -> None:
    """Y = X after `steps` of the game of life: a cell is 1 if 3 around it are, or stays so with 2.

    Conway's; beyond the edges all is 0. X and Y are i8.
    """
    i, j, step = g.axes(i=m, j=n, step=steps)
    x = g.state(step, (i, j), g.input("X", (i, j), "i8", uniform(0, 1)))
    rows = x.at(i=i - 1, fill=0) + x + x.at(i=i + 1, fill=0)
    around = rows.at(j=j - 1, fill=0) + rows + rows.at(j=j + 1, fill=0) - x
    alive = (around == 3) | ((around == 2) & (x == 1))
    g.output("Y", recur(x, where(alive, g.constant(1, "i32"), 0)), "i8", (i, j))
